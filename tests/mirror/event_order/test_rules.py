"""The order of each source, a rule at a time (sections 9 and 10 of the specification)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mirrorlake.mirror.event_order import RULES, change_numbers, complete, first_of_each, records
from mirrorlake.mirror.event_order.rollbacks import INCOMPLETE
from tests.mirror.event_order.model import GUARD, METADATA, Consumer, Event, rows_of

NEVER: dict[str, Any] = {"tx_id": None, "row_id": None}


def change(
    payload: int, *, time: int = 0, key: int = 1, deletion: bool = False, **rest: Any
) -> Event:
    generic = {"uuid": None, "source_timestamp": time, "read_timestamp": 0, "backfill": False}
    return {"key": key, "payload": payload, "deletion": deletion, **generic, **NEVER, **rest}


def fill(payload: int, *, time: int = 0, **rest: Any) -> Event:
    return change(payload, time=time, **rest) | {"backfill": True}


def decided(source: str, *events: Event) -> int | None:
    """The payload of the row of key 1, in whichever order these arrive; None for no row."""
    found = set()
    for arriving in (events, events[::-1], events + events):
        consumer = Consumer(source)
        for event in arriving:
            consumer.apply([event])
        found.add(consumer.table.get(1))
    at_once = Consumer(source)
    at_once.apply(events)
    found.add(at_once.table.get(1))
    assert len(found) == 1
    return found.pop()


def mysql(file: str, position: int, payload: int, **rest: Any) -> Event:
    return change(payload, log_file=file, log_position=position, **rest)


def oracle(scn: int | None, rs_id: str, ssn: int, payload: int, **rest: Any) -> Event:
    return change(payload, scn=scn, rs_id=rs_id, ssn=ssn, **rest)


LATER = [
    pytest.param(
        "mysql",
        mysql("mysql-bin.000131", 2550, 1, time=9),
        mysql("mysql-bin.000131", 10000, 2, time=5),
        marks=pytest.mark.clause("ST-187", "ST-211"),
        id="offset as number, whatever the time",
    ),
    pytest.param(
        "mysql",
        mysql("mysql-bin.999999", 9, 1),
        mysql("mysql-bin.1000000", 4, 2),
        marks=pytest.mark.clause("ST-208"),
        id="number of the file as number",
    ),
    pytest.param(
        "mysql",
        mysql("new.000001", 4, 1, time=5),
        mysql("old.000131", 4, 2, time=6),
        marks=pytest.mark.clause("ST-205"),
        id="other server by time",
    ),
    pytest.param(
        "mysql",
        mysql("a.000009", 4, 1, time=5),
        mysql("b.000001", 4, 2, time=5),
        marks=pytest.mark.clause("ST-205"),
        id="other server by name",
    ),
    pytest.param(
        "mysql",
        mysql("a.9", 9, 1, sort_keys=["0", "a.9", "9", "9"]),
        mysql("b.1", 1, 2, sort_keys=["0", "b.1", "1", "10"]),
        marks=pytest.mark.clause("ST-205"),
        id="commit sequence of GTID mode",
    ),
    pytest.param(
        "oracle",
        oracle(15869116216871, "0x0073c9.000a4e4c.01d0", 67, 1),
        oracle(15869150473224, "0x006cf4.00056b26.0010", 0, 2),
        marks=pytest.mark.clause("ST-206"),
        id="change number before record set",
    ),
    pytest.param(
        "oracle-strict",
        oracle(15869150473224, "0x006cf4.00056b26.0010", 0, 1),
        oracle(15869116216871, "0x0073c9.000a4e4c.01d0", 67, 2),
        marks=pytest.mark.clause("ST-190", "ST-206"),
        id="strict: record set alone",
    ),
    pytest.param(
        "oracle",
        oracle(None, "0x0000ff.00000001.0001", 9, 1),
        oracle(None, " 0x100.1.1 ", 10, 2),
        marks=pytest.mark.clause("ST-190", "ST-206", "ST-210"),
        id="without change number by parts of the record set",
    ),
    pytest.param(
        "oracle",
        oracle(7, "0x1.1.1", 9, 1),
        oracle(7, "0x1.1.1", 10, 2),
        marks=pytest.mark.clause("ST-190", "ST-211"),
        id="sequence number as number",
    ),
    pytest.param(
        "postgresql",
        change(1, lsn="9/0"),
        change(2, lsn="16/0"),
        marks=pytest.mark.clause("ST-207", "ST-209"),
        id="LSN as two hex numbers",
    ),
    pytest.param(
        "postgresql",
        change(1, time=5, lsn="16/CB002DB0"),
        change(2, time=6, lsn="9/0"),
        marks=pytest.mark.clause("ST-193", "ST-207"),
        id="time before LSN",
    ),
    pytest.param(
        "sqlserver",
        change(1, lsn="00000027:00000ea8:0003"),
        change(2, lsn="00000027:00000ea8:0010"),
        marks=pytest.mark.clause("ST-196", "ST-209"),
        id="LSN as three hex numbers",
    ),
    pytest.param(
        "sqlserver",
        change(1, time=5, lsn="F:F:F"),
        change(2, time=6, lsn="1:1:1"),
        marks=pytest.mark.clause("ST-196"),
        id="time before LSN of SQL Server",
    ),
    pytest.param(
        "salesforce",
        change(1, time=1000),
        change(2, time=2000),
        marks=pytest.mark.clause("ST-197"),
        id="time",
    ),
    pytest.param(
        "mongodb",
        change(1, sort_keys=["1700000000", "9"], time=9),
        change(2, sort_keys=["1700000000", "10"], time=5),
        marks=pytest.mark.clause("ST-198"),
        id="seconds and increment",
    ),
]


@pytest.mark.parametrize(("source", "first", "second"), LATER)
def test_the_second_event_is_the_later_one(source: str, first: Event, second: Event) -> None:
    assert decided(source, first, second) == 2
    assert decided(source, first | {"deletion": True}, second) == 2
    assert decided(source, first, second | {"deletion": True}) is None


PLACED: dict[str, Event] = {
    "mysql": mysql("mysql-bin.000131", 2550, 1),
    "oracle": oracle(7, "0x1.1.1", 9, 1),
    "postgresql": change(1, lsn="16/0"),
    "sqlserver": change(1, lsn="1:1:1"),
    "mongodb": change(1, sort_keys=["1", "1"]),
}


@pytest.mark.clause("ST-212", "ST-373")
@pytest.mark.parametrize("source", PLACED)
def test_at_one_position_the_deletion_is_first_then_the_counter_decides(
    source: str,
) -> None:
    one = PLACED[source]
    assert decided(source, one, one | {"deletion": True}) == 1
    rows = [one | {"payload": n, "uuid": f"ee7534b0-1eaf{n:08b}"} for n in (1, 2, 3)]
    assert decided(source, *rows) == 3


@pytest.mark.clause("ST-213")
def test_rows_of_one_insert_share_a_position_and_are_all_applied() -> None:
    consumer = Consumer("mysql")
    rows = [mysql("mysql-bin.000459", 4106, 10 * key, key=key) for key in (1, 2, 3)]
    consumer.apply(rows)
    consumer.apply(rows)
    assert consumer.table == {1: 10, 2: 20, 3: 30}


@pytest.mark.clause("ST-214")
def test_in_salesforce_a_deletion_is_the_last_change_of_its_second() -> None:
    first, second = change(1), change(2, read_timestamp=5)
    assert decided("salesforce", second, first | {"deletion": True}) is None
    assert decided("salesforce", first, second) == 2


@pytest.mark.clause("ST-215", "ST-217")
@pytest.mark.parametrize("source", PLACED)
def test_a_backfill_wins_only_when_it_is_newer_by_more_than_the_guard(source: str) -> None:
    one = PLACED[source]
    within, beyond = fill(7, time=GUARD), fill(8, time=GUARD + 1)
    assert decided(source, one, within) == 1
    assert decided(source, one, beyond) == 8
    # A deletion, remembered, is a change like any other.
    assert decided(source, one | {"deletion": True}, within) is None
    assert decided(source, within, fill(5, time=GUARD - 1, uuid="z")) == 7
    later = fill(5, time=GUARD, read_timestamp=1)
    assert decided(source, within, later) == 5


@pytest.mark.clause("ST-215")
def test_times_at_the_ends_of_what_64_bits_hold_are_compared_without_overflow() -> None:
    oldest = mysql("a.1", 1, 1, time=-(2**63))
    assert decided("mysql", oldest, fill(2, time=2**63 - 1)) == 2


@pytest.mark.clause("ST-216")
def test_a_held_row_is_restored_if_the_log_continues_with_an_earlier_time() -> None:
    won, later = mysql("a.1", 1, 1, time=100), mysql("a.1", 2, 2, time=0)
    assert decided("mysql", won, fill(3, time=50), later) == 3


@pytest.mark.clause("ST-229")
def test_a_transaction_and_its_reversal_leave_the_row_as_it_was() -> None:
    before = oracle(1, "0x1.1.1", 0, 1)
    changed, back = oracle(2, "0x1.1.2", 0, 2), oracle(3, "0x1.1.3", 0, 1)
    removed = oracle(2, "0x1.1.2", 0, 1, deletion=True)
    assert decided("oracle", before, changed, back) == 1
    assert decided("oracle", before, removed, back) == 1
    assert decided("oracle", changed, back | {"deletion": True}) is None


@pytest.mark.clause("ST-231")
def test_a_supplement_is_ordered_by_its_own_change_number() -> None:
    supplement = oracle(5, "", 0, 5)
    assert decided("oracle", oracle(4, "0x1.1.1", 0, 4), supplement) == 5
    assert decided("oracle", oracle(6, "0x1.1.1", 0, 6), supplement) == 6


UNDONE = {"tx_id": "t", "row_id": "AAA"}


@pytest.mark.clause("ST-230")
def test_a_deletion_by_row_id_waits_for_the_event_before_it_and_takes_its_key() -> None:
    inserted = oracle(1, "0x1.1.1", 0, 1, **UNDONE)
    deleted = oracle(4, "0x1.1.4", 0, 0, deletion=True, **UNDONE) | {"key": None}
    other = oracle(2, "0x1.1.2", 0, 9, key=2, tx_id="u", row_id="AAA")
    assert decided("oracle", inserted, deleted, other) is None
    consumer = Consumer("oracle")
    consumer.apply([deleted, other])
    assert consumer.table == {2: 9}  # it waits, and takes no row of another transaction
    consumer.apply([inserted])
    assert consumer.table == {2: 9}


@pytest.mark.clause("ST-230")
def test_a_deletion_changes_its_key_when_a_nearer_event_arrives() -> None:
    first, nearer = (
        oracle(1, "0x1.1.1", 0, 1, **UNDONE),
        oracle(2, "0x1.1.2", 0, 2, key=2, **UNDONE),
    )
    deleted = oracle(4, "0x1.1.4", 0, 0, deletion=True, **UNDONE) | {"key": None}
    consumer = Consumer("oracle")
    consumer.apply([first])
    consumer.apply([deleted])
    assert consumer.table == {}
    consumer.apply([nearer])
    assert consumer.table == {1: 1}


def test_completing_counts_waiting_deletions_and_drops_duplicates() -> None:
    deleted = oracle(4, "0x1.1.4", 0, 0, deletion=True) | {"key": None}
    rows = rows_of("oracle", [deleted, deleted])
    for name, value in (*UNDONE.items(), (INCOMPLETE, True)):
        rows = rows.append_column(name, pa.array([value, value]))
    found = complete(["key"], rows)
    assert (found.memory.num_rows, found.derived.num_rows, len(found.waiting)) == (1, 0, 1)


@pytest.mark.clause("ST-225", "ST-234")
def test_events_without_a_key_are_duplicates_by_uuid_or_position_and_content() -> None:
    one = mysql("a.1", 1, 5)
    events = [
        one | {"uuid": "a-00000000"},
        one | {"uuid": "a-00000001"},  # a twin: another row of the same values
        one | {"uuid": "a-00000000"},
        one,
        one,
        one | {"payload": 6},
        one | {"log_position": 2},
    ]
    assert first_of_each(rows_of("mysql", events)).tolist() == [0, 1, 3, 5, 6]


@pytest.mark.clause("ST-220")
def test_change_numbers_have_up_to_four_sections_that_sort_as_text() -> None:
    events = [mysql("a.9", 255, 1), mysql("a.10", 1, 1)]
    numbers = change_numbers(RULES["mysql"], rows_of("mysql", events)).to_pylist()
    assert numbers == [
        "0000000000000009/00000000000000ff/0000000000000000",
        "000000000000000a/0000000000000001/0000000000000000",
    ]
    event = oracle(2**64 - 1 >> 1, "0x0073c9.000a4e4c.01d0", 67, 1)
    (number,) = change_numbers(RULES["oracle"], rows_of("oracle", [event])).to_pylist()
    assert number == "7fffffffffffffff/000073c9000a4e4c/00000000000001d0/0000000000000043"


@pytest.mark.clause("ST-367")
@pytest.mark.parametrize(
    ("uuid", "parts"),
    [
        ("ee7534b0-71d8-4164-8ad8-1eaf00000011", ("ee7534b0-71d8-4164-8ad8-1eaf", 3)),
        ("ee7534b0-71d8-4164-8ad8-1eaf00000012", ("ee7534b0-71d8-4164-8ad8-1eaf00000012", 0)),
        ("11111111", ("", 255)),
        ("1", ("1", 0)),
        ("ééééé", ("ééééé", 0)),
        ("é10000000", ("é", 128)),
        (None, ("", 0)),
    ],
)
def test_the_last_digits_of_a_uuid_are_the_row_in_its_batch(
    uuid: str | None, parts: tuple[str, int]
) -> None:
    row = rows_of("salesforce", [change(1, uuid=uuid)]).to_pylist()[0]
    assert (row["read_batch"], row["counter"]) == parts


@pytest.mark.clause("ST-367")
def test_digits_of_another_uuid_are_not_those_of_one() -> None:
    events = [change(1, uuid=uuid) for uuid in ("10000000", "1111111", "", "1", "a00000011")]
    found = [
        (row["read_batch"], row["counter"]) for row in rows_of("salesforce", events).to_pylist()
    ]
    assert found == [("", 128), ("1111111", 0), ("", 0), ("1", 0), ("a", 3)]


UNREADABLE = [
    ("mysql", {"log_file": None, "log_position": 4}),
    ("mysql", {"log_file": "", "log_position": 4}),
    ("mysql", {"log_file": "a.1", "log_position": None}),
    ("mysql", {"log_file": "a.1", "log_position": -1}),
    ("mysql", {"log_file": "a." + "9" * 20, "log_position": 1}),
    ("oracle", {"rs_id": "", "ssn": 0}),
    ("oracle", {"rs_id": "0x1.1", "ssn": 0}),
    ("oracle", {"rs_id": "0x1.1.1"}),
    ("postgresql", {"lsn": None}),
    ("postgresql", {"lsn": "16"}),
    ("postgresql", {"lsn": "G/0"}),
    ("postgresql", {"lsn": f"1{'0' * 16}/0"}),
    ("sqlserver", {"lsn": "1:2"}),
    ("salesforce", {"source_timestamp": None}),
    ("salesforce", {"source_timestamp": -1}),
    ("oracle", {"scn": 7, "rs_id": "000155.00000ccc.0010", "ssn": 0}),
    ("mongodb", {"sort_keys": ["1"]}),
    ("mongodb", {"sort_keys": None}),
    ("mongodb", {"sort_keys": ["x", "1"]}),
]


@pytest.mark.clause("ST-211")
@pytest.mark.parametrize(("source", "metadata"), UNREADABLE)
def test_a_change_without_a_position_is_not_ordered(source: str, metadata: Event) -> None:
    event = change(1) | metadata
    columns = [pa.array([event.get(f.name)], f.type) for f in METADATA]
    no, content = np.zeros(1, bool), np.zeros(1, np.uint64)
    events = pa.table(columns, schema=METADATA)
    for backfill in (no, ~no):  # which needs none
        found = records(RULES[source], events, backfill=backfill, deletion=no, content=content)
        timed = metadata.get("source_timestamp", 0) is not None
        assert found.readable.tolist() == [bool(backfill[0]) and timed]


def test_columns_of_metadata_that_are_missing_are_null() -> None:
    events = pa.table(
        {
            "uuid": pa.array(["u"]),
            "source_timestamp": pa.array([5]),
            "read_timestamp": pa.array([5]),
            "scn": pa.array(["15869116216871"]),  # a number that is printed as a text (ST-028)
        }
    )
    flags = {"backfill": np.zeros(1, bool), "deletion": np.zeros(1, bool)}
    for source, readable in (("oracle", True), ("mysql", False), ("mongodb", False)):
        found = records(RULES[source], events, **flags, content=np.zeros(1, np.uint64))
        assert found.readable.tolist() == [readable]
