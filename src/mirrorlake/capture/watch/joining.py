"""When tables that come to a stream under way are loaded.

A snapshot waits for the end of every transaction that was open when it was begun, and of some that
begin meanwhile; and the stream is closed until it is there, so that no change of the new tables is
missed. Therefore it is begun only when every transaction that was open before has ended, and given
up after a while. Invariant: while tables wait, an attempt lasts at most `LEAST_SECONDS` or a tenth
of the time for which they have waited, and the stream is open for nine times as long after it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import structlog

from mirrorlake.errors import AlteredWhileLoaded, SourceUnavailable
from mirrorlake.model.clock import Clock
from mirrorlake.model.table import TableId
from mirrorlake.sources.base import AwaitedTransaction, Snapshot, Source

log = structlog.get_logger()

SNAPSHOT_FAILED = "joining_snapshot_failed"
LOAD_PUT_OFF = "table_loaded_later"

LONGEST_PAUSE = 300.0
MOST_ATTEMPTS = 5
"""To load a table that is altered each time, where a process is to come to an end."""

LEAST_SECONDS = 2.0
"""For which a snapshot may be waited for in any case. Most transactions are shorter."""

LOOK_SECONDS = 1.0
QUIET_SECONDS = 5.0  # transactions take their time
SHARE = 0.1
"""Of the time, for which the stream may be closed."""

_SLOW_SECONDS = 30.0
"""Between two looks at a server that does not answer in time, or refuses a snapshot."""


class Joining:
    """For one stream. While nothing waits, nothing is asked."""

    def __init__(
        self, source: Source, clock: Clock, awaited: Callable[[AwaitedTransaction | None], None]
    ) -> None:
        """awaited: called with the transaction for which tables wait, None for none."""
        self._source, self._clock, self._awaited = source, clock, awaited
        self._since: float | None = None  # tables wait
        self._next_look = self._next_attempt = self._silent_until = 0.0
        self._closed: float | None = None  # the stream is, for an attempt
        self._before: frozenset[str] | None = None  # transactions that have to end
        self._begun = 0.0  # when they were seen
        self._named = ""  # the one of them that is told

    def is_due(self) -> bool:
        """Whether tables that wait can be tried again. Asks the source once in a second."""
        if self._since is None or self._clock.monotonic() < self._next_look:
            return False
        return self.can_begin()

    def can_begin(self) -> bool:
        """Whether a snapshot is likely to be there soon, and the stream was open for long enough
        since the last attempt."""
        now = self._clock.monotonic()
        if self._since is None:
            self._since = now
        return now >= self._silent_until and self._have_ended(now) and now >= self._next_attempt

    def closes(self) -> None:
        """The stream is closed, for an attempt if tables wait."""
        if self._since is not None and self._closed is None:
            self._closed = self._clock.monotonic()

    def _have_ended(self, now: float) -> bool:
        """Whether every transaction has that was open when tables began to wait, or since the last
        attempt."""
        try:
            found = self._source.open_transactions()
        except SourceUnavailable:  # if the source is away, the stream will tell
            self._next_look = self._silent_until = now + _SLOW_SECONDS
            return False
        self._next_look = now + LOOK_SECONDS
        if self._before is None:
            self._before, self._begun = frozenset(found), now
        left = {identity: one for identity, one in found.items() if identity in self._before}
        if left.get(self._named) is None:
            self._named = next((identity for identity, one in left.items() if one), "")
        is_old = now - self._begun >= QUIET_SECONDS
        self._awaited(left.get(self._named) if is_old else None)
        return not left

    def snapshot(self) -> Snapshot | None:
        """The snapshot from which the tables are loaded; None when they go on waiting."""
        if not self.can_begin():
            return None
        self.closes()
        waited = self._clock.monotonic() - (self._since or 0.0)
        found = None
        try:
            found = self._source.snapshot_within(max(LEAST_SECONDS, waited * SHARE))
        except SourceUnavailable as error:  # as without a free slot; the others may go on
            log.warning(SNAPSHOT_FAILED, reason=error.what, hint=error.hint)
            self._silent_until = self._clock.monotonic() + _SLOW_SECONDS
        if found is None:
            self._before = None  # whatever is open at the next look has to end first
            self.can_begin()
        else:
            self.end()
        return found

    def opened(self) -> None:
        """The stream is open again."""
        if self._closed is not None:
            now = self._clock.monotonic()
            self._next_attempt = now + (now - self._closed) * (1 / SHARE - 1)
            self._closed = None

    def end(self) -> None:
        """No table waits, or the source has been away: what it was waited for is not counted."""
        if self._since is not None:
            self._since = self._before = self._closed = None
            self._next_attempt = 0.0
            self._awaited(None)


class AlteredTables:
    """Tables that were altered while they were loaded. Each is loaded later, after pauses that grow
    twofold up to `LONGEST_PAUSE`, beside the changes of the others."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failed: dict[TableId, tuple[int, float, AlteredWhileLoaded]] = {}

    def put_off(self, error: AlteredWhileLoaded) -> None:
        """A table was altered, whose load has left nothing that is published."""
        table = TableId.parse(error.where)
        attempts = self._failed[table][0] + 1 if table in self._failed else 1
        pause = min(2.0 ** (attempts - 1), LONGEST_PAUSE)
        self._failed[table] = attempts, self._clock.monotonic() + pause, error
        log.warning(LOAD_PUT_OFF, table=error.where, reason=error.what, seconds=pause)

    def waits(self, table: TableId) -> bool:
        """Whether the table is not to be loaded yet."""
        _attempts, due, _error = self._failed.get(table, (0, 0.0, None))
        return self._clock.monotonic() < due

    def is_due(self) -> bool:
        """Whether one of them is to be loaded."""
        return any(not self.waits(table) for table in self._failed)

    def next(self) -> float | None:
        """The seconds until one of them is to be loaded; None where there is none. Raises
        AlteredWhileLoaded where that was tried often enough."""
        for attempts, _due, error in self._failed.values():
            if attempts >= MOST_ATTEMPTS:
                raise error
        dues = [due - self._clock.monotonic() for _attempts, due, _error in self._failed.values()]
        return max(min(dues), 0.0) if dues else None

    def keep(self, tables: Collection[TableId]) -> None:
        """The others are not there any more."""
        self._failed = {table: one for table, one in self._failed.items() if table in tables}

    def loaded(self, tables: Collection[TableId]) -> None:
        """These are loaded."""
        self._failed = {table: one for table, one in self._failed.items() if table not in tables}
