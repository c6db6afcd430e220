"""What a publisher writes breaks no clause that the linter knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mirrorlake.landing.lint import Profile, Reading, Version, lint, of_path
from mirrorlake.landing.publisher import Publisher, TextFormat
from mirrorlake.storage.local import LocalStore

ROWS = [{"id": n, "name": f"n{n}", "price": n / 4} for n in range(20)]
TSV = TextFormat(extension="tsv", column_separator="\t", null="N/A")


@pytest.mark.parametrize(
    ("version", "options"),
    [
        (Version.V1, {"layout": "v1"}),
        (Version.V2, {}),
        (Version.V2, {"text": TextFormat()}),
        (Version.V2, {"text": TSV}),
        (Version.V2, {"upsert_default": True}),
    ],
    ids=["v1", "v2", "csv", "tsv", "upserts"],
)
def test_the_linter_finds_nothing_in_what_is_published(
    tmp_path: Path, version: Version, options: dict[str, Any]
) -> None:
    with Publisher(LocalStore(tmp_path)) as publisher:
        publisher.describe("sales.orders", key="id", **options)
        publisher.load("sales.orders", ROWS)
        publisher.publish("sales.orders", [{**ROWS[3], "name": None}], operation="update")
        publisher.publish("sales.orders", [{"id": 4}], operation="delete")
        publisher.publish("sales.orders", [{**ROWS[5], "id": 77}], operation="upsert")
    result = lint(of_path(tmp_path), Profile(version), Reading(everything=True))
    assert [(finding.rule.key, finding.found) for finding in result.findings] == []
    assert result.files == 4
