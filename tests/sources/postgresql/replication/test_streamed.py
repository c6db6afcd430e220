"""Transactions that a server streams while they are in progress, as SQL makes them."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
import structlog
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from mirrorlake.errors import SourceUnavailable, StorageUnavailable
from mirrorlake.model.change import Marker
from mirrorlake.sources.base import ChangeStream
from mirrorlake.sources.chunk import Chunk
from mirrorlake.sources.postgresql.replication import stream as module
from tests.conformance.scene import (
    TRUNCATE,
    Event,
    Reader,
    differing,
    events,
    faults,
    reached,
    streaming,
    until,
)
from tests.profiles import tries
from tests.sources.postgresql.captured import BEGINNING, Captured

pytestmark = pytest.mark.postgres

APPLES = "create table apples (id int primary key, note text)"
MANY = "insert into apples select g, repeat('x', 100) from generate_series({}, {}) g"


def stream_early(captured: Captured) -> None:
    """Let the server stream transactions that are small; every change at once, where it can."""
    name, version = captured.database.name, captured.database.server.version
    captured.run(f"alter database {name} set logical_decoding_work_mem = '64kB'")
    if version >= 16:
        at_once = "debug_logical_replication_streaming"
        captured.run(f"alter database {name} set {at_once} = 'immediate'")


def read(captured: Captured, *, in_progress: bool, **more: Any) -> list[Chunk]:
    source = captured.source(streaming=in_progress, **more)
    target = source.current()
    with streaming(source, captured.tables, BEGINNING) as reader:
        return reader.read_to(target)


def ids(found: Sequence[Event]) -> list[int]:
    return [event.row["id"] for event in found]


def connected(captured: Captured, stack: ExitStack) -> psycopg.Connection:
    return stack.enter_context(psycopg.connect(captured.database.url, autocommit=True))


def received(stream: Any) -> int:
    """How many bytes of transactions in progress have come."""
    return sum(t.spool.end for t in stream._in_progress._transactions.values())


def read_until(reader: Reader, begun: Any) -> None:
    for _ in range(200):
        if begun(reader.stream):
            return
        reader.chunks += filter(None, [reader.stream.read(0.1)])
    raise AssertionError("it never came")


def test_messages_of_others_in_a_transaction_in_progress_change_nothing(
    any_captured: Captured,
) -> None:
    captured = any_captured
    captured.begin(APPLES)
    stream_early(captured)
    message = "select pg_logical_emit_message({}, 'other', repeat('x', 100000))"
    with captured.database.sql.transaction():
        captured.run(message.format("true"), MANY.format(1, 2_000), message.format("true"))
        captured.run("savepoint a", message.format("true"), MANY.format(5_001, 5_010))
        captured.run("rollback to savepoint a", message.format("false"), MANY.format(2_001, 2_002))
    with captured.database.sql.transaction():
        captured.run(message.format("true"))
    captured.run(MANY.format(3_001, 3_001))
    found = events(read(captured, in_progress=True))
    assert ids(found) == [*range(1, 2_003), 3_001]


def test_a_transaction_comes_while_it_is_in_progress_and_counts_at_its_commit(
    any_captured: Captured,
) -> None:
    captured = any_captured
    captured.begin(APPLES)
    stream_early(captured)
    source = captured.source(streaming=True)
    with ExitStack() as stack:
        long, other = connected(captured, stack), connected(captured, stack)
        reader = stack.enter_context(streaming(source, captured.tables, BEGINNING))
        long.execute("begin")
        long.execute(MANY.format(1, 3_000))
        long.execute("savepoint one")
        long.execute(MANY.format(3_001, 6_000))
        other.execute("insert into apples values (10001)")
        read_until(reader, lambda stream: received(stream) > 600_000)
        long.execute("rollback to one")
        other.execute("begin")
        other.execute(MANY.format(20_001, 23_000))
        other.execute("rollback")
        long.execute("insert into apples values (3_001)".replace("_", ""))
        reader.read_to(source.current())
        assert ids(events(reader.chunks)) == [10_001]
        long.execute("commit")
        reader.read_to(source.current())
        found = events(reader.chunks)
        assert received(reader.stream) == 0
    assert ids(found) == [10_001, *range(1, 3_002)]
    assert found == events(read(captured, in_progress=False))


def test_what_was_acknowledged_meanwhile_takes_nothing_from_a_transaction_in_progress(
    captured: Captured,
) -> None:
    captured.begin(APPLES)
    stream_early(captured)
    with ExitStack() as stack:
        long = connected(captured, stack)
        long.execute("begin")
        for number in range(3):  # a reader that ends each time, as in a crash
            long.execute(MANY.format(number * 1_000 + 1, number * 1_000 + 1_000))
            captured.run(f"insert into apples values ({10_000 + number})")
            source = captured.source(streaming=True)
            with streaming(source, captured.tables, BEGINNING) as reader:
                chunks = reader.read_to(source.current())
                assert ids(events(chunks)) == [10_000 + number]
                assert received(reader.stream) > 100_000 * (number + 1)
                reader.stream.acknowledge(source.current())
        long.execute("commit")
    assert ids(events(read(captured, in_progress=True))) == list(range(1, 3_001))


def test_a_large_transaction_is_handed_on_in_chunks_of_bounded_size(captured: Captured) -> None:
    captured.begin(APPLES)
    stream_early(captured)
    captured.run(MANY.format(1, 3_000), "insert into apples values (3001)")
    chunks = read(captured, in_progress=True, chunk_bytes=20_000)
    assert max(chunk.size for chunk in chunks) < 21_000
    assert [chunk.idle for chunk in chunks if chunk.transactions.is_open] == [None] * sum(
        chunk.transactions.is_open for chunk in chunks
    )
    assert ids(events(chunks)) == list(range(1, 3_002))


def test_what_has_not_room_in_memory_waits_in_files_that_nobody_sees(
    captured: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(module, "_MEMORY_BYTES", 50_000)
    captured.begin(APPLES)
    stream_early(captured)
    source = captured.source(streaming=True)
    with ExitStack() as stack:
        writers = [connected(captured, stack) for _ in range(3)]
        reader = stack.enter_context(streaming(source, captured.tables, BEGINNING))
        for number, writer in enumerate(writers):
            writer.execute("begin")
            writer.execute(MANY.format(number * 1_000 + 1, number * 1_000 + 1_000))
        read_until(reader, lambda stream: received(stream) > 350_000)
        kept = reader.stream._in_progress._transactions.values()  # type: ignore[attr-defined]
        assert sum(transaction.spool.in_memory for transaction in kept) <= 50_000
        assert list(tmp_path.iterdir()) == []
        for writer in reversed(writers):
            writer.execute("commit")
        found = events(reader.read_to(source.current()))
    assert ids(found) == [*range(2_001, 3_001), *range(1_001, 2_001), *range(1, 1_001)]


def test_a_full_folder_for_files_stops_and_loses_nothing(
    captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured.begin(APPLES)
    stream_early(captured)
    captured.run("insert into apples values (0)", MANY.format(1, 1_000))
    with Path("/dev/full").open("r+b", buffering=0) as full, monkeypatch.context() as patch:
        patch.setattr(tempfile, "TemporaryFile", lambda **_: full)
        patch.setattr(module, "_MEMORY_BYTES", 50_000)
        with pytest.raises(StorageUnavailable, match="TMPDIR"):
            read(captured, in_progress=True)
    assert ids(events(read(captured, in_progress=True))) == list(range(1_001))


def read_what_was_received(stream: ChangeStream) -> None:
    """Read until the connection is found to be cut, or for 10 s."""
    for _second in range(10):
        stream.read(1.0)


@pytest.mark.full
def test_what_a_server_cannot_stream_comes_without_streaming(any_captured: Captured) -> None:
    """It fails where an alteration was streamed and rolled back, and another follows."""
    captured = any_captured
    captured.begin(APPLES.replace("note text", "note text, v int"))
    stream_early(captured)
    source = captured.source(streaming=True)
    retype = "alter table apples alter column v type {}"
    with ExitStack() as stack:
        long, other = connected(captured, stack), connected(captured, stack)
        reader = stack.enter_context(streaming(source, captured.tables, BEGINNING))
        logs = stack.enter_context(structlog.testing.capture_logs())
        other.execute("insert into apples values (0)")
        long.execute("begin")
        for statement in [
            MANY.format(1, 1_500),
            "savepoint one",
            retype.format("bigint"),
            MANY.format(1_501, 3_000),
            "rollback to one",
            MANY.format(3_001, 4_500),
            retype.format("smallint"),
            MANY.format(4_501, 6_000),
        ]:
            long.execute(statement)
            reader.chunks += filter(None, [reader.stream.read(0.3)])
        long.execute("commit")
        other.execute("insert into apples values (10000)")
        reader.read_to(source.current())
        assert not faults(reader.chunks)
        found = events(reader.chunks)
        source._opened.cut()  # as when the server is silent
        with pytest.raises(SourceUnavailable):
            read_what_was_received(reader.stream)
    assert ids(found) == [0, *range(1, 1_501), *range(3_001, 6_001), 10_000]
    assert found == events(read(captured, in_progress=False))
    (told,) = [line for line in logs if line["event"] == module.STREAMING_OFF]
    assert told["reason"].startswith("ERROR")


def test_what_came_before_a_stream_has_ended_is_acknowledged(any_captured: Captured) -> None:
    """The server fails behind changes that are read together with the end of the stream."""
    captured = any_captured
    captured.begin(APPLES.replace("note text", "note text, v int"))
    stream_early(captured)
    source = captured.source(streaming=True)
    retype = "alter table apples alter column v type {}"
    with streaming(source, captured.tables, BEGINNING) as reader:
        captured.run(
            "insert into apples values (0)",
            f"""begin; {MANY.format(1, 1_500)}; savepoint one; {retype.format("bigint")};
            {MANY.format(1_501, 3_000)}; rollback to one; {MANY.format(3_001, 4_500)};
            {retype.format("smallint")}; {MANY.format(4_501, 6_000)}; commit""",
        )
        target = source.current()

        def has_come() -> bool:
            chunk = reader.stream.read(0.2)
            points = reached(chunk) if chunk else []
            reader.chunks += [chunk] if chunk else []
            for point in points:
                reader.stream.acknowledge(point)
            return any(point.covers(target) for point in points)

        until(has_come)
    assert ids(events(reader.chunks)) == [0, *range(1, 1_501), *range(3_001, 6_001)]


SESSIONS = 3
KINDS = (
    *("insert", "insert many", "update", "delete", "rekey"),
    *("savepoint", "rollback to", "release", "commit", "rollback"),
    *("alter", "drop", "retype", "truncate", "shared"),
)
STEPS = st.lists(
    st.tuples(st.integers(0, SESSIONS - 1), st.sampled_from(KINDS), st.integers(0, 9)),
    min_size=5,
    max_size=40,
)


class Session:
    """One of several that write at the same time, each to keys and a table of its own, so that none
    waits for another."""

    def __init__(self, number: int, connection: psycopg.Connection) -> None:
        self._number, self._connection = number, connection
        self._key = number * 1_000_000
        self._added = 0
        self.end()

    def end(self, how: str = "commit") -> None:
        self._connection.execute(how)
        self._depth, self._columns = 0, [self._added]

    def act(self, kind: str, value: int) -> None:
        if kind in {"commit", "rollback"}:
            self.end(kind)
            return
        self._run("begin" if self._connection.info.transaction_status == 0 else "select 1")
        mine = f"t{self._number}"
        match kind:
            case "insert" | "insert many" | "shared":
                count = 700 if kind == "insert many" else 2
                into = "shared" if kind == "shared" else mine
                self._run(
                    f"insert into {into} (id, note) select g, repeat('x', 100) "
                    f"from generate_series({self._key + 1}, {self._key + count}) g"
                )
                self._key += count
            case "update":
                self._run(f"update {mine} set note = 'n{value}' where id % 10 = {value}")
            case "rekey":
                self._key += 1
                self._run(
                    f"update {mine} set id = {self._key} where id = (select min(id) from {mine})"
                )
            case "delete":
                self._run(f"delete from {mine} where id % 10 = {value}")
            case "savepoint":
                self._depth += 1
                self._run(f"savepoint s{self._depth}")
            case "rollback to" | "release" if self._depth:
                to = 1 + value % self._depth
                self._run(f"{kind} s{to}")
                self._depth = to - (kind == "release")
            case "alter":
                self._added += 1
                self._run(f"alter table {mine} add column c{self._added} int")
            case "retype":
                self._run(
                    f"alter table {mine} alter v type {('smallint', 'int', 'bigint')[value % 3]}"
                )
            case "drop":
                self._run(f"alter table {mine} drop column if exists c{self._added}")
            case "truncate":
                self._run(f"truncate {mine}")

    def _run(self, statement: str) -> None:
        self._connection.execute(statement)


def applied(found: Sequence[Event]) -> dict[tuple[str, int], str | None]:
    """The notes of all rows, by table and key."""
    rows: dict[tuple[str, int], Any] = {}
    for event in found:
        key = event.table, event.row.get("id", 0)
        if event.kind is TRUNCATE:
            rows = {k: v for k, v in rows.items() if k[0] != event.table}
        elif event.kind is Marker.DELETE:
            del rows[key]
        else:
            rows[key] = event.row["note"]
    return rows


def stopped(chunks: Sequence[Chunk]) -> set[tuple[str, str]]:
    """Tables that are lost, and those that have to be read again."""
    lost = {(str(part.table), part.error.code) for part in faults(chunks)}
    return lost | {(str(part.table), "differs") for part in differing(chunks)}


@pytest.mark.full
def test_random_transactions_in_turn_come_alike_streamed_or_whole(captured: Captured) -> None:
    tables = [f"t{n}" for n in range(SESSIONS)]
    stream_early(captured)

    @settings(
        max_examples=tries(60),
        suppress_health_check=list(HealthCheck),
        phases=(Phase.explicit, Phase.generate),  # an example takes a slot of its own
    )
    @given(STEPS, st.integers(0, 2**32))
    def all_come_alike(steps: Sequence[tuple[int, str, int]], seed: int) -> None:
        captured.run(*(f"drop table if exists {name}" for name in [*tables, "shared"]))
        captured.run(f"drop publication if exists {captured.settings.publication}")
        captured.begin(
            *(
                f"create table {t} (id int primary key, note text, v int)"
                for t in [*tables, "shared"]
            )
        )
        chance = random.Random(seed)
        with ExitStack() as stack:
            sessions = [Session(n, connected(captured, stack)) for n in range(SESSIONS)]
            source = captured.source(streaming=True)
            reader = stack.enter_context(streaming(source, captured.tables, BEGINNING))
            for number, kind, value in steps:
                sessions[number].act(kind, value)
                if chance.random() < 0.2:
                    reader.chunks += filter(None, [reader.stream.read(0.01)])
            for session in sessions:
                session.end()
            reader.read_to(source.current())
            chunks = reader.chunks
        captured.close()
        whole = read(captured, in_progress=False)
        streamed = read(captured, in_progress=True)
        for found in (chunks, streamed):
            assert events(found) == events(whole)
        for found in (chunks, streamed):
            assert stopped(found) == stopped(whole)
        if not faults(whole):
            assert applied(events(streamed)) == {
                (name, key): note
                for name in [*tables, "shared"]
                for key, note in captured.database.sql.execute(f"select id, note from {name}")
            }

    all_come_alike()
