"""What a publisher writes breaks no clause that the linter knows: what is left are notes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mirrorlake.lint import Profile, Reading, Severity, Version, lint, of_path
from mirrorlake.publisher import Publisher, TextFormat
from mirrorlake.storage.local import LocalStore

ROWS = [{"id": n, "name": f"n{n}", "price": n / 4} for n in range(20)]
TSV = TextFormat(extension="tsv", column_separator="\t", null="N/A")


STRICT = Profile(Version.V2, strict=True)


@pytest.mark.clause("LZ-327")
@pytest.mark.parametrize(
    ("profile", "options"),
    [
        (Profile(Version.V1), {"layout": "v1"}),
        (STRICT, {}),
        (STRICT, {"text": TextFormat()}),
        (STRICT, {"text": TSV}),
        (STRICT, {"upsert_default": True}),
        (STRICT, {"by_time": True}),
    ],
    ids=["v1", "v2", "csv", "tsv", "upserts", "by time"],
)
def test_the_linter_finds_nothing_wrong_in_what_is_published(
    tmp_path: Path, profile: Profile, options: dict[str, Any]
) -> None:
    with Publisher(LocalStore(tmp_path)) as publisher:
        publisher.describe("sales.orders", key="id", **options)
        publisher.load("sales.orders", ROWS)
        publisher.publish("sales.orders", [{**ROWS[3], "name": None}], operation="update")
        publisher.publish("sales.orders", [{"id": 4}], operation="delete")
        publisher.publish("sales.orders", [{**ROWS[5], "id": 77}], operation="upsert")
        moved = [{**ROWS[6], "id": 78, "was": 6}]
        publisher.publish("sales.orders", moved, operation="update", previous_key={"id": "was"})
        publisher.load("log", ROWS, key=(), layout=options.get("layout"), text=options.get("text"))
        publisher.publish("log", ROWS, operation="insert")
    result = lint(of_path(tmp_path), profile, Reading(everything=True))
    notes = ["LZ-034/no-key"] + ["LZ-128/changes-without-order"] * ("by_time" in options)
    assert [finding.rule.key for finding in result.findings] == notes
    assert {finding.severity for finding in result.findings} == {Severity.NOTE}
    assert result.files == 7
