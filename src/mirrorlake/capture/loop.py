"""The capture loop: it orders effects and does nothing else.

Correctness rests on this order; a crash test covers every arrow:

    every sink takes a chunk → roll → cut → acknowledge to the source what all sinks have cut

The source discards only what was acknowledged. Changes that are durable in a sink but not
acknowledged are sent again, and the sink recognises them. `SourceTable.known` is recorded before
the cut, together with its point: it takes effect when the changes up to that point are durable, so
it is neither ahead of nor behind what is sent again.
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
from mirrorlake.sources.chunk import Chunk, Part, SchemaChange, TableDiffers, TableLost, Truncation
from mirrorlake.sources.table import KnownTables

Know = Callable[[KnownTables, LogPoint], None]
"""Records `SourceTable.known` of tables at a point, before that point is durable."""

Differs = Callable[[TableDiffers], None]
"""Called with a table that has to be read again, before anything later is taken."""

IDLE_CHECK_SECONDS = 10.0
"""How often the right to write is checked, and renewed, while nothing has any effect: three times
in its term. It is most of what an idle capture does."""

Refuses = Callable[[SchemaChange | Truncation], TableError | None]
"""The reason why a table cannot continue after its columns have changed; None when it can."""


def common(points: Sequence[LogPoint]) -> LogPoint:
    """The greatest point that all of the points cover."""
    return reduce(lambda left, right: left.meet(right), points)


class CaptureLoop:
    """Reads one stream into its sinks and acknowledges what is durable in all of them.

    lost: called with a table that the source gives up.
    heartbeat_seconds: how often the sinks cut while they have nothing pending.
    guard: raises when this process may no longer write; called before any effect, and every
        `IDLE_CHECK_SECONDS` without one.
    differs: without it, a table that differs is lost.
    differing: the tables that are currently read again.
    landed: the form in which sinks that are corrected take a part of the stream, None for nothing.
    taken: called with each chunk that the sinks have taken.
    position: the point up to which everything is acknowledged.
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
        landed: Callable[[Part], Part | None] = lambda part: part,
    ) -> None:
        self._stream, self._writers, self._lost = stream, writers, lost
        self._heartbeat_seconds, self._clock = heartbeat_seconds, clock
        self._reached, self._guard, self._know = reached, guard, know
        self._refuses = refuses
        self._taken = taken
        self._differing, self._landed = differing, landed
        self._differs = differs or (lambda part: lost(part.table, part.error))
        self._known: KnownTables = {}  # not recorded yet
        self._is_open = False  # the last transaction has only been read in part
        self.position = common([writer.durable for writer in writers])
        self._complete = self.position  # everything that ends here or before was read
        self._commit_time: datetime | None = None
        self._last_cut = self._checked = clock.monotonic()
        # The last process may have crashed between the cut and its acknowledgement.
        stream.acknowledge(self.position)

    def step(self, wait: float) -> bool:
        """Read once, and write when it is due. Returns whether anything arrived."""
        chunk = self._stream.read(min(wait, self._until_due()))
        now = self._clock.monotonic()
        if chunk is not None or now - self._checked >= IDLE_CHECK_SECONDS:
            self._check()
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
        """Make all ended transactions durable in all sinks, and acknowledge them."""
        self._roll(self._writers, [])

    @property
    def complete(self) -> LogPoint:
        """The position of the stream: everything that ends at or before it has been read."""
        return self._complete

    @property
    def is_open(self) -> bool:
        """Whether the last transaction has only been read in part."""
        return self._is_open

    def interleave(self, land: Callable[[LogPoint, datetime | None], None]) -> None:
        """Call `land` after everything that was read is durable and before the cut, while no
        transaction is open, with the position of the stream and the commit time of the last
        transaction."""
        assert not self._is_open
        self._roll(self._writers, [], lambda: land(self._complete, self._commit_time))

    def abandon(self) -> None:
        """Discard everything that is not durable."""
        for writer in self._writers:
            writer.abandon()

    def _check(self) -> None:
        self._guard()
        self._checked = self._clock.monotonic()

    def _take(self, chunk: Chunk) -> None:
        for part in chunk.parts:
            if isinstance(part, TableLost):
                self._lost(part.table, part.error)
            elif isinstance(part, TableDiffers):
                self._differs(part)
            elif isinstance(part, SchemaChange | Truncation) and (error := self._refuses(part)):
                self._lost(part.table.table, error)
        landed = chunk
        if any(writer.is_corrected for writer in self._writers):  # else it may read rows in vain
            parts = [kept for part in chunk.parts if (kept := self._landed(part)) is not None]
            landed = replace(chunk, parts=parts)
        for writer in self._writers:
            writer.take(landed if writer.is_corrected else chunk, self._clock.monotonic())
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
        """Make everything up to `_complete` durable in these sinks (the idle ones have nothing
        pending), and acknowledge what is durable in all."""
        self._check()
        if self._known:
            self._know(self._known, self._complete)
            self._known = {}
        for writer in waiting:
            writer.roll(self._clock.monotonic())
        between()
        for writer in (*waiting, *idle):
            writer.cut(self._complete, self._commit_time, self._differing())
        self._last_cut = self._clock.monotonic()
        durable = common([writer.durable for writer in self._writers])
        if not self.position.covers(durable):
            self._stream.acknowledge(durable)
            self.position = durable
            self._reached(CrashPoint.ACKNOWLEDGED)
