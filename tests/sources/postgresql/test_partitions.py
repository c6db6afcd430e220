"""Partitioned tables: captured as one table, under the name of their root."""

from __future__ import annotations

import pytest

from mirrorlake.model.change import Marker
from mirrorlake.sources.chunk import Changes
from tests.conformance.scene import TRUNCATE, UNCHANGED, events, faults, told
from tests.sources.postgresql.captured import Captured
from tests.sources.postgresql.test_toast import LONG

pytestmark = pytest.mark.postgres

INSERT, UPDATE, DELETE = Marker.INSERT, Marker.UPDATE, Marker.DELETE
ROOT = (
    "create table apples (id int, size int, note text, primary key (id, size)) "
    "partition by range (size)"
)
LARGE = (
    "create table apples_large partition of apples for values from (10) to (100) "
    "partition by list (size)"
)
TABLE = (
    ROOT,
    "create table apples_small partition of apples for values from (0) to (10)",
    LARGE,
    "create table apples_ten partition of apples_large for values in (10)",
    "create table apples_rest partition of apples_large default",
)


def test_a_partitioned_table_is_one_table(captured: Captured) -> None:
    captured.begin(*TABLE)
    (table,) = captured.tables
    assert (str(table.table), table.key) == ("public.apples", ("id", "size"))


def test_the_rows_of_all_partitions_are_loaded(any_captured: Captured) -> None:
    any_captured.run(*TABLE, "insert into apples select n, n from generate_series(0, 99) n")
    rows = any_captured.snapshot("apples")
    assert sorted(row["id"] for row in rows) == list(range(100))


def test_changes_of_partitions_come_under_the_name_of_the_root(any_captured: Captured) -> None:
    any_captured.begin(*TABLE)
    found = any_captured.changes(
        "insert into apples values (1, 5, 'a'), (2, 10, 'b')",
        "insert into apples_rest values (3, 50, 'c')",
        "update apples set note = 'd' where id = 1",
        "delete from apples where id = 2",
    )
    assert {event.table for event in found} == {"apples"}
    assert [(event.kind, event.row["id"]) for event in found] == [
        (INSERT, 1),
        (INSERT, 2),
        (INSERT, 3),
        (UPDATE, 1),
        (DELETE, 2),
    ]


def test_a_row_that_moves_to_another_partition_is_deleted_and_inserted(
    any_captured: Captured,
) -> None:
    any_captured.begin(*TABLE)
    found = any_captured.changes(
        "insert into apples values (1, 5, 'a')", "update apples set size = 50"
    )
    assert told(found) == [(INSERT, 1, 5, "a"), (DELETE, 1), (INSERT, 1, 50, "a")]
    assert found[1].row["size"] == 5


def test_a_partition_whose_columns_stand_in_another_order_is_captured(
    any_captured: Captured,
) -> None:
    any_captured.begin(
        *TABLE,
        "create table apples_huge (note text, gone int, size int not null, id int not null)",
        "alter table apples_huge drop column gone",
        "alter table apples attach partition apples_huge for values from (100) to (1000)",
    )
    found = any_captured.changes("insert into apples values (1, 500, 'a')")
    assert told(found) == [(INSERT, 1, 500, "a")]
    assert any_captured.snapshot("apples") == [{"id": 1, "size": 500, "note": "a"}]


def test_a_partition_that_is_made_later_is_captured(any_captured: Captured) -> None:
    any_captured.begin(*TABLE)
    found = any_captured.changes(
        "create table apples_huge partition of apples for values from (100) to (1000)",
        "insert into apples values (1, 500, 'a')",
    )
    assert told(found) == [(INSERT, 1, 500, "a")]


def test_truncating_the_root_truncates_the_table_once(any_captured: Captured) -> None:
    any_captured.begin(*TABLE)
    found = any_captured.changes("insert into apples values (1, 5, 'a')", "truncate apples")
    assert told(found) == [(INSERT, 1, 5, "a"), (TRUNCATE,)]


def test_a_partitioned_table_without_a_key_is_append_only(any_captured: Captured) -> None:
    any_captured.begin(
        "create table log (id int) partition by range (id)",
        "create table log_first partition of log for values from (0) to (10)",
    )
    found = any_captured.changes(
        "insert into log values (1), (2)", "update log set id = 3 where id = 1", "delete from log"
    )
    assert told(found) == [(INSERT, 1), (INSERT, 2)]


@pytest.mark.parametrize("identity", ["full", "using index apples_small_pkey"])
def test_a_partition_may_have_an_identity_of_its_own(any_captured: Captured, identity: str) -> None:
    any_captured.begin(*TABLE, f"alter table apples_small replica identity {identity}")
    found = any_captured.changes(
        "insert into apples values (1, 5, 'a'), (2, 50, 'b')",
        "update apples set note = 'c'",
        "delete from apples",
    )
    assert [event.kind for event in found] == [INSERT] * 2 + [UPDATE] * 2 + [DELETE] * 2
    assert all(event.row["id"] for event in found)


def test_a_partition_that_identifies_nothing_makes_the_table_append_only(
    any_captured: Captured,
) -> None:
    any_captured.begin(*TABLE, "alter table apples_small replica identity nothing")
    assert "public.apples_small" in any_captured.tables[0].append_only
    found = any_captured.changes(
        "insert into apples values (1, 5, 'a'), (2, 50, 'b')",
        "update apples set note = 'c'",
        "delete from apples",
    )
    assert [event.kind for event in found] == [INSERT] * 2


def test_the_identity_of_the_root_alone_does_not_count(any_captured: Captured) -> None:
    any_captured.begin(*TABLE, "alter table apples replica identity nothing")
    found = any_captured.changes(
        "insert into apples values (1, 5, 'a')", "update apples set id = 2", "delete from apples"
    )
    assert told(found) == [(INSERT, 1, 5, "a"), (DELETE, 1), (INSERT, 2, 5, "a"), (DELETE, 2)]


@pytest.mark.parametrize(
    ("of_root", "of_partition", "expected"),
    [("full", "default", UNCHANGED), ("default", "full", LONG)],
)
def test_unchanged_values_are_filled_in_when_the_partition_tells_them(
    any_captured: Captured, of_root: str, of_partition: str, expected: str
) -> None:
    any_captured.begin(
        *TABLE,
        "alter table apples_small alter column note set storage external",
        f"alter table apples replica identity {of_root}",
        f"alter table apples_small replica identity {of_partition}",
    )
    found = any_captured.changes(
        f"insert into apples values (1, 5, '{LONG}')", "update apples set id = 2"
    )
    assert told(found[1:]) == [(DELETE, 1), (INSERT, 2, 5, expected)]


def test_a_partitioned_table_may_be_identified_by_an_index(any_captured: Captured) -> None:
    any_captured.begin(
        "create table apples (id int not null, code int not null) partition by range (id)",
        "create table apples_first partition of apples for values from (0) to (10)",
        "create unique index by_code on apples (code, id)",
        "alter table apples replica identity using index by_code",
        "alter table apples_first replica identity using index apples_first_code_id_idx",
    )
    assert any_captured.tables[0].key == ("code", "id")
    found = any_captured.changes("insert into apples values (1, 5)", "update apples set code = 6")
    assert [(e.kind, e.row["code"]) for e in found] == [(INSERT, 5), (DELETE, 5), (INSERT, 6)]


def test_only_inserts_are_told_while_old_rows_do_not_tell_their_key(any_captured: Captured) -> None:
    any_captured.begin(
        "create table apples (id int not null, code int not null) partition by range (id)",
        "create table apples_first partition of apples for values from (0) to (10)",
        "create unique index by_code on apples (code, id)",
        "alter table apples replica identity using index by_code",
        "alter table apples_first replica identity using index apples_first_code_id_idx",
    )
    chunks = any_captured.chunks(
        "create table apples_second partition of apples for values from (10) to (20)",
        "alter table apples_second add primary key (id)",
        "insert into apples values (11, 5)",
        "delete from apples",
    )
    assert faults(chunks) == []
    (part,) = [part for chunk in chunks for part in chunk.parts if isinstance(part, Changes)]
    assert "partition public.apples_second does not contain its key" in part.table.append_only
    assert told(events(chunks)) == [(Marker.INSERT, 11, 5)]
