"""When what was read is published: at once after a pause, together while changes keep coming."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime
from random import Random

import pytest

from mirrorlake import root
from mirrorlake.capture.capture import Capture
from mirrorlake.capture.landing.table_positions import TablePosition
from mirrorlake.capture.landing.writer import LandingWriter
from mirrorlake.capture.loop import CaptureLoop
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.records.stream import StreamRecord
from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.errors import LeaseLost, TableError
from mirrorlake.landing import layout, publish
from mirrorlake.landing.cuts import Cuts
from mirrorlake.model.position import LogPoint, Lsn
from mirrorlake.model.table import TableId
from mirrorlake.sources.chunk import Changes, Chunk
from mirrorlake.sources.memory.settings import MemorySettings
from mirrorlake.sources.memory.source import MemorySource
from mirrorlake.storage.lease import TERM
from tests.capture.landing import FOLDER, landed, landing_capture
from tests.capture.streams import ID, NARROW, chunks, inserts
from tests.doubles.clock import SteppedClock
from tests.doubles.memory_store import MemoryStore
from tests.sim.source import SimulatedDatabase

SETTINGS = CaptureSettings(roll_seconds=1.0, debounce_seconds=0.25)


class Due:
    """A stream whose chunks come at their moments; whoever waits for one moves the clock."""

    def __init__(self, clock: SteppedClock, moments: list[float]) -> None:
        self._clock, self.acknowledged = clock, list[LogPoint]()
        told = [inserts(10 * n, 10 * n + 5, n) for n, _moment in enumerate(moments, start=1)]
        self._due = deque(
            (moment, chunk)
            for moment, transaction in zip(moments, told, strict=True)
            for chunk in chunks([transaction])
        )

    def read(self, wait: float) -> Chunk | None:
        begun = self._clock.monotonic()
        if self._due and self._due[0][0] <= begun + wait:
            moment, chunk = self._due.popleft()
            self._clock.advance(max(moment - begun, 0.0))
            return chunk
        self._clock.advance(wait)
        return None

    def acknowledge(self, point: LogPoint) -> None:
        self.acknowledged.append(point)

    def close(self) -> None: ...


def never_lost(table: TableId, error: TableError) -> None:
    raise AssertionError((table, error))


def loop_of(
    stream: Due,
    store: MemoryStore,
    clock: SteppedClock,
    settings: CaptureSettings = SETTINGS,
    guard: Callable[[], None] = lambda: None,
) -> CaptureLoop:
    writer = LandingWriter(
        Records(store, root.LANDING),
        StreamRecord("stream", {}, "0/0"),
        Cuts(store, root.LANDING),
        [TablePosition(NARROW, FOLDER)],
        Lsn(0),
        settings,
        never_lost,
    )
    return CaptureLoop(stream, [writer], never_lost, settings.heartbeat_seconds, clock, guard=guard)


def published(moments: list[float], settings: CaptureSettings = SETTINGS) -> list[float]:
    """When a file appeared, if a change comes at each of these moments."""
    clock = SteppedClock()
    store = MemoryStore(clock)
    loop = loop_of(Due(clock, moments), store, clock, settings)
    seen: list[float] = []
    while clock.monotonic() < moments[-1] + 5:
        loop.step(0.05)
        seen += [clock.monotonic()] * (len(landed(store)) - len(seen))
    assert sum(len(file.changes) for file in landed(store)) == len(moments)
    return seen


def test_a_change_after_a_pause_waits_for_no_others() -> None:
    assert published([0.0, 7.0]) == pytest.approx([0.25, 7.25])


def test_changes_that_keep_coming_are_published_at_a_distance() -> None:
    assert published([n / 20 for n in range(60)]) == pytest.approx([0.25, 1.25, 2.25, 3.25])


def test_what_comes_right_after_a_publication_waits_no_longer_than_the_distance() -> None:
    assert published([0.0, 0.3]) == pytest.approx([0.25, 1.25])


def test_no_change_waits_longer_than_it_was_told_even_alone() -> None:
    hasty = replace(SETTINGS, roll_seconds=0.1)
    assert published([0.0, 7.0], hasty) == pytest.approx([0.1, 7.1])


def test_a_file_that_is_full_waits_for_nothing() -> None:
    full = replace(SETTINGS, roll_bytes=1)
    assert published([0.0, 0.1, 7.0], full) == pytest.approx([0.0, 0.1, 7.0])


class CountingWriter:
    """A `SinkWriter` that makes what it was told durable, once in a number of seconds."""

    def __init__(self, seconds: float) -> None:
        self.durable: LogPoint = Lsn(0)
        self.is_corrected = True
        self._seconds, self.rows, self._taken = seconds, list[int](), 0
        self._oldest: float | None = None

    def take(self, chunk: Chunk, now: float) -> None:
        self._taken += sum(len(part.marker) for part in chunk.parts if isinstance(part, Changes))
        self._oldest = now if self._oldest is None else self._oldest

    def due(self) -> float | None:
        return None if self._oldest is None else self._oldest + self._seconds

    def roll(self, now: float) -> None:
        self.rows.append(self._taken)
        self._taken, self._oldest = 0, None

    def cut(
        self, point: LogPoint, time: datetime | None, differing: Collection[TableId] = ()
    ) -> None:
        assert self._oldest is None
        self.durable = self.durable.join(point)

    def stop(self, table: TableId, error: TableError) -> None: ...

    def abandon(self) -> None: ...


def test_what_the_slowest_sink_has_cut_is_acknowledged() -> None:
    clock = SteppedClock()
    stream = Due(clock, [0.0, 1.0, 2.0])
    quick, slow = CountingWriter(0.1), CountingWriter(1.5)
    loop = CaptureLoop(stream, [quick, slow], never_lost, 10.0, clock)
    stream.acknowledged.clear()
    while clock.monotonic() < 5:
        loop.step(0.05)
    assert quick.rows == [1, 1, 1]
    assert slow.rows == [2, 1]
    first, last = stream.acknowledged
    assert (first, last) == (Lsn(25), Lsn(35))
    assert loop.position == quick.durable == slow.durable == last


def test_a_sink_in_which_nothing_waits_holds_nothing_up() -> None:
    class Deaf(CountingWriter):
        def take(self, chunk: Chunk, now: float) -> None: ...

    clock = SteppedClock()
    stream = Due(clock, [0.0])
    loop = CaptureLoop(stream, [CountingWriter(0.1), Deaf(0.1)], never_lost, 10.0, clock)
    while clock.monotonic() < 1:
        loop.step(0.05)
    assert stream.acknowledged[-1] == Lsn(15)


def insert(database: SimulatedDatabase) -> None:
    with database.memory.transaction() as write:
        write.insert(str(ID), id=1, note="a", text="b")


class Lost(Exception):
    """The right to write is another's."""


def go_on(stepping: CaptureLoop | Capture) -> None:
    for _ in range(60):
        stepping.step(0.05)


@pytest.mark.parametrize("since", [0.0, 0.1, 0.3, 0.9])
def test_nothing_is_published_or_acknowledged_once_the_right_to_write_is_lost(
    since: float,
) -> None:
    clock = SteppedClock()
    store, stream = MemoryStore(clock), Due(clock, [0.0, 0.5])

    def guard() -> None:
        if clock.monotonic() >= since:
            raise Lost

    loop = loop_of(stream, store, clock, guard=guard)
    stream.acknowledged.clear()  # what it tells at its start is no news
    with pytest.raises(Lost):
        go_on(loop)
    before = [moment for moment in (0.25, 1.25) if moment < since]
    assert len(landed(store)) == len(stream.acknowledged) == len(before)
    newest = Cuts(store, root.LANDING).newest()
    assert (newest.number if newest else 0) == len(before)


def test_an_idle_stream_checks_the_right_to_write_now_and_then() -> None:
    """Each check reads the lease, of ten idle streams too."""
    clock = SteppedClock()
    store, stream, checked = MemoryStore(clock), Due(clock, [0.5]), list[float]()
    loop = loop_of(stream, store, clock, guard=lambda: checked.append(clock.monotonic()))
    go_on(loop)
    go_on(loop)
    until, idle = clock.monotonic(), checked[-1]
    assert checked[0] >= 0.5  # not before there was something to write
    assert len([moment for moment in checked if moment < idle]) <= 3
    go_on(loop)
    go_on(loop)
    later = [moment for moment in checked if moment >= until]
    assert 1 <= len(later) <= 2


def test_a_capture_whose_lease_was_taken_publishes_nothing_more() -> None:
    clock = SteppedClock()
    store = MemoryStore(clock)
    database = SimulatedDatabase(clock, Random(1), [ID])
    captures = [
        landing_capture(database.source(), store, SETTINGS, clock, holder=holder)
        for holder in ("first", "second")
    ]
    captures[0].open()
    clock.advance(2 * TERM.total_seconds())  # it was suspended, and is taken for dead
    captures[1].open()
    insert(database)
    before = publish.newest_file(store, FOLDER)
    with pytest.raises(LeaseLost):
        go_on(captures[0])
    assert publish.newest_file(store, FOLDER) == before
    captures[1].once()
    assert publish.newest_file(store, FOLDER) != before


def test_what_an_earlier_process_has_named_is_durable_before_the_source_hears_of_it() -> None:
    """It may have been killed between the name of a file and the flush of its folder."""
    clock = SteppedClock()
    store = MemoryStore(clock)
    database = SimulatedDatabase(clock, Random(1), [ID])
    first = landing_capture(database.source(), store, SETTINGS, clock)
    first.open()
    insert(database)
    first.once()
    first.close()
    done: list[str] = []

    class Listening(MemorySource):
        def resume(self, since: LogPoint, former: Mapping[str, str]) -> None:
            done.append("resume")

    again = landing_capture(
        Listening(MemorySettings(database.memory)),
        store.reopened(lambda e: done.append(e.path) if e.done and e.name == "flush" else None),
        SETTINGS,
        clock,
    )
    again.open()
    zone, schema = root.LANDING, FOLDER.rpartition("/")[0]
    settled = [zone, f"{zone}/_mirrorlake", schema, f"{zone}/_mirrorlake/{layout.CUTS}", FOLDER]
    assert done == [*settled, "resume"]
