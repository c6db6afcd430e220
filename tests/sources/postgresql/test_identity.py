"""Replica identities: by what updates and deletions name their row."""

from __future__ import annotations

import pytest

from mirrorlake.model.change import Marker
from mirrorlake.sources.base import CheckSeverity
from tests.conformance.scene import events, streaming, told
from tests.sources.postgresql.captured import BEGINNING, Captured

pytestmark = pytest.mark.postgres

INSERT, UPDATE, DELETE = Marker.INSERT, Marker.UPDATE, Marker.DELETE
DROPPED_INDEX = (
    "create unique index i on apples (code); "
    "alter table apples replica identity using index i; drop index i"
)


def test_with_identity_full_a_change_of_other_columns_is_one_update(any_captured: Captured) -> None:
    any_captured.begin(
        "create table apples (id int primary key, note text)",
        "alter table apples replica identity full",
    )
    found = any_captured.changes(
        "insert into apples values (1, 'a')",
        "update apples set note = 'b'",
        "delete from apples",
    )
    assert told(found) == [(INSERT, 1, "a"), (UPDATE, 1, "b"), (DELETE, 1)]


def test_with_identity_full_a_change_of_the_key_is_a_deletion_and_an_insert(
    any_captured: Captured,
) -> None:
    any_captured.begin(
        "create table apples (id int primary key, note text)",
        "alter table apples replica identity full",
    )
    found = any_captured.changes("insert into apples values (1, 'a')", "update apples set id = 2")
    assert told(found) == [(INSERT, 1, "a"), (DELETE, 1), (INSERT, 2, "a")]


def test_with_identity_full_only_the_key_of_a_deleted_row_is_told(captured: Captured) -> None:
    captured.begin(
        "create table apples (id int primary key, note text)",
        "alter table apples replica identity full",
    )
    found = captured.changes("insert into apples values (1, 'a')", "delete from apples")
    assert found[1].row == {"id": 1, "note": None}


@pytest.mark.clause("ST-098")
def test_with_identity_full_a_deleted_row_is_told_whole_where_metadata_is_asked_for(
    any_captured: Captured,
) -> None:
    any_captured.begin(
        "create table apples (note text, id int primary key, big text)",
        "alter table apples replica identity full",
        "create table pears (note text, id int primary key)",
    )
    any_captured.run(
        "insert into apples select 'a', g, repeat(md5(g::text), 300) from generate_series(1, 3) g",
        "update apples set id = 4, note = null where id = 2",
        "alter table apples alter big type text using left(big, 8)",
        "insert into apples values ('b', 5, 'new')",
        "delete from apples where id in (3, 5)",
        "insert into pears values ('p', 1)",
        "delete from pears",
    )
    source = any_captured.source()
    target = source.current()
    with streaming(source, any_captured.tables, BEGINNING, metadata=True) as reader:
        found = events(reader.read_to(target))
    deleted = [event.row for event in found if event.kind is DELETE]
    of_2, of_3 = ("c81e728d9d4c2f636f067f89cc14862c" * 300, "eccbc87e")
    assert deleted == [
        {"note": "a", "id": 2, "big": of_2},
        {"note": "a", "id": 3, "big": of_3},
        {"note": "b", "id": 5, "big": "new"},
        {"note": None, "id": 1},
    ]


def test_without_a_primary_key_identity_full_tells_whole_rows(any_captured: Captured) -> None:
    any_captured.begin(
        "create table apples (id int, note text)", "alter table apples replica identity full"
    )
    (table,) = any_captured.tables
    assert (table.key, table.whole_rows, table.append_only) == ((), True, "")
    found = any_captured.changes(
        "insert into apples values (1, 'a'), (1, 'a'), (null, null)",
        "update apples set note = 'b' where ctid = '(0,1)'",
        "update apples set note = note where id is null",
        "delete from apples where note = 'a'",
    )
    assert told(found) == [
        *[(INSERT, 1, "a"), (INSERT, 1, "a"), (INSERT, None, None)],
        *[(DELETE, 1), (INSERT, 1, "b")],
        *[(DELETE, None), (INSERT, None, None)],
        (DELETE, 1),
    ]
    assert [event.row["note"] for event in found if event.kind is DELETE] == ["a", None, "a"]


@pytest.mark.parametrize(
    ("statement", "key"),
    [
        ("create unique index i on apples (b, a)", ("b", "a")),
        ("create unique index i on apples (b) include (a)", ("b",)),
        ("alter table apples add unique (b)", ("b",)),
        ("create unique index i on apples (a, b); create unique index j on apples (b)", ("b",)),
        ("alter table apples add unique (b) deferrable", ()),
        ("create unique index i on apples (c)", ()),
        ("create unique index i on apples (b) where a > 1", ()),
        ("create unique index i on apples (b, (a + 1))", ()),
        ("create index i on apples (b)", ()),
    ],
)
def test_with_identity_full_a_unique_index_without_null_is_the_key(
    captured: Captured, statement: str, key: tuple[str, ...]
) -> None:
    captured.begin(
        "create table apples (a int not null, b int not null, c int)",
        "alter table apples replica identity full",
        *statement.split("; "),
    )
    (table,) = captured.tables
    assert (table.key, table.whole_rows, table.append_only) == (key, not key, "")


def test_a_key_that_is_left_out_is_no_key_where_whole_rows_are_told(captured: Captured) -> None:
    captured.select("public.*", columns={"public.apples": ["*", "!id"]})
    captured.begin(
        "create table apples (id int primary key, note text)",
        "alter table apples replica identity full",
    )
    assert (captured.tables[0].key, captured.tables[0].whole_rows) == ((), True)
    found = captured.changes(
        "insert into apples values (1, 'a'), (2, 'a')", "delete from apples where id = 1"
    )
    assert [(event.kind, event.row) for event in found] == [
        *[(INSERT, {"note": "a"})] * 2,
        (DELETE, {"note": "a"}),
    ]


def test_a_table_without_columns_is_append_only(captured: Captured) -> None:
    captured.begin("create table apples ()", "alter table apples replica identity full")
    assert captured.tables[0].append_only == "it has no columns"


def test_a_table_of_whole_rows_goes_on_by_its_key(captured: Captured) -> None:
    captured.begin(
        "create table apples (id int, note text)", "alter table apples replica identity full"
    )
    found = captured.changes(
        "insert into apples values (1, 'a')",
        "alter table apples add primary key (id)",
        "alter table apples replica identity default",
        "update apples set note = 'b'",
        "delete from apples",
    )
    assert [event.kind for event in found] == [INSERT, UPDATE, DELETE]


def test_the_application_goes_on_when_whole_rows_are_no_longer_told(captured: Captured) -> None:
    captured.begin("create table apples (id int)", "alter table apples replica identity full")
    captured.run("insert into apples values (1)", "alter table apples replica identity default")
    found = captured.source().watch(captured.tables)
    assert [f for f in found if f.severity is CheckSeverity.ERROR] == []
    captured.run("update apples set id = 2", "delete from apples")


def test_the_columns_of_an_identity_index_are_the_key(any_captured: Captured) -> None:
    any_captured.begin(
        "create table apples (id int primary key, code text not null, note text)",
        "create unique index by_code on apples (code)",
        "alter table apples replica identity using index by_code",
    )
    assert any_captured.tables[0].key == ("code",)
    found = any_captured.changes(
        "insert into apples values (1, 'x', 'a')",
        "update apples set note = 'b', id = 2",
        "update apples set code = 'y'",
        "delete from apples",
    )
    assert [(event.kind, event.row["code"]) for event in found] == [
        (INSERT, "x"),
        (UPDATE, "x"),
        (DELETE, "x"),
        (INSERT, "y"),
        (DELETE, "y"),
    ]


def test_the_key_stands_in_the_order_of_its_index(captured: Captured) -> None:
    captured.begin("create table apples (a int, b int, c int, primary key (c, a))")
    assert captured.tables[0].key == ("c", "a")


def test_columns_that_an_index_only_includes_are_not_of_the_key(captured: Captured) -> None:
    captured.begin("create table apples (id int, note text, primary key (id) include (note))")
    assert captured.tables[0].key == ("id",)


def test_a_part_of_a_key_may_change(any_captured: Captured) -> None:
    any_captured.begin("create table apples (a int, b text, note text, primary key (a, b))")
    found = any_captured.changes(
        "insert into apples values (1, 'x', 'n')",
        "update apples set b = 'y'",
        "update apples set note = 'm'",
    )
    assert [(e.kind, e.row["a"], e.row["b"]) for e in found] == [
        (INSERT, 1, "x"),
        (DELETE, 1, "x"),
        (INSERT, 1, "y"),
        (UPDATE, 1, "y"),
    ]


def test_a_key_that_is_checked_late_does_not_tell_rows_apart(any_captured: Captured) -> None:
    any_captured.begin(
        "create table apples (id int, primary key (id) deferrable initially deferred)",
    )
    assert "deferrable" in any_captured.tables[0].append_only
    found = any_captured.changes(
        "insert into apples values (1), (2)", "update apples set id = 3 - id"
    )
    assert told(found) == [(INSERT, 1), (INSERT, 2)]


def test_with_identity_full_rows_with_a_key_that_is_checked_late_are_told_whole(
    any_captured: Captured,
) -> None:
    any_captured.begin(
        "create table apples (id int, primary key (id) deferrable initially deferred)",
        "alter table apples replica identity full",
    )
    assert any_captured.tables[0].whole_rows
    found = any_captured.changes(
        "insert into apples values (1), (2)", "update apples set id = 3 - id"
    )
    moved = [(DELETE, 1), (INSERT, 2), (DELETE, 2), (INSERT, 1)]
    assert told(found) == [(INSERT, 1), (INSERT, 2), *moved]


def test_of_an_append_only_table_only_inserts_come_whatever_is_published(
    captured: Captured,
) -> None:
    captured.run(f"create publication {captured.settings.publication} for all tables")
    captured.begin(
        "create table apples (id int) partition by range (id)",
        "create table few partition of apples for values from (0) to (9)",
        "alter table few replica identity full",
    )
    found = captured.changes(
        "insert into apples values (1)", "update apples set id = 2", "delete from apples"
    )
    assert told(found) == [(INSERT, 1)]


@pytest.mark.parametrize(
    "identity",
    [
        "alter table apples replica identity nothing",
        DROPPED_INDEX,
    ],
    ids=["nothing", "dropped index"],
)
def test_a_table_whose_identity_is_nothing_is_append_only(
    captured: Captured, identity: str
) -> None:
    captured.begin(
        "create table apples (id int primary key, code int not null)", *identity.split("; ")
    )
    (table,) = captured.tables
    assert table.key == ()
    assert table.append_only


@pytest.mark.full
@pytest.mark.parametrize(
    "identity",
    [
        "alter table apples replica identity nothing",
        DROPPED_INDEX,
        "alter table apples drop constraint apples_pkey",
    ],
    ids=["nothing", "dropped index", "no key"],
)
def test_the_application_updates_and_deletes_whatever_the_identity_is(
    any_captured: Captured, identity: str
) -> None:
    any_captured.begin(
        "create table apples (id int primary key, code int not null)", *identity.split("; ")
    )
    found = any_captured.changes(
        "insert into apples values (1, 1), (2, 2)",
        "update apples set code = 3 where id = 1",
        "delete from apples where id = 2",
    )
    assert [event.kind for event in found] == [INSERT, INSERT]
    assert any_captured.snapshot("apples") == [{"id": 1, "code": 3}]


def test_a_child_that_inherits_is_updated_as_ever(any_captured: Captured) -> None:
    # PostgreSQL adds children to a publication unasked, and a child has no key of its parent.
    any_captured.select("public.parent")
    any_captured.begin(
        "create table parent (id int primary key)", "create table child () inherits (parent)"
    )
    found = any_captured.changes(
        "insert into parent values (1)",
        "insert into child values (2)",
        "update child set id = 3",
        "delete from child",
    )
    assert told(found) == [(INSERT, 1)]
