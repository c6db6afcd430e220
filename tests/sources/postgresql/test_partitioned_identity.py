"""Partitioned tables without a primary key, whose partitions log whole rows or parts of them."""

from __future__ import annotations

import pytest

from mirrorlake.model.change import Marker
from tests.conformance.scene import differing, events, faults, told
from tests.sources.postgresql.captured import Captured

pytestmark = pytest.mark.postgres

INSERT, DELETE = Marker.INSERT, Marker.DELETE
TABLE = (
    "create table apples (id int not null, note text, size int) partition by range (id)",
    "create table few partition of apples for values from (0) to (10)",
    "create table many (size int, id int not null, note text)",
    "alter table apples attach partition many for values from (10) to (100)",
)
FULL = [f"alter table {name} replica identity full" for name in ("apples", "few", "many")]
ROWS = "insert into apples values (1, 'a'), (1, 'a'), (12, null)"


def test_whole_rows_are_told_of_every_partition(any_captured: Captured) -> None:
    any_captured.begin(*TABLE, *FULL)
    (table,) = any_captured.tables
    assert (table.key, table.whole_rows, table.append_only) == ((), True, "")
    found = any_captured.changes(
        ROWS,
        "update apples set id = 13 where ctid = '(0,1)' and id = 1",
        "update apples set note = 'b' where id = 12",
        "delete from apples where id = 1",
    )
    assert [(event.kind, *event.row.values()) for event in found] == [
        *[(INSERT, 1, "a", None), (INSERT, 1, "a", None), (INSERT, 12, None, None)],
        *[(DELETE, 1, "a", None), (INSERT, 13, "a", None)],
        *[(DELETE, 12, None, None), (INSERT, 12, "b", None)],
        (DELETE, 1, "a", None),
    ]


def test_a_unique_index_without_null_is_the_key(captured: Captured) -> None:
    captured.begin(*TABLE, *FULL, "create unique index on apples (id)")
    assert captured.tables[0].key == ("id",)
    found = captured.changes(ROWS.replace("(1, 'a'), ", "", 1), "delete from apples")
    assert told(found)[2:] == [(DELETE, 1), (DELETE, 12)]


@pytest.mark.parametrize("key", ["", "alter table many add primary key (id)"])
def test_a_partition_that_does_not_log_whole_rows_makes_the_table_append_only(
    captured: Captured, key: str
) -> None:
    captured.begin(*TABLE, *FULL[:2], *filter(None, [key]))
    reason = "the replica identity of partition public.many is not full"
    assert captured.tables[0].append_only == reason
    assert told(captured.changes(ROWS, "delete from apples")) == [
        *[(INSERT, 1, "a", None)] * 2,
        (INSERT, 12, None, None),
    ]


def test_a_partition_that_is_made_later_goes_on_when_it_logs_whole_rows(
    captured: Captured,
) -> None:
    captured.begin(*TABLE, *FULL)
    made = "create table more partition of apples for values from (100) to (200)"
    with captured.streaming() as (source, reader):
        captured.run(ROWS, f"{made}; alter table more replica identity full")
        captured.run("insert into apples values (101, 'c')", "delete from apples where id > 100")
        chunks = reader.read_to(source.current())
    assert (faults(chunks), differing(chunks)) == ([], [])
    assert told(events(chunks))[3:] == [(INSERT, 101, "c", None), (DELETE, 101)]


def test_rows_that_are_not_logged_whole_for_a_while_are_not_told(captured: Captured) -> None:
    """The catalog shows nothing of it any more when the stream is read."""
    captured.begin(
        *TABLE,
        *FULL,
        "insert into apples values (1, 'a'), (2, 'b'), (3, 'c'), (12, 'd'), (13, null)",
    )
    chunks = captured.chunks(
        "delete from apples where id = 1",
        "alter table few add primary key (id)",
        "alter table few replica identity default",
        "update apples set note = 'x' where id = 2",
        "update apples set id = 4 where id = 3",
        "delete from apples where id in (2, 12)",
        "alter table few replica identity full",
        "update apples set note = 'y' where id = 4",
    )
    assert faults(chunks) == []
    (found,) = {part.error.what for part in differing(chunks)}
    assert "rows of a partition were changed while its replica identity" in found
    assert [(event.kind, *event.row.values()) for event in events(chunks)] == [
        (DELETE, 1, "a", None),
        (DELETE, 12, "d", None),
        (DELETE, 4, "c", None),
        (INSERT, 4, "y", None),
    ]
