"""The capture loop: orders effects and does nothing else.

Order, on which "nothing lost, nothing twice" rests; a crash test stands behind every arrow:

    a chunk taken by every sink → rolled → cut → what all sinks have cut acknowledged to the source

The source forgets only what was acknowledged. What is durable in a sink and was not acknowledged
comes again, and the sink recognises it. By what the source recognises its tables is recorded before
the cut, together with its point: it counts from when the changes up to there are durable, and so is
neither ahead of what comes again nor behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime
from functools import reduce

from mirrorlake.capture.sink import Lost, SinkWriter
from mirrorlake.errors import TableError
from mirrorlake.model.clock import Clock
from mirrorlake.model.crash_points import CrashHook, CrashPoint, no_crash
from mirrorlake.model.position import LogPoint
from mirrorlake.model.table import TableId
from mirrorlake.sources.base import ChangeStream
from mirrorlake.sources.chunk import Changes, Chunk, Part, SchemaChange, TableDiffers, TableLost
from mirrorlake.sources.table import KnownTables

Know = Callable[[KnownTables, LogPoint], None]
"""Told by what tables are recognised at a point, before this is durable."""

Differs = Callable[[TableDiffers], None]
"""Told of a table that has to be read again, before anything beyond is taken."""

Refuses = Callable[[SchemaChange], TableError | None]
"""Why a table cannot go on after its columns have changed; None when it can."""


def common(points: Sequence[LogPoint]) -> LogPoint:
    """What all of the points cover."""
    return reduce(lambda one, other: one.meet(other), points)


class CaptureLoop:
    """Reads one stream into its sinks, and acknowledges what is durable in all of them.

    lost: told of a table that the source gives up. heartbeat_seconds: how often the sinks cut
    while nothing waits in them. guard: raises when we may not write any more; asked after each
    read, before anything is done about it. know, refuses, differs: as they say; a table that
    differs is lost where nobody reads it again. differing: those that are read again now. taken:
    told of each chunk that the sinks have taken. `position`: up to where everything is
    acknowledged.
    """

    def __init__(
        self,
        stream: ChangeStream,
        writers: Sequence[SinkWriter],
        lost: Lost,
        heartbeat_seconds: float,
        clock: Clock,
        reached: CrashHook = no_crash,
        guard: Callable[[], None] = lambda: None,
        know: Know = lambda _known, _point: None,
        refuses: Refuses = lambda _change: None,
        taken: Callable[[Chunk], None] = lambda _chunk: None,
        differs: Differs | None = None,
        differing: Callable[[], Collection[TableId]] = tuple,
    ) -> None:
        self._stream, self._writers, self._lost = stream, writers, lost
        self._heartbeat_seconds, self._clock = heartbeat_seconds, clock
        self._reached, self._guard, self._know = reached, guard, know
        self._refuses = refuses
        self._taken = taken
        self._differing = differing
        self._differs = differs or (lambda part: lost(part.table, part.error))
        self._known: KnownTables = {}  # not recorded yet
        self._is_open = False  # a transaction that has begun to come
        self.position = common([writer.durable for writer in writers])
        self._complete = self.position  # everything that ends here or before was read
        self._commit_time: datetime | None = None
        self._last_cut = clock.monotonic()
        # A crash may have come between the cut and this.
        stream.acknowledge(self.position)

    def step(self, wait: float) -> bool:
        """Read once, and write when it is time. Returns whether anything came."""
        chunk = self._stream.read(min(wait, self._until_due()))
        self._guard()
        if chunk is not None:
            self._take(chunk)
        now = self._clock.monotonic()
        dues = [(writer, writer.due()) for writer in self._writers]
        ready = [writer for writer, due in dues if due is not None and due <= now]
        idle = [writer for writer, due in dues if due is None]
        if ready:
            self._roll(ready, idle)
        elif len(idle) == len(self._writers) and self._heartbeat_is_due(now):
            self._roll([], idle)
        return chunk is not None

    def is_read_to(self, target: LogPoint) -> bool:
        """Whether everything that ends at or before `target` has been read."""
        return self._complete.covers(target)

    def roll(self) -> None:
        """Make everything that has ended durable in all sinks, and acknowledge it."""
        self._roll(self._writers, [])

    @property
    def complete(self) -> LogPoint:
        """Where the stream stands: everything that ends at or before it was read."""
        return self._complete

    @property
    def is_open(self) -> bool:
        """Whether a transaction has begun to come, and not ended."""
        return self._is_open

    def interleave(self, land: Callable[[LogPoint, datetime | None], None]) -> None:
        """Have something landed behind all that was read, while no transaction is open: it is told
        where the stream stands, and when the last transaction was committed."""
        assert not self._is_open
        self._guard()
        self._roll(self._writers, [], lambda: land(self._complete, self._commit_time))

    def abandon(self) -> None:
        """Forget what is not durable."""
        for writer in self._writers:
            writer.abandon()

    def _take(self, chunk: Chunk) -> None:
        for part in chunk.parts:
            if isinstance(part, TableLost):
                self._lost(part.table, part.error)
            elif isinstance(part, TableDiffers):
                self._differs(part)
            elif isinstance(part, SchemaChange) and (error := self._refuses(part)):
                self._lost(part.table.table, error)
        if differing := self._differing():
            parts = [_replacing(part, differing) for part in chunk.parts]
            chunk = replace(chunk, parts=parts)
        for writer in self._writers:
            writer.take(chunk, self._clock.monotonic())
        self._taken(chunk)
        self._known = {**self._known, **chunk.known}
        transactions = chunk.transactions
        if transactions.after:
            self._is_open = transactions.is_open
        last = transactions.closed() - 1
        if last >= 0 and not self._complete.covers(transactions.through(last)):
            self._commit_time = transactions.time[last]
        for point in chunk.reached():
            self._complete = self._complete.join(point)

    def _until_due(self) -> float:
        dues = [due for writer in self._writers if (due := writer.due()) is not None]
        if not dues:
            return self._heartbeat_seconds
        return max(min(dues) - self._clock.monotonic(), 0.0)

    def _heartbeat_is_due(self, now: float) -> bool:
        moved = not self.position.covers(self._complete)
        return moved and now - self._last_cut >= self._heartbeat_seconds

    def _roll(
        self,
        waiting: Sequence[SinkWriter],
        idle: Sequence[SinkWriter],
        between: Callable[[], None] = lambda: None,
    ) -> None:
        """Make everything up to `_complete` durable in these sinks, of which nothing waits in the
        idle ones, and let the source forget what is durable in all."""
        if self._known:
            self._know(self._known, self._complete)
            self._known = {}
        for writer in waiting:
            writer.roll(self._clock.monotonic())
        between()
        for writer in (*waiting, *idle):
            writer.cut(self._complete, self._commit_time)
        self._last_cut = self._clock.monotonic()
        durable = common([writer.durable for writer in self._writers])
        if not self.position.covers(durable):
            self._stream.acknowledge(durable)
            self.position = durable
            self._reached(CrashPoint.ACKNOWLEDGED)


def _replacing(part: Part, differing: Collection[TableId]) -> Part:
    """A table that differs may have rows of keys that are inserted."""
    if isinstance(part, Changes) and part.table.table in differing:
        return part.replacing()
    return part
