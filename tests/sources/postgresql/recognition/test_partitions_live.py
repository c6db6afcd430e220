"""Partitions that are altered by themselves: the log tells nothing of it under the name of the
table."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
import pytest

from mirrorlake.capture.schema_policy import TYPES
from mirrorlake.model.change import Marker, SchemaChangeKind
from mirrorlake.sources.base import DIFFERS
from tests.conformance.scene import differing, events, faults, told
from tests.sources.postgresql.captured import Captured

pytestmark = pytest.mark.postgres

LARGE = (
    "create table apples_large partition of apples for values from (10) to (100) "
    "partition by range (id)"
)
MORE = (
    "create table more partition of apples for values from (100) to (200) partition by range (id)"
)
TABLE = (
    "create table apples (id int primary key, note text) partition by range (id)",
    "create table apples_small partition of apples for values from (0) to (10)",
    LARGE,
    "create table apples_ten partition of apples_large for values from (10) to (20)",
    "create table apples_rest partition of apples for values from (200) to (300)",
    "create table log (id int)",
    "insert into apples values (1, 'a'), (10, 'b')",
)
LOOSE = "create table loose (id int not null primary key, note text)"
ATTACH = "alter table apples attach partition loose for values from (100) to (200)"
DIFFERENT = {
    "truncated": (["truncate apples_small"], "apples_small was truncated"),
    "truncated below": (["truncate apples_large"], "apples_ten was truncated"),
    "truncated beside": (
        ["begin", "truncate apples_ten", "insert into apples values (2, 'x')", "commit"],
        "apples_ten was truncated",
    ),
    "truncated after the table": (
        ["truncate apples", "insert into apples values (1, 'c')", "truncate apples_small"],
        "apples_small was truncated",
    ),
    "detached": (["alter table apples detach partition apples_small"], "was detached or dropped"),
    "detached below": (
        ["alter table apples_large detach partition apples_ten"],
        "was detached or dropped",
    ),
    "dropped": (["drop table apples_small"], "was detached or dropped"),
    "for a while": (
        [
            "create table more partition of apples for values from (100) to (200)",
            "insert into apples values (100)",
            "drop table more",
        ],
        "was detached or dropped",
    ),
    "truncated as it came": (
        [
            "create table more partition of apples for values from (100) to (200)",
            "insert into apples values (100)",
            "truncate more",
        ],
        "more was truncated",
    ),
    "attached": ([LOOSE, "insert into loose values (100)", ATTACH], "loose was attached with rows"),
    "attached at once": (
        ["begin", LOOSE, "insert into loose values (100)", ATTACH, "commit"],
        "loose was attached with rows",
    ),
    "attached with partitions": (
        [
            "create table loose (id int not null primary key, note text) partition by range (id)",
            "create table looser partition of loose for values from (100) to (150)",
            "insert into loose values (100)",
            ATTACH,
        ],
        "looser was attached with rows",
    ),
    "without the key": (
        [
            "alter table apples_small alter note set not null",
            "create unique index other on apples_small (note)",
            "alter table apples_small replica identity using index other",
            "update apples set id = 3 where id = 1",
            "delete from apples where id = 3",
            "alter table apples_small replica identity default",
        ],
        "its replica identity lacked the key",
    ),
    "default of the table": (
        ["alter table apples add column c float default random()"],
        "apples_small was truncated or rewritten by itself",
    ),
}


@pytest.mark.parametrize(("statements", "what"), DIFFERENT.values(), ids=DIFFERENT)
def test_a_table_with_altered_partitions_differs_before_the_next_row(
    any_captured: Captured, statements: Sequence[str], what: str
) -> None:
    any_captured.begin(*TABLE)
    with any_captured.streaming() as (source, reader):
        reader.read_to(source.current())
        any_captured.run(
            *statements,
            "insert into apples (id) values (250)",
            "insert into log values (2)",
        )
        chunks = reader.read_to(source.current())
    assert told(events(chunks))[-1] == (Marker.INSERT, 2)
    assert faults(chunks) == []
    assert {str(part.table) for part in differing(chunks)} == {"public.apples"}
    assert all(part.kinds == {SchemaChangeKind.PARTITION_CHANGED} for part in differing(chunks))
    first = differing(chunks)[0]
    assert first.error.code == "table_altered"
    assert what in first.error.what
    (before,) = [chunk for chunk in chunks if first in chunk.parts]
    assert list(before.parts).index(first) == 0


def test_rows_from_before_an_attachment_by_an_older_transaction_are_found(
    any_captured: Captured,
) -> None:
    any_captured.begin(*TABLE)
    with (
        any_captured.streaming() as (source, reader),
        psycopg.connect(any_captured.settings.url) as older,
    ):
        older.execute("select txid_current()")
        any_captured.run(
            "create table loose (id int not null primary key, note text) partition by range (id)",
            "create table looser partition of loose for values from (100) to (150)",
            "insert into loose values (100)",
        )
        older.execute(ATTACH)
        older.commit()
        any_captured.run("insert into apples (id) values (250)")
        found = differing(reader.read_to(source.current()))
    # On PostgreSQL 14 the stream begins anew, and the table is read once more.
    assert "looser was attached with rows" in found[0].error.what


RETYPED = {
    "same type": (["alter table apples alter note type text using upper(note)"], 1),
    "other type": (["alter table apples alter note type int using ascii(note)"], 1),
    "and truncated": (
        [
            "alter table apples alter note type text using upper(note)",
            "insert into apples values (201)",
            "truncate apples_small",
        ],
        2,
    ),
}


@pytest.mark.parametrize(("statements", "count"), RETYPED.values(), ids=RETYPED)
@pytest.mark.parametrize("is_watched", [False, True])
def test_a_rewritten_column_is_not_told_as_rewritten_partitions_too(
    captured: Captured, statements: Sequence[str], count: int, *, is_watched: bool
) -> None:
    captured.begin(*TABLE)
    with captured.streaming() as (source, reader):
        reader.read_to(source.current())
        found = []
        for statement in statements:
            captured.run(statement)
            found += source.watch(captured.tables) if is_watched else []
        captured.run("insert into apples (id) values (250)")
        chunks = reader.read_to(source.current())
        found += source.watch(captured.tables)
    kinds = [f.kind for f in found if f.check == DIFFERS]
    kinds += [kind for part in differing(chunks) for kind in part.kinds]
    assert len(kinds) == count, kinds
    assert kinds[0] in TYPES
    assert {*kinds[1:]} <= {SchemaChangeKind.PARTITION_CHANGED}


@pytest.mark.full
@pytest.mark.parametrize(("statements", "what"), DIFFERENT.values(), ids=DIFFERENT)
def test_a_table_in_which_nothing_happens_afterwards_is_found_by_the_watch(
    captured: Captured, statements: Sequence[str], what: str
) -> None:
    captured.begin(*TABLE)
    with captured.streaming() as (source, reader):
        captured.run(*statements)
        findings = source.watch(captured.tables)  # as at a start, before anything is read
        reader.read_to(source.current())
        findings += source.watch(captured.tables)
    found = [f.message for f in findings if f.check == DIFFERS]
    found += [part.error.what for part in differing(reader.chunks)]
    assert what in found[0]


HARMLESS = {
    "made": ["create table more partition of apples for values from (100) to (200)"],
    "made with rows": [
        "begin",
        "create table more partition of apples for values from (100) to (200)",
        "insert into more values (100)",
        "commit",
        "alter table more owner to current_user",
    ],
    "made with partitions": [
        MORE,
        "create table most partition of more for values from (100) to (150)",
        "insert into apples values (100)",
    ],
    "attached without rows": [LOOSE, ATTACH],
    "truncated with all": ["truncate apples", "insert into apples values (1, 'c')"],
    "truncated in one transaction": [
        "begin",
        "insert into apples values (2, 'c')",
        "truncate apples",
        "insert into apples values (1, 'c')",
        "commit",
    ],
    "column": ["alter table apples add column c int", "insert into apples values (2, 'c', 3)"],
    "index": ["create index on apples (note)", "vacuum analyze apples"],
}


@pytest.mark.full
@pytest.mark.parametrize("is_behind", [False, True])
@pytest.mark.parametrize("statements", HARMLESS.values(), ids=HARMLESS)
def test_a_table_whose_rows_are_all_in_the_log_goes_on(
    any_captured: Captured, statements: Sequence[str], *, is_behind: bool
) -> None:
    any_captured.begin(*TABLE)
    with psycopg.connect(any_captured.database.url) as connection:
        # PostgreSQL 14 does not notice an attachment: the table is read again.
        is_missed = ATTACH in statements and connection.info.server_version < 150_000
    with any_captured.streaming() as (source, reader):
        found = []
        for statement in ("insert into apples values (201)", *statements):
            any_captured.run(statement)
            if not is_behind and "begin" not in statements:
                reader.read_to(source.current())
                found += source.watch(any_captured.tables)
        any_captured.run("insert into apples (id) values (250)")
        found += source.watch(any_captured.tables)
        reader.read_to(source.current())
        found += source.watch(any_captured.tables)
    differs = [*differing(reader.chunks), *(f for f in found if f.check == DIFFERS)]
    assert faults(reader.chunks) == []
    assert bool(differs) == is_missed
    assert told(events(reader.chunks))[-1][:2] == (Marker.INSERT, 250)
