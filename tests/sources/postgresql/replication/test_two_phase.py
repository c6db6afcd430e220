"""Slots that send transactions when they are prepared, as SQL makes them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psycopg
import pytest

from mirrorlake.errors import SourceGap
from mirrorlake.model.position import Lsn
from tests.conformance.scene import Event, Reader, events, streaming, until
from tests.profiles import tries
from tests.sources.postgresql.captured import BEGINNING, Captured

pytestmark = pytest.mark.postgres

APPLES = "create table apples (id int primary key, note text)"


def begin_two_phase(captured: Captured, *statements: str) -> None:
    captured.begin(*statements)
    slot = captured.settings.slot
    captured.run(
        f"select pg_drop_replication_slot('{slot}')",
        f"select pg_create_logical_replication_slot('{slot}', 'pgoutput', false, true)",
    )


def prepare(captured: Captured, gid: str, *statements: str) -> None:
    with psycopg.connect(captured.database.url, autocommit=True) as writer:
        for statement in ["begin", *statements, f"prepare transaction '{gid}'"]:
            writer.execute(statement)


@contextmanager
def reading(captured: Captured, since: Lsn, *, in_progress: bool = True) -> Iterator[Reader]:
    source = captured.source(streaming=in_progress)
    with streaming(source, captured.tables, since) as reader:
        yield reader


def ids(found: Sequence[Event]) -> list[int]:
    return [event.row["id"] for event in found]


def read(captured: Captured, since: Lsn, *, acknowledged: bool) -> tuple[list[int], Lsn]:
    """What a process lands that goes on behind `since`, and where it stands then. acknowledged: it
    does not end before it says so."""
    target = captured.source().current()
    with reading(captured, since) as reader:
        reader.stream.acknowledge(since)
        chunks = reader.read_to(target)
        if acknowledged:
            reader.stream.acknowledge(target)
    assert isinstance(target, Lsn)
    return ids(events(chunks)), target


def test_messages_of_others_in_prepared_transactions_change_nothing(
    any_captured: Captured,
) -> None:
    captured, name = any_captured, any_captured.database.name
    begin_two_phase(captured, APPLES)
    message = "select pg_logical_emit_message({}, 'other', repeat('x', 100000))"
    prepare(captured, f"{name} 1", message.format("true"), "insert into apples values (1)")
    prepare(captured, f"{name} 2", message.format("true"), message.format("false"))
    captured.run(f"commit prepared '{name} 2'", message.format("false"))
    found, since = read(captured, BEGINNING, acknowledged=True)
    assert found == []
    captured.run(f"commit prepared '{name} 1'", "insert into apples values (2)")
    assert read(captured, since, acknowledged=True)[0] == [1, 2]


@pytest.mark.parametrize("acknowledged", [True, False])
def test_a_prepared_transaction_survives_restarts(
    any_captured: Captured, acknowledged: bool
) -> None:
    captured, name = any_captured, any_captured.database.name
    begin_two_phase(captured, APPLES)
    since = BEGINNING
    prepare(captured, f"{name} 1", "insert into apples values (1)")
    prepare(captured, f"{name} 2", "insert into apples values (2)")
    for number in (11, 12, 13):
        captured.run(f"insert into apples values ({number})")
        found, since = read(captured, since, acknowledged=acknowledged)
        assert found == [number]
    captured.run(f"commit prepared '{name} 1'", f"rollback prepared '{name} 2'")
    assert read(captured, since, acknowledged=False)[0] == [1]  # it ends, and nothing is durable
    captured.run("insert into apples values (14)")
    found, since = read(captured, since, acknowledged=acknowledged)
    assert found == [1, 14]
    captured.run("insert into apples values (15)")
    assert read(captured, since, acknowledged=acknowledged)[0] == [15]


def test_the_server_may_forget_a_prepared_transaction_when_its_commit_is_durable(
    captured: Captured,
) -> None:
    begin_two_phase(captured, APPLES)
    name, slot = captured.database.name, captured.settings.slot
    confirmed = (
        f"select confirmed_flush_lsn::text from pg_replication_slots where slot_name = '{slot}'"
    )

    def remembered() -> Lsn:
        ((text,),) = captured.database.sql.execute(confirmed).fetchall()
        return Lsn.parse(text)

    _found, since = read(captured, BEGINNING, acknowledged=True)
    before = captured.source().current()
    prepare(captured, name, "insert into apples values (1)")
    captured.run("insert into apples values (2)")
    _found, since = read(captured, since, acknowledged=True)
    assert remembered() <= since
    prepared = remembered()
    captured.run(f"commit prepared '{name}'")
    _found, since = read(captured, since, acknowledged=True)
    assert isinstance(before, Lsn)
    assert before <= prepared < since
    until(lambda: remembered() == since)


def test_a_reader_that_took_a_prepared_transaction_leaves_a_gap(captured: Captured) -> None:
    begin_two_phase(captured, APPLES)
    name, slot = captured.database.name, captured.settings.slot
    prepare(captured, name, "insert into apples values (1)")
    captured.run(
        "select count(*) from pg_logical_slot_get_binary_changes("
        f"'{slot}', null, null, 'proto_version', '3', "
        f"'publication_names', '{captured.settings.publication}')",
        f"commit prepared '{name}'",
    )
    with pytest.raises(SourceGap, match=name):
        read(captured, BEGINNING, acknowledged=False)


def test_a_transaction_that_alters_a_table_is_prepared(captured: Captured) -> None:
    begin_two_phase(captured, APPLES)
    name = captured.database.name
    captured.run("insert into apples values (1, 'a')")
    prepare(
        captured,
        f"{name} 1",
        "alter table apples add column size int",
        "insert into apples values (2, 'b', 3)",
    )
    captured.run(f"rollback prepared '{name} 1'", "insert into apples values (4, 'd')")
    prepare(
        captured,
        f"{name} 2",
        "alter table apples add column weight int",
        "insert into apples values (5, 'e', 6)",
    )
    captured.run(f"commit prepared '{name} 2'", "insert into apples values (7, 'g', 8)")
    with reading(captured, BEGINNING) as reader:
        found = events(reader.read_to(captured.source().current()))
    assert [list(event.row.values()) for event in found] == [
        [1, "a"],
        [4, "d"],
        [5, "e", 6],
        [7, "g", 8],
    ]


@pytest.mark.full
@pytest.mark.parametrize("seed", range(tries(8)))
def test_random_prepared_transactions_and_restarts_lose_and_repeat_nothing(
    captured: Captured, seed: int
) -> None:
    """A reader ends at any time, having made durable and acknowledged what it happened to."""
    name, chance = captured.database.name, random.Random(seed)
    at_once = "debug_logical_replication_streaming"
    if seed % 2:
        captured.run(f"alter database {name} set {at_once} = 'immediate'")
    begin_two_phase(captured, APPLES, "create table pears (id int primary key, note text)")
    durable: list[Event] = []
    since, pending = BEGINNING, []
    for number in range(60):
        insert = f"insert into {chance.choice(['apples', 'pears'])} values ({number})"
        match chance.randrange(6):
            case 0 | 1:
                gid = f"{name} {number}"
                undone = ["savepoint s", insert, "rollback to s"] if chance.random() < 0.5 else []
                prepare(captured, gid, *undone, insert)
                pending.append(gid)
            case 2 if pending:
                gone = pending.pop(chance.randrange(len(pending)))
                captured.run(f"{chance.choice(['commit', 'commit', 'rollback'])} prepared '{gone}'")
            case 3:
                captured.run(insert)
            case 4:
                landed, since = _some(captured, since, chance)
                durable += landed
        if len(pending) > 5:
            captured.run(f"commit prepared '{pending.pop(0)}'")
    for gid in pending:
        captured.run(f"commit prepared '{gid}'")
    with reading(captured, since) as reader:
        durable += events(reader.read_to(captured.source().current()))
    keys = captured.database.sql.execute("select id from apples union all select id from pears")
    assert sorted(ids(durable)) == sorted(key for (key,) in keys)
    ends = [event.end for event in durable]
    assert ends == sorted(ends, key=str)


def _some(captured: Captured, since: Lsn, chance: random.Random) -> tuple[list[Event], Lsn]:
    """A reader that lands some of the transactions that there are, and ends."""
    source = captured.source(streaming=chance.random() < 0.5)
    target = source.current()
    with streaming(source, captured.tables, since) as reader:
        reader.stream.acknowledge(since)
        found = events(reader.read_to(target))
        ends = sorted({event.end.value for event in found if isinstance(event.end, Lsn)})
        landed = Lsn(chance.choice(ends)) if ends and chance.random() < 0.7 else since
        if chance.random() < 0.3:
            assert isinstance(target, Lsn)
            landed = target
        if chance.random() < 0.7:
            reader.stream.acknowledge(landed)
    captured.close()
    return [e for e in found if isinstance(e.end, Lsn) and e.end <= landed], max(since, landed)
