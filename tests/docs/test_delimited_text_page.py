"""The first blocks of the page on delimited text lint clean, and are read as they say."""

from __future__ import annotations

import json
from pathlib import Path

from mirrorlake.landing.text.format import TYPES
from mirrorlake.lint import Profile, Reading, Version, lint, of_path
from mirrorlake.publisher.describe import introduce
from mirrorlake.storage.local import LocalStore
from tests.docs.blocks import blocks

PAGE = "reference/delimited-text.md"


def test_the_first_metadata_of_the_page_lint_clean(tmp_path: Path) -> None:
    (described,), (rows,) = blocks(PAGE, "json"), blocks(PAGE, "csv")
    folder = tmp_path / "Files/LandingZone/sales.schema/orders"
    folder.mkdir(parents=True)
    (folder / "_metadata.json").write_text(described)
    (folder / f"{1:020d}.csv").write_bytes(rows.replace("\n", "\r\n").encode())
    introduce(LocalStore(tmp_path), "Files/LandingZone", None)
    result = lint(of_path(tmp_path), Profile(Version.V2), Reading(everything=True))
    assert [f"{one.rule.id}: {one.found}" for one in result.findings] == []
    assert (result.tables, result.files) == (1, 1)


def test_every_type_that_the_linter_does_not_advise_against_is_in_it() -> None:
    (described,) = blocks(PAGE, "json")
    columns = json.loads(described)["SchemaDefinition"]["Columns"]
    assert {column["DataType"] for column in columns} == set(TYPES) - {"ITime"}
