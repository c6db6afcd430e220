"""The tables that a sink lacks are loaded from one snapshot of the source."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, closing, nullcontext

import structlog

from mirrorlake.capture.backfill.unloaded import Unloaded
from mirrorlake.capture.executors import loading
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.records.stream import StreamRecord
from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.capture.sink import Sink
from mirrorlake.capture.tables import members
from mirrorlake.capture.tables.captured import CapturedTables
from mirrorlake.capture.watch import append_only, without_effect
from mirrorlake.capture.watch.joining import Joining
from mirrorlake.errors import TableError
from mirrorlake.model.table import TableId
from mirrorlake.sources.base import Snapshot, Source
from mirrorlake.storage.lease import Lease, renewed

log = structlog.get_logger()

TABLE_LOADED = "table_loaded"


class MissingTables:
    """Loads those of one stream, while nothing of it is read."""

    def __init__(
        self,
        source: Source,
        records: Records,
        sinks: Sequence[Sink],
        settings: CaptureSettings,
        tables: CapturedTables,
        unloaded: Unloaded,
        joining: Joining,
        lease: Lease,
        begun: Callable[[], None],
        meanwhile: Callable[[], None],
    ) -> None:
        """begun: called when the source has answered all that comes before the rows; meanwhile:
        called again and again while parts of tables are read."""
        self._source, self._records, self._sinks = source, records, sinks
        self._settings, self._tables = settings, tables
        self._unloaded, self._joining, self._lease = unloaded, joining, lease
        self._begun, self._meanwhile = begun, meanwhile

    def renewing(self) -> AbstractContextManager[None]:
        """Stay known as the one who captures while a snapshot is taken, and parts of tables are
        loaded, however long it takes. A lease that is lost meanwhile is found at the next check."""
        return nullcontext() if self._settings.one_thread else renewed(self._lease)

    def load(self, record: StreamRecord, *, may_wait: bool) -> None:
        """Load the tables that a sink lacks. may_wait: those that none has wait, as long as a
        snapshot would hold up the changes of others."""
        streamed = self._tables.streamed()
        absent = [{table.table: table for table in sink.missing(streamed)} for sink in self._sinks]
        missing = {name: table for tables in absent for name, table in tables.items()}
        # What one of the sinks has of a table already would miss its changes.
        may_wait &= all(tables.keys() == missing.keys() for tables in absent)
        if missing and members.include(self._source, list(missing.values()), self._records):
            if (snapshot := self._snapshot(missing, may_wait=may_wait)) is None:
                self._tables.leave_out(missing)
            else:
                with closing(snapshot):
                    self.load_from(snapshot, record)

    def _snapshot(self, missing: Collection[TableId], *, may_wait: bool) -> Snapshot | None:
        """What tables are loaded from; None when they have to wait, for the sake of others."""
        has_others = any(table.table not in missing for table in self._tables.streamed())
        with self.renewing():
            if has_others and may_wait:
                return self._joining.snapshot()
            return self._source.snapshot()

    def load_from(self, snapshot: Snapshot, record: StreamRecord) -> None:
        """Load what is missing, sink by sink."""
        seen = self._begin(snapshot)
        self._begun()
        for sink in self._sinks:
            # The small ones are soon there, and the large ones are read in parts to the end.
            missing = sorted(sink.missing(self._tables.streamed()), key=lambda table: table.size)
            with self.renewing(), loading(self._settings.load_workers, snapshot.close) as pool:
                for outcome in sink.load(record, seen, missing, pool, self._lease.check):
                    if outcome is None:
                        self._meanwhile()
                        continue
                    if isinstance(outcome, TableError):
                        members.stop(self._records, outcome)
                        continue
                    log.info(TABLE_LOADED, **outcome.facts())
                    self._lease.check()

    def _begin(self, snapshot: Snapshot) -> Snapshot:
        """Record what is about to be loaded. Returns the snapshot without the rows of tables that
        are not loaded. Tables that no sink has are known by what they are now, in the publication
        that carries them; of the others the stream still brings what they became."""
        streamed, now = self._tables.streamed(), self._source.discover()
        absent = [{table.table for table in sink.missing(streamed)} for sink in self._sinks]
        begun, new = set.union(*absent), set.intersection(*absent)
        for error in members.renamed(now, absent, self._records, self._sinks):
            members.stop(self._records, error)
        members.check_unaltered([table for table in streamed if table.table in new], now)
        missing = [table for table in streamed if table.table in begun]
        self._unloaded.begin(missing, begun - new, snapshot)
        seen = self._unloaded.seen(snapshot)
        found = [table for table in now if table.table in new and table.known]
        without_effect.begin(self._records, found)
        self._tables.know({t.table: {**t.known, "loaded": str(snapshot.point)} for t in found})
        # As counted before the snapshot: what came in between counts as missed, not as loaded.
        append_only.begin(self._records, [table for table in streamed if table.table in new])
        return seen
