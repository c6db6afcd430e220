"""Tables that differ from their source because the project ignores what happened to them.

Nothing of what differs is read again, and `status` says so until a backfill of the whole table, or
a reset. The mirror may have rows of the source's keys that the source had not, so inserted rows
replace what is there.
"""

from __future__ import annotations

from collections.abc import Collection

import structlog

from mirrorlake.capture.backfill.jobs import BackfillJobState, BackfillRecords
from mirrorlake.capture.records.looks import Unfollowed
from mirrorlake.capture.records.records import Records
from mirrorlake.errors import TableError
from mirrorlake.model.change import SchemaChangeKind
from mirrorlake.model.clock import Clock
from mirrorlake.model.landed import format_time
from mirrorlake.model.table import TableId
from mirrorlake.sources.chunk import Changes, Part, Truncation

log = structlog.get_logger()

CHANGE_IGNORED = "schema_change_ignored"


class Ignored:
    """The tables of one stream that differ so. Not for several threads.

    kinds: the changes that the project ignores.
    """

    def __init__(self, records: Records, clock: Clock, kinds: Collection[SchemaChangeKind]) -> None:
        self._records, self._clock, self._kinds = records, clock, kinds
        self._tables: frozenset[TableId] | None = None

    @property
    def tables(self) -> Collection[TableId]:
        if self._tables is None:
            self._tables = frozenset(map(TableId.parse, self._records.ignored()))
        return self._tables

    def note(self, table: TableId, error: TableError) -> None:
        """The table differs from now on. It is recorded before anything beyond is landed."""
        known, name = self._records.ignored(), str(table)
        noted = known.get(name)
        # What has begun to read the rows before may not have read what this change left.
        if noted is None or self._begun().get(name, "") >= noted.since:
            known[name] = Unfollowed(
                format_time(self._clock.now()), f"{error.what}; mirror.schema_change ignores it"
            )
            self._records.write_ignored(known)
            log.warning(CHANGE_IGNORED, table=name, change=error.what)
        self._tables = None

    def look(self) -> None:
        """Forget tables that were read again as a whole since."""
        self._tables = None
        known = self._records.ignored()
        if not known:
            return
        complete = self._begun(complete=True)
        left = {n: one for n, one in known.items() if complete.get(n, "") < one.since}
        if left != known:
            self._records.write_ignored(left)

    def _begun(self, *, complete: bool = False) -> dict[str, str]:
        """By table name when the last backfill of all its rows began, of those that are `complete`
        or of all."""
        jobs = [job for job in BackfillRecords(self._records).jobs() if job.request.is_whole]
        found = dict[str, str]()
        for job in jobs:
            if job.state is BackfillJobState.COMPLETED or not complete:
                name = job.request.table
                found[name] = max(found.get(name, ""), job.started)
        return found

    def landed(self, part: Part) -> Part | None:
        """A part of the stream as it is landed."""
        if not isinstance(part, Changes | Truncation) or part.table.table not in self.tables:
            return part
        if isinstance(part, Truncation):
            return None if SchemaChangeKind.TABLE_TRUNCATED in self._kinds else part
        return part.replacing() if part.table.key else part
