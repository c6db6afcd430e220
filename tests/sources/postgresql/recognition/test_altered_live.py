"""Tables that are altered so that their older rows change, which the log does not tell."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mirrorlake.model.change import Marker, SchemaChangeKind
from mirrorlake.sources.base import ALTERED, UNFOLLOWED, CheckSeverity
from mirrorlake.sources.chunk import Changes, SchemaChange, TableDiffers
from tests.conformance.scene import differing, events, faults, told
from tests.sources.postgresql.captured import Captured

pytestmark = pytest.mark.postgres

APPLES = "create table apples (id int primary key, size int, note text)"
LOG = "create table log (id int)"
KEY_EXCHANGED = [
    "begin",
    "alter table apples rename id to other",
    "alter table apples rename size to id",
    "alter table apples rename other to size",
    "commit",
]
KEYS = {
    "renamed": (
        ["alter table apples rename id to number", "alter table apples add id int"],
        ("number",),
        {"number": "id"},
    ),
    "exchanged": (KEY_EXCHANGED, ("size",), {"id": "size", "size": "id"}),
    "another": (
        ["alter table apples drop constraint apples_pkey, add primary key (size)"],
        ("size",),
        {},
    ),
}
DIFFERENT = {
    "again": (
        ["alter table apples drop column note", "alter table apples add column note text"],
        "note was dropped and added again",
    ),
    "volatile": (
        ["alter table apples add column c float default random()"],
        "c was added and the table rewritten",
    ),
    "numbered": (
        ["alter table apples add column c int generated always as identity"],
        "c was added and the table rewritten",
    ),
    "forgotten": (
        [
            "alter table apples add column c float default random()",
            "alter table apples alter column c drop default",
        ],
        "c was added and the table rewritten",
    ),
    "rewritten": (
        ["alter table apples add column c int default 7", "vacuum full apples"],
        "c was added and the table rewritten",
    ),
    "retyped": (
        ["alter table apples alter column size type bigint"],
        "the type of column size was changed from integer to long",
    ),
    "computed": (
        ["alter table apples alter column size type int using size * 2"],
        "column size and the rows were rewritten",
    ),
    "for a while": (
        [
            "alter table apples drop column note",
            "alter table apples add column note text",
            "insert into apples (id, note) values (5, 'x')",
            "alter table apples rename note to remark",
        ],
        "note was dropped and added again",
    ),
    "twice": (
        [
            "alter table apples rename note to remark",
            "insert into apples (id, remark) values (5, 'x')",
            "alter table apples drop column remark",
            "alter table apples add column remark text",
        ],
        "remark was dropped and added again",
    ),
}


@pytest.mark.parametrize(("statements", "key", "copied"), KEYS.values(), ids=KEYS)
def test_a_table_goes_on_with_its_key(
    any_captured: Captured, statements: Sequence[str], key: tuple[str, ...], copied: dict[str, str]
) -> None:
    any_captured.begin(APPLES, LOG)
    chunks = any_captured.chunks(
        *statements, "insert into apples values (1, '1')", "insert into log values (2)"
    )
    assert faults(chunks) == differing(chunks) == []
    parts = [part for chunk in chunks for part in chunk.parts]
    (told,) = [part.alteration for part in parts if isinstance(part, SchemaChange)]
    assert told is not None
    assert (told.key, told.copied) == (key, copied)
    assert [part.table.key for part in parts if isinstance(part, Changes)] == [key, ()]


@pytest.mark.full
@pytest.mark.parametrize("name", DIFFERENT)
def test_a_table_whose_older_rows_changed_differs_before_the_next_row(
    any_captured: Captured, name: str
) -> None:
    statements, what = DIFFERENT[name]
    any_captured.begin(APPLES, LOG, "insert into apples values (0, 0, 'a')")
    chunks = any_captured.chunks(
        *statements, "insert into apples (id) values (1)", "insert into log values (2)"
    )
    assert faults(chunks) == []
    found = [part for chunk in chunks for part in chunk.parts]
    (at,) = [n for n, part in enumerate(found) if isinstance(part, TableDiffers)]
    differs = found[at]
    assert isinstance(differs, TableDiffers)
    assert str(differs.table) == "public.apples"
    kinds = {"retyped": SchemaChangeKind.TYPE_WIDENED, "computed": SchemaChangeKind.TYPE_CHANGED}
    assert differs.kinds == {kinds.get(name, SchemaChangeKind.COLUMN_ADDED)}
    assert what in differs.error.what
    assert "mirrorlake reset public.apples" in differs.error.hint
    rows = [n for n, part in enumerate(found) if isinstance(part, Changes)]
    assert at < rows[0]
    assert told(events(chunks))[-1] == (Marker.INSERT, 2)


@pytest.mark.full
@pytest.mark.parametrize(
    "statements",
    [
        one
        for name, (one, _what) in DIFFERENT.items()
        if "insert" not in str(one) and name != "computed"
    ],
)
def test_a_table_without_new_rows_is_as_it_was(
    captured: Captured, statements: Sequence[str]
) -> None:
    captured.begin(APPLES)
    with captured.streaming() as (source, reader):
        captured.run(*statements)
        reader.read_to(source.current())
        findings = source.watch(captured.tables)
    assert faults(reader.chunks) == differing(reader.chunks) == []
    assert "unfollowed" in {f.check for f in findings}
    assert {f.check for f in findings if f.severity is CheckSeverity.ERROR} == set()


HARMLESS = {
    "added": ["alter table apples add column c int"],
    "default later": [
        "alter table apples add column c int",
        "alter table apples alter column c set default 7",
    ],
    "dropped": ["alter table apples drop column note"],
    "both": ["alter table apples drop column note, add column c int"],
    "both apart": [
        "alter table apples drop column note",
        "alter table apples add column c text",
    ],
    "one after another": [
        "alter table apples add column c int",
        "insert into apples (id) values (11)",
        "alter table apples add column d int",
        "insert into apples (id) values (12)",
        "alter table apples drop column c",
    ],
    "added and dropped": [
        "alter table apples add column c int default 7",
        "alter table apples drop column c",
    ],
    "retyped": ["alter table apples alter column note type varchar"],
    "retyped and rewritten later": [
        "alter table apples alter column note type varchar",
        "insert into apples (id) values (11)",
        "vacuum full apples",
    ],
    "rewritten": ["vacuum full apples"],
    "rewritten, later added": [
        "vacuum full apples",
        "insert into apples (id) values (11)",
    ],
    "truncated": ["truncate apples", "insert into apples (id) values (11)"],
    "generated": ["alter table apples add column c int generated always as (id) stored"],
    "analyzed": ["insert into apples (id) values (11)", "analyze apples"],
}


@pytest.mark.full
@pytest.mark.parametrize("statements", HARMLESS.values(), ids=HARMLESS)
def test_a_table_whose_older_rows_are_the_same_goes_on(
    any_captured: Captured, statements: Sequence[str]
) -> None:
    any_captured.begin(APPLES)
    with any_captured.streaming() as (source, reader):
        any_captured.run("insert into apples values (0, 0, 'a')")
        reader.read_to(source.current())
        for statement in statements:
            any_captured.run(statement)
            reader.read_to(source.current())
        any_captured.run("insert into apples (id) values (1)", "insert into apples (id) values (2)")
        reader.read_to(source.current())
        assert faults(reader.chunks) == differing(reader.chunks) == []
        assert [f for f in source.watch(any_captured.tables) if f.check == ALTERED] == []
    ids = [event.row["id"] for event in events(reader.chunks) if event.row]
    assert (ids[0], ids[-2:]) == (0, [1, 2])


def test_a_column_that_is_not_captured_may_be_renamed(captured: Captured) -> None:
    captured.select("public.*", columns={"public.apples": ["*", "!note*"]})
    captured.begin(APPLES)
    found = captured.changes(
        "alter table apples rename note to notes",
        "alter table apples drop column notes, add column notes text default 'x'",
        "insert into apples values (1, 2)",
    )
    assert told(found) == [(Marker.INSERT, 1, 2)]


def test_a_column_that_was_not_captured_does_not_become_so_by_its_name(captured: Captured) -> None:
    captured.select("public.*", columns={"public.apples": ["*", "!note"]})
    captured.begin(APPLES)
    chunks = captured.chunks(
        "alter table apples rename note to remark", "insert into apples values (1)"
    )
    assert "note was renamed to remark" in faults(chunks)[0].error.what


def test_a_table_differs_when_a_generated_column_becomes_an_ordinary_one(
    any_captured: Captured,
) -> None:
    any_captured.begin(
        "create table apples (id int primary key, twice int generated always as (id * 2) stored)"
    )
    chunks = any_captured.chunks(
        "insert into apples (id) values (1)",
        "alter table apples alter column twice drop expression",
        "insert into apples values (2, 5)",
    )
    assert faults(chunks) == []
    assert "twice was not captured before" in differing(chunks)[0].error.what
    assert told(events(chunks)) == [(Marker.INSERT, 1), (Marker.INSERT, 2, 5)]


def test_a_change_of_columns_is_told_until_a_row_brings_it(captured: Captured) -> None:
    captured.begin(APPLES)
    with captured.streaming() as (source, reader):
        captured.run(
            "alter table apples rename note to remark", "alter table apples add column c int"
        )
        reader.read_to(source.current())
        (finding,) = [f for f in source.watch(captured.tables) if f.check == UNFOLLOWED]
        assert finding.severity is CheckSeverity.WARNING
        assert "column note was renamed to remark, column c was added" in finding.message
        captured.run("insert into apples (id) values (1)")
        reader.read_to(source.current())
        assert [f for f in source.watch(captured.tables) if f.check == UNFOLLOWED] == []
