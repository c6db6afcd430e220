"""The decoder on messages of pgoutput that are put together by hand."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from mirrorlake.model.change import Marker
from mirrorlake.model.position import Lsn
from mirrorlake.sources.chunk import Changes, Chunk, SchemaChange
from mirrorlake.sources.postgresql.types.sent_values import TextNeeded
from tests.conformance.scene import TRUNCATE, UNCHANGED, events, faults, told
from tests.sources.postgresql.wire import (
    COLUMNS,
    INT4,
    TEXT,
    VARCHAR,
    begin,
    commit,
    decoder,
    delete,
    insert,
    message,
    origin,
    relation,
    table,
    truncate,
    type_,
    update,
)

INSERT, UPDATE, DELETE = Marker.INSERT, Marker.UPDATE, Marker.DELETE
POINT = 600  # a type that `wire` does not know
APPLES, PEARS = 100, 4_000_000_000  # an oid may be larger than a signed integer


def decoded(*changes: bytes) -> Chunk:
    """The changes in one transaction, of the tables apples and pears."""
    tables = decoder(table("apples", APPLES), table("pears", PEARS))
    described = [relation("apples", APPLES), relation("pears", PEARS)]
    return tables.decode([begin(10), *described, *changes, commit(10, 20)])


def test_nothing_is_decoded_to_nothing() -> None:
    chunk = decoder().decode([])
    assert (chunk.transactions.end, chunk.parts, chunk.size) == ((), (), 0)


def test_a_transaction_tells_its_points_and_its_time() -> None:
    microseconds = 1_500_000
    transactions = decoder().decode([begin(10, microseconds), commit(10, 20)]).transactions
    assert transactions.after == [Lsn(10)]
    assert transactions.end == [Lsn(20)]
    assert transactions.time == [datetime(2000, 1, 1, 0, 0, 1, 500_000, UTC)]


def test_null_is_not_the_empty_text() -> None:
    chunk = decoded(insert(APPLES, ["1", None]), insert(APPLES, ["2", ""]))
    assert told(events([chunk])) == [(INSERT, 1, None), (INSERT, 2, "")]


def test_what_is_not_sent_is_unchanged() -> None:
    chunk = decoded(update(APPLES, ["1", UNCHANGED]), update(APPLES, ["2", None]))
    assert told(events([chunk])) == [(UPDATE, 1, UNCHANGED), (UPDATE, 2, None)]


def test_without_unchanged_values_there_is_no_mask() -> None:
    (part,) = decoded(insert(APPLES, ["1", "a"])).parts
    assert isinstance(part, Changes)
    assert part.unchanged is None


def test_an_update_that_tells_its_old_row_is_an_update() -> None:
    chunk = decoded(update(APPLES, ["1", "b"], old=["1", "a"]))
    assert told(events([chunk])) == [(UPDATE, 1, "b")]


def test_an_update_that_tells_its_old_key_without_changing_it_is_an_update() -> None:
    chunk = decoded(update(APPLES, ["1", "b"], key=["1", None]))
    assert told(events([chunk])) == [(UPDATE, 1, "b")]


@pytest.mark.parametrize("before", ["key", "old"])
def test_a_change_of_the_key_is_a_deletion_and_an_insert(before: str) -> None:
    values = {"key": ["1", None], "old": ["1", "a"]}[before]
    chunk = decoded(update(APPLES, ["2", "b"], **{before: values}))
    found = events([chunk])
    assert told(found) == [(DELETE, 1), (INSERT, 2, "b")]
    assert [event.ordinal for event in found] == [1, 1]


@pytest.mark.parametrize("before", ["key", "old"])
def test_of_a_deleted_row_only_the_key_is_kept(before: str) -> None:
    values = {"key": ["1", None], "old": ["1", "a"]}[before]
    (event,) = events([decoded(delete(APPLES, **{before: values}))])
    assert (event.kind, event.row) == (DELETE, {"id": 1, "note": None})


def test_unchanged_values_are_filled_from_the_old_row() -> None:
    chunk = decoded(
        update(APPLES, ["1", UNCHANGED], old=["1", "a"]),
        update(APPLES, ["3", UNCHANGED], old=["2", "b"]),
        update(APPLES, ["4", UNCHANGED]),
    )
    assert told(events([chunk])) == [
        (UPDATE, 1, "a"),
        (DELETE, 2),
        (INSERT, 3, "b"),
        (UPDATE, 4, UNCHANGED),
    ]


def four(number: int) -> bytes:
    """An integer in binary format."""
    return number.to_bytes(4, "big", signed=True)


def test_values_in_binary_format_are_read_as_those_in_text() -> None:
    chunk = decoded(
        insert(APPLES, [four(1), b"a"]),
        insert(APPLES, [four(-2), None]),
        update(APPLES, [four(1), UNCHANGED], old=[four(1), b"a"]),
        update(APPLES, [four(3), UNCHANGED], old=[four(-2), b"b"]),
        update(APPLES, [four(4), b""], key=[four(4), None]),
        delete(APPLES, key=[four(3), None]),
    )
    assert told(events([chunk])) == [
        (INSERT, 1, "a"),
        (INSERT, -2, None),
        (UPDATE, 1, "a"),
        (DELETE, -2),
        (INSERT, 3, "b"),
        (UPDATE, 4, ""),
        (DELETE, 3),
    ]


def test_formats_may_be_mixed_in_a_column() -> None:
    chunk = decoded(
        insert(APPLES, [four(1), "a"]),
        insert(APPLES, ["2", b"b"]),
        insert(APPLES, [four(3), None]),
        update(APPLES, ["4", "d"], key=[four(3), None]),
    )
    assert told(events([chunk])) == [
        (INSERT, 1, "a"),
        (INSERT, 2, "b"),
        (INSERT, 3, None),
        (DELETE, 3),
        (INSERT, 4, "d"),
    ]


@pytest.mark.parametrize("value", [b"1", b"\0" * 8])
def test_a_value_that_is_not_in_the_format_of_its_type_has_to_come_as_text(value: bytes) -> None:
    with pytest.raises(TextNeeded, match=r"^column id of public.apples, of type int4$"):
        decoded(insert(APPLES, [four(1), b"a"]), insert(APPLES, [value, b"a"]))


def test_a_type_that_is_not_read_in_binary_format_has_to_come_as_text() -> None:
    tables = decoder(table("apples", APPLES))
    point = relation("apples", APPLES, [("id", INT4), ("note", POINT)])
    assert events([tables.decode([begin(10), point, insert(APPLES, [four(1), "(1,2)"])])]) == []
    with pytest.raises(TextNeeded, match=r"^column note of public.apples, of type type 600$"):
        tables.decode([insert(APPLES, [four(1), b"any"])])


def test_kinds_of_changes_may_be_mixed() -> None:
    chunk = decoded(
        insert(APPLES, ["1", "a"]),
        delete(APPLES, key=["1", None]),
        update(APPLES, ["3", "c"], key=["2", None]),
        insert(APPLES, ["4", "d"]),
        update(APPLES, ["4", "e"]),
    )
    found = events([chunk])
    assert told(found) == [
        (INSERT, 1, "a"),
        (DELETE, 1),
        (DELETE, 2),
        (INSERT, 3, "c"),
        (INSERT, 4, "d"),
        (UPDATE, 4, "e"),
    ]
    assert [event.ordinal for event in found] == [1, 2, 3, 3, 4, 5]


def test_changes_of_tables_in_turn_are_gathered_by_table() -> None:
    chunk = decoded(
        insert(APPLES, ["1", "a"]),
        insert(PEARS, ["1", "p"]),
        insert(APPLES, ["2", "b"]),
        insert(PEARS, ["2", "q"]),
    )
    parts = [part for part in chunk.parts if isinstance(part, Changes)]
    gathered = {part.table.table.name: part.ordinal.tolist() for part in parts}
    assert gathered == {"apples": [1, 3], "pears": [2, 4]}


def test_changes_of_tables_that_were_not_selected_count_and_do_not_come() -> None:
    chunk = decoded(
        relation("log", 300),
        insert(300, ["1", "x"]),
        insert(APPLES, ["1", "a"]),
        truncate(300),
        insert(APPLES, ["2", "b"]),
    )
    assert [(e.table, e.ordinal) for e in events([chunk])] == [("apples", 2), ("apples", 4)]


def test_a_truncation_cuts_the_changes_of_its_tables() -> None:
    chunk = decoded(insert(APPLES, ["1", "a"]), truncate(APPLES, PEARS), insert(APPLES, ["2", "b"]))
    assert [(e.table, e.kind, e.ordinal) for e in events([chunk])] == [
        ("apples", INSERT, 1),
        ("apples", TRUNCATE, 2),
        ("pears", TRUNCATE, 2),
        ("apples", INSERT, 3),
    ]


def test_a_relation_with_other_columns_cuts() -> None:
    wider = (*COLUMNS, ("size", INT4))
    chunk = decoded(
        insert(APPLES, ["1", "a"]),
        relation("apples", APPLES, wider),
        insert(APPLES, ["2", "b", "3"]),
        relation("apples", APPLES, [("size", INT4), ("id", INT4)]),
        insert(APPLES, ["4", "5"]),
    )
    told = [(type(part), part.table.schema.names) for part in chunk.parts]
    assert told == [
        (Changes, ["id", "note"]),
        (SchemaChange, ["id", "note", "size"]),
        (Changes, ["id", "note", "size"]),
        (SchemaChange, ["size", "id"]),
        (Changes, ["size", "id"]),
    ]
    assert [p.ordinal for p in chunk.parts if isinstance(p, SchemaChange)] == [1, 2]
    assert [event.row["id"] for event in events([chunk])] == [1, 2, 5]


def test_a_relation_that_is_told_again_does_not_cut() -> None:
    chunk = decoded(
        insert(APPLES, ["1", "a"]), relation("apples", APPLES), insert(APPLES, ["2", "b"])
    )
    assert len(chunk.parts) == 1


def test_a_type_with_other_bounds_is_another_description() -> None:
    tables = decoder(table("apples", APPLES))
    wider = [("id", INT4), ("note", VARCHAR)]
    (change,) = tables.decode([begin(10), relation("apples", APPLES, wider), commit(10, 20)]).parts
    assert isinstance(change, SchemaChange)
    assert (change.transaction, change.ordinal) == (0, 0)
    assert change.table.schema == table("apples", APPLES).schema
    assert str(change.table.source_types["note"]) == "varchar"


def test_a_description_in_a_transaction_that_goes_on_stands_behind_what_came_before() -> None:
    tables = decoder(table("apples", APPLES))
    messages = [
        begin(1),
        commit(1, 5),
        begin(10),
        relation("apples", APPLES),
        insert(APPLES, ["1", "a"]),
        relation("apples", APPLES, [*COLUMNS, ("size", INT4)]),
        insert(APPLES, ["2", "b", "3"]),
        commit(10, 20),
    ]
    chunks = [tables.decode(messages[:5]), tables.decode(messages[5:])]
    (change,) = [p for c in chunks for p in c.parts if isinstance(p, SchemaChange)]
    assert (chunks[1].opens, change.transaction, change.ordinal) == (True, 0, 1)


def test_a_transaction_is_called_by_its_number_wherever_a_chunk_ends() -> None:
    tables = decoder(table("apples", APPLES))
    messages = [
        begin(10, xid=4_000_000_000),
        relation("apples", APPLES),
        insert(APPLES, ["1", "a"]),
        insert(APPLES, ["2", "a"]),
        commit(10, 20),
        begin(20, xid=7),
        commit(20, 30),
    ]
    chunks = [tables.decode(messages[:3]), tables.decode(messages[3:])]
    assert [list(chunk.transactions.id) for chunk in chunks] == [
        ["4000000000"],
        ["4000000000", "7"],
    ]
    assert [chunk.transactions.is_open for chunk in chunks] == [True, False]


def test_the_place_of_each_message_in_the_log_is_told_of_its_rows() -> None:
    tables = decoder(table("apples", APPLES))
    messages = [
        begin(10),
        relation("apples", APPLES),
        insert(APPLES, ["1", "a"]),
        update(APPLES, ["2", "a"], key=["1", None]),
        delete(APPLES, key=["2", None]),
        commit(10, 20),
    ]
    (part,) = tables.decode(messages, [1, 2, 3, 4, 2**63, 6]).parts
    assert isinstance(part, Changes)
    assert part.metadata is not None
    assert part.marker.tolist() == [INSERT, DELETE, INSERT, DELETE]
    assert part.metadata.to_pydict() == {"lsn": [3, 4, 4, 2**63]}


def test_a_relation_that_changes_leaves_other_tables_whole() -> None:
    chunk = decoded(
        insert(PEARS, ["1", "p"]),
        relation("apples", APPLES, [("id", INT4)]),
        insert(PEARS, ["2", "q"]),
    )
    assert told(events([chunk])) == [(INSERT, 1, "p"), (INSERT, 2, "q")]


def test_messages_of_other_kinds_mean_nothing() -> None:
    chunk = decoded(origin(), insert(APPLES, ["1", "a"]), type_(), message(), message(b""))
    assert [(event.row["id"], event.ordinal) for event in events([chunk])] == [(1, 1)]


def test_a_message_outside_of_a_transaction_is_no_transaction() -> None:
    chunk = decoder(table("apples", APPLES)).decode([message(), message()])
    assert (chunk.transactions.end, chunk.parts) == ([], [])


def test_a_transaction_without_changes_ends_all_the_same() -> None:
    assert decoded().transactions.end == [Lsn(20)]


def test_a_key_of_several_columns_has_changed_when_one_of_them_has() -> None:
    tables = decoder(table("apples", APPLES, key=("note", "id")))
    chunk = tables.decode(
        [
            begin(10),
            relation("apples", APPLES),
            update(APPLES, ["1", "b"], key=["1", "a"]),
            update(APPLES, ["2", UNCHANGED], key=["1", "b"]),
            update(APPLES, ["2", UNCHANGED], key=["2", "b"]),
            commit(10, 20),
        ]
    )
    found = [(event.kind, event.row["id"], event.row["note"]) for event in events([chunk])]
    assert found == [
        (DELETE, 1, "a"),
        (INSERT, 1, "b"),
        (DELETE, 1, "b"),
        (INSERT, 2, "b"),
        (UPDATE, 2, "b"),
    ]


def test_a_bad_value_stops_its_table_from_there_on() -> None:
    chunk = decoded(
        relation("apples", APPLES, [("id", TEXT)]),
        insert(APPLES, ["before"]),
        relation("apples", APPLES, [("id", INT4)]),
        insert(APPLES, ["no number"]),
        relation("apples", APPLES, [("id", TEXT)]),
        insert(APPLES, ["after"]),
        truncate(APPLES),
        insert(PEARS, ["1", "p"]),
    )
    assert [fault.error.code for fault in faults([chunk])] == ["bad_value"]
    assert told(events([chunk])) == [(INSERT, "before"), (INSERT, 1, "p")]
