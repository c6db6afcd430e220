"""Changes into event files, however the stream is cut into chunks and wherever it is killed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrorlake import root
from mirrorlake.capture.events.load import described
from mirrorlake.capture.events.settings import EventsSettings
from mirrorlake.capture.events.state import EventState, milliseconds
from mirrorlake.capture.events.writer import EventsWriter
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.sink import BackfillRows
from mirrorlake.errors import TableError, TableTruncated
from mirrorlake.model.arrow import arrow_schema
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.model.keys import KeyRange
from mirrorlake.model.landed import BackfillChunk
from mirrorlake.model.position import Lsn
from mirrorlake.model.table import TableId
from mirrorlake.sources.base import Source
from mirrorlake.sources.table import SourceTable
from tests.capture.streams import (
    ID,
    NARROW,
    START,
    Event,
    Transaction,
    chunks,
    inserts,
    source_table,
    streams,
)
from tests.doubles.clock import SteppedClock
from tests.doubles.memory_store import MemoryStore
from tests.events.values import decoded
from tests.profiles import tries

POINTS = (CrashPoint.EVENTS_ASSIGNED, CrashPoint.EVENTS_WRITTEN_ONE, CrashPoint.CUT_WRITTEN)
ONE_OBJECT = [replace(source_table("note"), table=TableId("shop_a", "b"))]
"""Its object has the name of another: `shop_a_b`."""
LOADED = [NARROW, replace(NARROW, table=TableId("shop", "a_b")), *ONE_OBJECT]
WORDS = {0: "INSERT", 1: "UPDATE", 2: "DELETE", None: "TRUNCATE"}


class Killed(Exception):
    """The process ends here."""


@dataclass(frozen=True)
class Rereading:
    """What a writer asks a source for: every row is there, with its own number as its texts,
    `times` times, but for those that are gone."""

    gone: frozenset[int] = frozenset()
    times: int = 1

    parse_point = staticmethod(Lsn.parse)

    def reread(self, table: SourceTable, keys: pa.Table) -> pa.Table:
        keys = keys.filter(pa.array([key not in self.gone for key in keys["id"].to_pylist()]))
        texts = pc.binary_repeat(keys["id"].cast(pa.string()), self.times)
        columns = [keys["id"], *[texts] * (len(table.schema) - 1)]
        return pa.table(columns, schema=arrow_schema(table.schema))


@dataclass
class Written:
    """A destination and the records of its stream, as processes leave them to each other."""

    store: MemoryStore
    records: Records
    lost: list[TableError]

    def writer(
        self,
        killed_at: int | None = None,
        rereading: Rereading = Rereading(),
        *,
        truncations: bool = False,
    ) -> EventsWriter:
        """A process that has begun. killed_at: after so many points."""
        left = [killed_at]

        def reached(point: CrashPoint) -> None:
            assert point in POINTS
            if left[0] is not None:
                left[0] -= 1
                if left[0] < 0:
                    raise Killed

        def lost(table: TableId, error: TableError) -> None:
            self.lost.append(error)
            writer.stop(table, error)

        state = EventState.read(self.records, "there")
        source: Source = rereading  # type: ignore[assignment]
        position = Lsn.parse(state.position) if state.position else Lsn(0)
        writer = EventsWriter(
            source,
            self.records,
            state,
            [(table, Lsn(0)) for table in LOADED],
            position,
            EventsSettings("s", Path("there"), rotation_bytes=1_000, truncations=truncations),
            self.store,
            SteppedClock(),
            lost,
            reached,
        )
        return writer

    def files(self) -> dict[str, bytes]:
        return {
            path: file.content
            for path, file in self.store.files.content.items()
            if path.startswith("shop_")
        }

    def events(self) -> list[dict[str, Any]]:
        return [event for content in self.files().values() for event in decoded(content)]


def destination() -> Written:
    store = MemoryStore(SteppedClock())
    records = Records(store, root.LANDING)
    begun = {str(table.table): described(table, "0/0") for table in LOADED}
    EventState("there", 1, tables=begun).write(records)
    return Written(store, records, [])


def process(
    written: Written,
    stream: list[Transaction],
    stops: set[int],
    rolls: set[int],
    killed_at: int | None,
    rereading: Rereading = Rereading(),
    *,
    truncations: bool = False,
    backwards: bool = False,
) -> None:
    """Read the stream from where everything is durable, as capture does. backwards: the parts of
    the second table are the first in each chunk."""
    writer = written.writer(killed_at, rereading, truncations=truncations)
    since = writer.durable
    left = [one for one in stream if not since.covers(one.end)]
    point: Any = since
    for number, chunk in enumerate(chunks(left, stops)):
        parts = sorted(chunk.parts, key=lambda part: part.table.table == ID) if backwards else None
        writer.take(replace(chunk, parts=parts or chunk.parts), 0.0)
        for reached in chunk.reached():
            point = point.join(reached)
        if number in rolls:
            writer.roll(0.0)
            writer.cut(point, None)
    writer.roll(0.0)
    writer.cut(point, None)
    assert writer.durable.covers(point)


def told(event: dict[str, Any]) -> tuple[str, str, str | None]:
    """What happened, where in the log, and the key, of which a truncation has none."""
    metadata, key = event["source_metadata"], event["payload"]["id"]
    assert metadata["is_deleted"] == (metadata["change_type"] in {"DELETE", "TRUNCATE"})
    return metadata["change_type"], metadata["lsn"], key


cuts = st.sets(st.integers(1, 30), max_size=8)


@pytest.mark.full
@pytest.mark.clause("ST-041", "ST-167", "ST-172", "ST-222", "ST-235", "ST-256")
@settings(max_examples=tries(300))
@given(
    stream=streams(),
    runs=st.lists(st.tuples(cuts, cuts, st.integers(0, 12)), max_size=3),
    last=st.tuples(cuts, cuts),
)
def test_every_change_is_one_event_however_it_is_cut_and_wherever_it_is_killed(
    stream: list[Transaction],
    runs: list[tuple[set[int], set[int], int]],
    last: tuple[set[int], set[int]],
) -> None:
    written = destination()
    for stops, rolls, killed_at in runs:
        before = written.files()
        with suppress(Killed):
            process(written, stream, stops, rolls, killed_at, truncations=True)
        assert before.items() <= written.files().items()
    before = written.files()
    process(written, stream, *last, None, truncations=True)
    assert before.items() <= written.files().items()
    expected = [
        (WORDS[e.marker], f"0/{e.value:X}", None if e.marker is None else str(e.value))
        for one in stream
        for e in one.events
    ]
    events = written.events()
    assert sorted(map(told, events), key=repr) == sorted(expected, key=repr)
    assert len({event["uuid"] for event in events}) == len(events)
    assert all(event["payload"]["note"] == event["payload"]["id"] for event in events)
    assert written.lost == []


def divided(stream: list[Transaction], anew: int) -> list[Transaction]:
    """The changes in three tables, of which two are one object. anew: from which transaction on a
    table has other statistics, which a process learns at any time."""
    known: dict[tuple[int, int, bool], SourceTable] = {}

    def moved(event: Event, index: int) -> Event:
        number = event.value % len(LOADED)
        told = (number, len(event.table.schema), index >= anew)
        table = replace(event.table, table=LOADED[number].table, rows=int(told[2]))
        return replace(event, table=known.setdefault(told, table))

    return [
        replace(one, events=tuple(moved(event, index) for event in one.events))
        for index, one in enumerate(stream)
    ]


rereadings = st.builds(Rereading, st.frozensets(st.integers(1, 30)), st.sampled_from([1, 50]))


@pytest.mark.full
@pytest.mark.clause("ST-041", "ST-109", "ST-167")
@settings(max_examples=tries(300))
@given(
    stream=streams(),
    runs=st.lists(
        st.tuples(cuts, cuts, st.integers(0, 12), rereadings, st.booleans(), st.integers(0, 6)),
        min_size=1,
        max_size=3,
    ),
)
def test_no_event_comes_under_two_names_whatever_is_read_again(
    stream: list[Transaction],
    runs: list[tuple[set[int], set[int], int, Rereading, bool, int]],
) -> None:
    """Rows vanish and values grow between the processes, and a process tells the tables of a chunk
    in another order."""
    written, names = destination(), dict[str, str]()
    for number, (stops, rolls, killed_at, rereading, backwards, anew) in enumerate(runs, start=1):
        last = number == len(runs)
        with suppress(Killed):
            process(
                written,
                divided(stream, anew),
                stops,
                rolls,
                None if last else killed_at,
                rereading,
                truncations=True,
                backwards=backwards,
            )
        for path, content in written.files().items():
            for event in decoded(content):
                assert names.setdefault(event["uuid"], path) == path
    told = [event["source_metadata"] for event in written.events()]
    assert len({event["uuid"] for event in written.events()}) == len(told)
    sent = [event for one in stream for event in one.events if event.marker != 1]
    seen = [one["lsn"] for one in told if one["change_type"] != "UPDATE"]
    assert sorted(seen) == sorted(f"0/{event.value:X}" for event in sent)
    assert written.lost == []


@pytest.mark.full
@pytest.mark.clause("ST-041", "ST-193", "ST-222")
@settings(max_examples=tries(300))
@given(
    stream=streams(),
    seconds=st.lists(st.integers(0, 9), min_size=6, max_size=6),
    runs=st.lists(st.tuples(cuts, cuts, st.integers(0, 12)), max_size=3),
    last=st.tuples(cuts, cuts),
)
def test_times_are_in_the_order_of_the_log_when_the_clock_of_the_source_is_set_back(
    stream: list[Transaction],
    seconds: list[int],
    runs: list[tuple[set[int], set[int], int]],
    last: tuple[set[int], set[int]],
) -> None:
    """However often they come; and they are those of the source if it is never set back."""
    written, seen = destination(), dict[str, dict[str, Any]]()
    stream = [
        replace(one, seconds=at) for one, at in zip(divided(stream, 9), seconds, strict=False)
    ]
    for stops, rolls, killed_at in [*runs, (*last, None)]:
        with suppress(Killed):
            process(written, stream, stops, rolls, killed_at, truncations=True)
        for event in written.events():
            assert seen.setdefault(event["uuid"], event) == event
    times: dict[str, list[tuple[int, int]]] = {}
    for event in seen.values():
        metadata = event["source_metadata"]
        name = f"{metadata['schema']}.{metadata['table']}"
        place = int(metadata["lsn"].removeprefix("0/"), 16)
        times.setdefault(name, []).append((place, event["source_timestamp"]))
    for told in times.values():
        found = [time for _place, time in sorted(told)]
        assert found == sorted(found)
    clock = {e.value: one.time for one in stream for e in one.events}
    if seconds == sorted(seconds):
        for place, time in (one for told in times.values() for one in told):
            assert time == milliseconds(clock[place])


@pytest.mark.clause("ST-215", "ST-218")
def test_a_backfill_has_the_time_of_the_source_and_one_after_all_changes_before_it() -> None:
    written, early = destination(), START + timedelta(seconds=1)
    chunk = BackfillRows(
        NARROW,
        BackfillChunk("one", 1, KeyRange()),
        pa.table({}),
        Lsn(30),
        None,
        pa.table({"id": [1], "note": ["read"]}, schema=arrow_schema(NARROW.schema)),
        START + timedelta(seconds=40),
    )
    writer = written.writer()
    writer.take(next(chunks([inserts(10, 20, 1)])), 0.0)
    writer.roll(0.0)
    writer.backfill(chunk)  # its clock is at 40 s, and is then set back
    writer.backfill(replace(chunk, taken=early))
    again = written.writer()
    later = replace(inserts(20, 30, 2), seconds=2)
    again.take(next(chunks([later])), 0.0)
    again.roll(0.0)
    found = sorted(
        (event["source_timestamp"] - milliseconds(START), event["read_method"])
        for event in written.events()
    )
    assert found == [
        (20_000, "postgres-cdc-wal"),
        (40_000, "postgresql-backfill"),
        (40_001, "postgres-cdc-wal"),
        (40_001, "postgresql-backfill"),
    ]


@pytest.mark.clause("ST-041", "ST-109", "ST-167")
def test_names_stay_when_a_row_that_has_to_be_read_again_is_gone_after_a_crash() -> None:
    """The event of the first table drops out: the second keeps its name all the same."""
    other = LOADED[1]
    stream = [Transaction(Lsn(10), Lsn(15), (Event(1, 1, 1), Event(2, 0, 2, other)))]
    whole = destination()
    process(whole, stream, set(), set(), None)
    written = destination()
    with suppress(Killed):  # behind both files
        process(written, stream, set(), set(), 2)
    assert written.files() == whole.files()
    process(written, stream, set(), set(), None, Rereading(frozenset({1})))
    assert written.files() == whole.files()

    written = destination()
    with suppress(Killed):  # behind the first file
        process(written, stream, set(), set(), 1)
    process(written, stream, set(), set(), None, Rereading(frozenset({1})))
    assert written.files() == whole.files()

    # No crash: nothing of the first table was written, and the second has the name of before.
    written = destination()
    process(written, stream, set(), set(), None, Rereading(frozenset({1})))
    assert written.files().items() < whole.files().items()


def test_a_transaction_that_has_not_ended_is_no_event_yet() -> None:
    written = destination()
    begun, rest = list(chunks([inserts(10, 15, 1, 2)], {1}))
    writer = written.writer()
    writer.take(begun, 0.0)
    assert writer.due() is None
    writer.roll(0.0)
    assert written.events() == []
    writer.take(rest, 1.0)
    assert writer.due() == 1.0 + 60
    writer.roll(1.0)
    assert [event["payload"]["id"] for event in written.events()] == ["1", "2"]


@pytest.mark.clause("ST-171", "ST-174")
def test_files_close_when_they_are_old_or_large() -> None:
    writer = destination().writer()
    assert writer.due() is None
    (few,) = chunks([inserts(10, 15, 1)])
    writer.take(few, 5.0)
    assert writer.due() == 5.0 + 60
    (many,) = chunks([inserts(15, 20, *range(50))])
    writer.take(many, 6.0)
    assert writer.due() == float("-inf")


@pytest.mark.clause("ST-256")
def test_of_a_truncation_there_is_no_event_and_the_table_stops() -> None:
    written = destination()
    emptied = Transaction(Lsn(15), Lsn(20), (Event(1, None),))
    process(written, [inserts(10, 15, 1), emptied, inserts(20, 25, 2)], set(), set(), None)
    assert [type(error) for error in written.lost] == [TableTruncated]
    assert written.events() == []
    assert str(ID) not in EventState.read(written.records, "there").tables


@pytest.mark.clause("ST-304")
def test_the_oldest_event_that_waits_is_known_until_its_file_is_written() -> None:
    written = destination()
    stream = [inserts(0, 10, 1), inserts(10, 20, 2)]
    writer = written.writer()
    for chunk in chunks(stream, set()):
        writer.take(chunk, 0.0)
    ((name, tables),) = written.records.waiting_events().items()
    ((table, (committed, _read)),) = tables.items()
    assert (name, table) == ("there", str(ID))
    assert committed == int(stream[0].time.timestamp() * 1000)
    writer.roll(0.0)
    writer.cut(Lsn(20), None)
    assert written.records.waiting_events() == {"there": {}}
    latencies = EventState.read(written.records, "there").latencies
    assert sum(latencies.system.counts) == sum(latencies.total.counts) == 1
