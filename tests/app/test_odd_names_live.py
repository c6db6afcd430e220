"""Tables of a live PostgreSQL with names of every kind, from the source to Delta and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mirrorlake import read_feed
from mirrorlake.app.feed import table_named
from mirrorlake.app.mirror import Mirror
from mirrorlake.app.verification.verify import VerifySettings, verify
from mirrorlake.config import Project, load
from mirrorlake.model.clock import WallClock
from mirrorlake.model.table import TableId
from tests.app.applying import Applying
from tests.conftest import Database

pytestmark = [pytest.mark.postgres, pytest.mark.full]

NAMES = (
    *(".", "..", "...", "..x", "x..", ".hidden", "trail.", "trail ", " lead", "x y", " "),
    *(
        "/",
        "a/b",
        "a//b",
        "../up",
        "a\\b",
        "%",
        "%41",
        "%2F",
        "~7E",
        "_under",
        "x.schema",
        "dot.ted",
    ),
    *("CON", "Con", "con", "nul.txt", "SS", "ss", "ß", "ẞ", "I", "ı", "i", "İ", "é", "e\u0301"),
    *('quo"te', "quo'te", "back`tick", "--all", "-", "*", "?", ":", "null", "select", "_delta_log"),
    *(
        "\t",
        "a\nb",
        "\x01",
        "\x7f",
        "\u202eabc",
        "\u200b",
        "emoji😀",
        "n" * 63,
        "ü" * 31,
        "\x1b[31m",
    ),
)
"""Each that PostgreSQL takes: at most 63 bytes, and no zero."""
SCHEMAS = (".", "..", "a/b", "Public", "x.schema", 'quo"te')


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def once(project: Project) -> None:
    Mirror(project).capture_once()
    report = Applying(project).apply()
    assert {error.table: str(error) for error in report.errors} == {}


def test_tables_of_any_name_are_mirrored_and_equal_their_source(
    tmp_path: Path, database: Database
) -> None:
    database.execute(*(f"create schema {quoted(schema)}" for schema in SCHEMAS))
    tables = [TableId("public", name) for name in NAMES]
    tables += [TableId(schema, name) for schema in SCHEMAS for name in (".", "t", "..")]
    names = {table: f"{quoted(table.schema)}.{quoted(table.name)}" for table in tables}
    for number, name in enumerate(names.values()):
        database.execute(
            f"create table {name} (id int primary key)", f"insert into {name} values ({number})"
        )
    source = {"type": "postgresql", "url": database.url, "slot": database.name}
    file = tmp_path / "in" / "mirrorlake.yaml"
    file.parent.mkdir()
    file.write_text(json.dumps({"name": "odd", "root": "lake", "source": source}))
    project = load(file)
    Mirror(project).check()
    once(project)
    database.execute(*(f"insert into {name} values (1000)" for name in names.values()))
    once(project)

    def pause(seconds: float) -> bool:
        if seconds:
            once(project)
        return False

    found = verify(project, [], VerifySettings(timeout=60), WallClock(), pause)
    assert {one.table: one.facts() for one in found.tables if not one.is_equal} == {}
    assert {one.table for one in found.tables} == {*map(str, tables)}
    for number, table in enumerate(tables):
        location, _options = table_named(project, str(table))
        feed = read_feed(location, from_version=0).reader().read_all()
        assert sorted(feed["id"].to_pylist()) == [number, 1000], table
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
    assert {path.name for path in file.parent.iterdir()} == {"mirrorlake.yaml", "lake"}
