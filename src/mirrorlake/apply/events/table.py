"""One table that is built from events.

Order: read → write the state → write rows → commit rows and the number of the batch together. The
record of the state has the same number and becomes current with the commit. A crash may happen at
any point, and the same events may be applied again (ST-223, ST-232).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import structlog

from mirrorlake.apply.committer import CommitOperation
from mirrorlake.apply.events.batches.prepared import (
    EventTableVersion,
    NewTruncations,
    PreparedBatch,
    WiderColumns,
    event_table_error,
)
from mirrorlake.apply.events.batches.spelling import spelled_alike
from mirrorlake.apply.events.batches.widening import widen
from mirrorlake.apply.events.batches.writer import BatchWriter, Preparation, key_names
from mirrorlake.apply.events.described import known_state
from mirrorlake.apply.events.reading import TableEvents
from mirrorlake.apply.events.rebuild import StateRebuild, TableRows
from mirrorlake.apply.events.remembered import merging, retention
from mirrorlake.apply.events.remembered.keyed_files import DamagedFiles
from mirrorlake.apply.events.remembered.namesakes import namesake
from mirrorlake.apply.events.remembered.state import MOST_NAME, EventTableState, StateFolder
from mirrorlake.apply.events.remembered.stored_changes import EVERY_CHANGE
from mirrorlake.apply.events.remembered.truncating import truncated
from mirrorlake.apply.events.settings import EventInput
from mirrorlake.apply.events.table_report import EventTableReport
from mirrorlake.delta import deletion_vectors
from mirrorlake.delta.log.files import FOLDER
from mirrorlake.delta.log.table_log import BrokenLog, TableLog, TableSnapshot
from mirrorlake.delta.lookup.key_lookup import path_of
from mirrorlake.delta.schema import OF_EVENTS, TableSchema, parse
from mirrorlake.delta.workspace import LostFile, OutsideTable, open_workspace
from mirrorlake.delta.write import flush
from mirrorlake.delta.write.compact import compact
from mirrorlake.delta.write.durable_commit import durable_commit, flush_names
from mirrorlake.errors import (
    EventStateDamaged,
    EventTableError,
    NestedTables,
)
from mirrorlake.events.types import UnifiedType
from mirrorlake.mirror.compaction import small_files
from mirrorlake.mirror.strategy import TableFacts
from mirrorlake.mirror.table.progress import MALFORMED
from mirrorlake.model.crash_points import CrashHook, CrashPoint, no_crash
from mirrorlake.model.table import TableId
from mirrorlake.root import delta_path, escaped
from mirrorlake.storage.store import Store
from mirrorlake.storage.urls import is_url

log = structlog.get_logger()

APPLICATION = "mirrorlake-events"
COLUMN_WIDENED, COLUMN_RESPELLED = "event_column_widened", "event_column_respelled"
ATTEMPTS = 20
"""Attempts at one batch while other writers commit first."""


class EventTable:
    """The table of some events below a root."""

    def __init__(
        self,
        store: Store,
        table: TableId,
        settings: EventInput,
        reached: CrashHook = no_crash,
    ) -> None:
        self.table = table
        path = delta_path(table, None)
        self._store, self._settings, self._reached = store, settings, reached
        self.location, self._options = store.location(path), store.options(path)
        self._log = TableLog(self.location, self._options)
        self._folder = StateFolder(store, table)
        self._writer = BatchWriter(table, self.location, self._options, self._folder, settings)
        self._is_swept = self._is_described = False
        self._respelled = set[str]()

    @property
    def known(self) -> dict[str, UnifiedType]:
        """The types of its columns, by name in the events. Raises EventTableError."""
        return self._read().state.columns.known

    def apply(self, events: Sequence[TableEvents]) -> EventTableReport:
        """Apply events in any order, including events that were applied before.

        Raises TableError when the table stops, Unavailable.
        """
        for attempt in range(ATTEMPTS):
            loaded = self._load()
            with self._lost_files(retries=not attempt), self._folder.open():
                done = self._apply(loaded, events)
                if done is not None:
                    return done
        raise self._error(
            "other writers are faster all the time", "Stop the other writer, and run it again."
        )

    def prepare(self, events: Sequence[TableEvents]) -> Preparation:
        """Compute and write what events change, in any process, for `commit_prepared` in the one
        that may write. Raises as `apply` does."""
        loaded = self._read()
        if not loaded.snapshot.exists:
            self._check_only(events[0].name, self._settings.rule(events[0].source))
        with self._lost_files(), self._folder.open():
            return self._writer.prepare(loaded, self._spelled(loaded, events))

    def commit_prepared(self, batch: PreparedBatch) -> EventTableReport | None:
        """Commit what another process has prepared, perhaps a while ago, on storage that it shares
        with this one. None when another writer committed first. Raises TableError."""
        if not self.is_newest(batch.version - 1):
            return None
        if not batch.version:
            self._check_apart()  # from tables that were made since
        if missing := self._missing(batch):
            raise self._error(
                f"a task has written {missing}, which is not there",
                "Executors have to see the root of the mirror under the same path.",
            )
        return self._commit_batch(batch)

    def is_newest(self, version: int) -> bool:
        """Whether a version is the newest; -1 where there is no table."""
        is_there = version < 0 or self._log.has(version)
        return is_there and not self._log.has(version + 1)

    def _missing(self, batch: PreparedBatch) -> str:
        """A new file of the batch that this process does not see; "" if it sees all."""
        if is_url(self.location):
            return ""  # a place that is the same for everybody
        folder = Path(self.location)
        for action in batch.actions:
            if (add := action.get("add") or action.get("cdc")) is None:
                continue
            paths = [path_of(folder, add)]
            if vector := add.get("deletionVector"):
                paths.append(deletion_vectors.path_of(folder, vector))
            if lost := next((path.name for path in paths if not path.exists()), ""):
                return lost
        return self._folder.missing(batch.state)

    def _commit_batch(self, batch: PreparedBatch) -> EventTableReport | None:
        """None when another writer committed first."""
        if not batch.version:
            self._check_only(batch.state.name, batch.state.rule)
        state = self._folder.record(batch.state)
        self._reached(CrashPoint.KEYS_WRITTEN)
        actions = [*batch.actions, {"txn": {"appId": APPLICATION, "version": state.number}}]
        said: dict[str, Any] = {"mirrorlake_events": state.number}
        if batch.every_change is not None:
            said[EVERY_CHANGE] = batch.every_change
        if not self._commit(batch.version, actions, batch.operation, said):
            return None
        self._reached(CrashPoint.EVENTS_COMMITTED)
        self._describe()
        self._folder.discard(state)
        return EventTableReport(batch.version, batch.counts, batch.letters, commits=1)

    @contextmanager
    def _lost_files(self, *, retries: bool = False) -> Iterator[None]:
        """Files that are missing or damaged, as an error of the table. retries: missing ones are
        ignored: another vacuum may have removed files that a newer version lacks."""
        try:
            yield
        except (FileNotFoundError, LostFile) as error:
            if retries:
                return
            lost = error.filename if isinstance(error, OSError) else error
            name = Path(str(lost or "")).name
            raise self._error(f"a file of it is missing: {name}") from error
        except DamagedFiles as error:
            raise self._damaged(str(error)) from error

    def compact(self) -> None:
        """Merge small files of the table if there are many; one step."""
        loaded = self._load()
        chosen = small_files.choose(loaded.files) if loaded.snapshot.exists else ()
        if not chosen:
            return
        with open_workspace(self.location, self._options) as workspace, flush.flush_in_background():
            workspace.fetch(chosen)
            key = key_names(loaded.state)
            actions = compact(workspace.folder, chosen, loaded.schema, key)
            workspace.upload(actions)
        self._reached(CrashPoint.FILES_COMPACTED)
        if self._commit(loaded.snapshot.version + 1, actions, "OPTIMIZE", {}):
            self._reached(CrashPoint.COMPACTION_COMMITTED)

    def prune(self, now: datetime, waiting: Callable[[], int | None] = lambda: None) -> None:
        """Remove state that is no longer needed, once a day. waiting: returns the `waiting_ms` of
        `retention.horizon`."""
        loaded = self._load()
        state, back = loaded.state, self._settings.retention
        before = retention.horizon(state, back, now)
        if not loaded.snapshot.exists or before - state.pruned_ms < retention.STEP_MS:
            return
        before = retention.horizon(state, back, now, waiting())
        if before - state.pruned_ms < retention.STEP_MS:
            return
        with self._folder.open():
            try:
                with flush.flush_in_background():
                    state = retention.pruned(loaded.state, self._folder.files, before)
            except DamagedFiles as error:
                raise self._damaged(str(error)) from error
            self._commit_state(loaded, state)

    def damage(self) -> str:
        """Why the state cannot be used; empty if it can. Reads all of it and changes nothing.
        Raises TableError when something else is wrong."""
        try:
            state = self._read().state
            with self._folder.open():
                for files in merging.files_of(state, self._folder.files):
                    for add in files.files:
                        files.live(add)
        except EventStateDamaged as error:
            return error.what
        except DamagedFiles as error:
            return str(error)
        return ""

    def rebuild(self, read: Callable[[StateRebuild], None]) -> int:
        """Compute the state anew, in a commit that changes no row (`rebuild`). read: adds the
        events. Returns the version.

        Raises TableError, OSError. Memory: a file of the table or of the state, or what is added.
        """
        snapshot = self._snapshot()
        if not snapshot.exists:
            raise self._error("there is no table to rebuild it from")
        number = snapshot.transactions[APPLICATION]
        try:
            state = known_state(self._folder, number, snapshot, self._settings)
            loaded, schema = EventTableVersion(snapshot, state), parse(snapshot.metadata)
        except MALFORMED as error:
            raise self._error(f"what it says of itself cannot be read: {error}") from error
        with self._folder.open():
            try:
                state = self._rebuilt(loaded, schema, read)
            except (DamagedFiles, LostFile, OutsideTable) as error:
                raise self._error(f"a file of it cannot be read: {error}") from error
            if not state.rule:
                raise self._error("no file tells the source of its events", "Set source.system.")
            if not self._commit_state(loaded, state):
                raise self._error("another writer committed to it meanwhile", "Repeat the repair.")
        self._describe()
        self._folder.sweep()
        return snapshot.version + 1

    def _rebuilt(
        self, loaded: EventTableVersion, schema: TableSchema, read: Callable[[StateRebuild], None]
    ) -> EventTableState:
        with open_workspace(self.location, self._options) as workspace, flush.flush_in_background():
            workspace.fetch(loaded.files)
            rows = TableRows(workspace.folder, loaded.files, schema)
            computed = StateRebuild(self._settings, self._folder.files, rows, loaded.state)
            read(computed)
            return computed.done()

    def _commit_state(self, loaded: EventTableVersion, state: EventTableState) -> bool:
        """Commit a state without rows. Returns whether no other writer committed first."""
        state = self._folder.add(state, loaded.state)
        self._reached(CrashPoint.KEYS_WRITTEN)
        actions = [{"txn": {"appId": APPLICATION, "version": state.number}}]
        said = {"mirrorlake_events": state.number}
        if not self._commit(loaded.snapshot.version + 1, actions, "TXN", said):
            return False
        self._folder.discard(state)
        return True

    # -- what there is --------------------------------------------------------------------------

    def _load(self) -> EventTableVersion:
        if not self._is_swept:
            self._folder.sweep()
            self._is_swept = True
        loaded = self._read()
        if loaded.snapshot.exists:
            self._describe()
        return loaded

    def _read(self) -> EventTableVersion:
        snapshot = self._snapshot()
        if not snapshot.exists:
            if self._folder.is_described():
                raise self._error("the table was removed, but not what is remembered of it")
            self._check_apart()
            return EventTableVersion(snapshot, EventTableState())
        try:
            state = self._folder.read(snapshot.transactions[APPLICATION])
        except MALFORMED as error:
            raise self._damaged(f"it cannot be read: {error}") from error
        if state is None or state.table_id != snapshot.metadata["id"]:
            raise self._damaged("it is missing")
        return EventTableVersion(snapshot, state)

    def _snapshot(self) -> TableSnapshot:
        """The table, which is one of events or does not exist."""
        for name in (self.table.schema, self.table.name):
            if len(escaped(name).encode()) > MOST_NAME:
                raise self._error(
                    f"its name would be one of {len(escaped(name).encode())} bytes, more than "
                    f"{MOST_NAME}",
                    "Leave the table out of the stream.",
                )
        try:
            snapshot = self._log.snapshot()
        except FileNotFoundError:
            return TableSnapshot()
        except BrokenLog as error:
            raise self._error(f"its Delta log cannot be read: {error}") from error
        if snapshot.exists:
            self._check_table(snapshot)
        return snapshot

    def _check_apart(self) -> None:
        """Refuse a new table inside another one or around it: `reset` of the outer one would delete
        the inner one."""
        path = delta_path(self.table, None)
        around = path.rpartition("/")[0]
        inner = (f"{path}/{name}" for name in self._store.list(path).folders)
        for other in [around] if self.table.schema else inner:
            if FOLDER in self._store.list(other).folders:
                raise NestedTables(
                    f"one of the tables {path} and {other} would lie inside the other",
                    table=str(self.table),
                    hint="Set source.dataset_prefix or source.dataset, with another root.",
                )

    def _check_only(self, name: str, rule: str) -> None:
        """Refuse a new table beside one whose events name the same object with a schema, or without
        one: it would be divided between them."""
        other = namesake(self._store, self._settings, self.table, name, rule)
        if other:
            raise self._error(
                f"its events are of {name}, and those of {other} are in a table: one of the two "
                "names no schema, and may be the same",
                "Write the schema, database or domain into the events that name none, or move "
                "their files out of the folder. Then run `mirrorlake reset` for both.",
            )

    def _check_table(self, snapshot: TableSnapshot) -> None:
        if OF_EVENTS not in snapshot.properties or not snapshot.transactions.get(APPLICATION):
            raise self._error(
                "there is another table in its place", "Move that one, or name other tables."
            )
        facts = TableFacts.of(snapshot)
        if why := facts.refused or facts.delegated:
            raise self._error(f"it can no longer be written: {why}", "Undo what was set on it.")
        since = snapshot.recorded_in.get(APPLICATION, snapshot.version)
        for version in range(since + 1, snapshot.version + 1):
            said = (action.get("commitInfo") or {} for action in self._log.actions(version))
            if any(one.get("operation") == "RESTORE" for one in said):
                raise self._error("it was restored to an earlier version")

    def _describe(self) -> None:
        """Record that the table exists, for those who look for tables."""
        if not self._is_described:
            self._folder.describe(self.table)
            self._is_described = True

    def _error(self, what: str, hint: str = "") -> EventTableError:
        return event_table_error(self.table, what, hint)

    def _damaged(self, why: str) -> EventStateDamaged:
        return EventStateDamaged(
            f"what is remembered of its keys is damaged: {why}",
            table=str(self.table),
            hint="Compute it anew from the table and the files that are there: "
            f"mirrorlake repair {self.table}.",
        )

    # -- what a batch does ----------------------------------------------------------------------

    def _apply(
        self,
        loaded: EventTableVersion,
        events: Sequence[TableEvents],
        *,
        is_truncated: bool = False,
    ) -> EventTableReport | None:
        """None when another writer committed first. is_truncated: as for `BatchWriter.prepare`."""
        if not loaded.snapshot.exists:
            self._check_only(events[0].name, self._settings.rule(events[0].source))
        events = self._spelled(loaded, events)
        found = self._writer.prepare(loaded, events, is_truncated=is_truncated)
        if isinstance(found, EventTableReport):
            return found
        if isinstance(found, PreparedBatch):
            return self._commit_batch(found)
        if isinstance(found, WiderColumns):
            return self._widen(loaded, events, found)
        return self._truncate(loaded, events, found)

    def _spelled(
        self, loaded: EventTableVersion, events: Sequence[TableEvents]
    ) -> Sequence[TableEvents]:
        """The events with the names of columns as in the table. Tells once which are others."""
        events, names = spelled_alike(events, loaded.state.columns)
        if new := {name: known for name, known in names.items() if name not in self._respelled}:
            self._respelled |= new.keys()
            log.warning(COLUMN_RESPELLED, table=str(self.table), columns=new)
        return events

    def _widen(
        self, loaded: EventTableVersion, events: Sequence[TableEvents], wider: WiderColumns
    ) -> EventTableReport | None:
        """Give columns wider types, and apply the events. A process that ends in between finds the
        columns widened."""
        version = loaded.snapshot.version + 1
        found = widen(loaded, wider, self._folder, self.location, self._options)
        state = self._folder.record(found.state)
        self._reached(CrashPoint.COLUMNS_WRITTEN)
        actions = [*found.actions, {"txn": {"appId": APPLICATION, "version": state.number}}]
        kinds = {name: [*map(str, both)] for name, both in wider.widened.items()}
        said = {"mirrorlake_events": state.number, "widened": kinds}
        if not self._commit(version, actions, CommitOperation.UPDATE_SCHEMA, said):
            return None
        self._reached(CrashPoint.COLUMNS_ALTERED)
        self._folder.discard(state)
        for name, (before, after) in kinds.items():
            log.warning(
                COLUMN_WIDENED,
                table=str(self.table),
                version=version,
                column=name,
                before=before,
                after=after,
            )
        rest = self._apply(self._load(), events)
        return rest and EventTableReport(version, commits=1).then(rest)

    def _truncate(
        self, loaded: EventTableVersion, events: Sequence[TableEvents], new: NewTruncations
    ) -> EventTableReport | None:
        """Delete the rows that new truncations delete, and apply the events. The truncations are
        remembered with these: a process that ends before gets them again."""
        done = EventTableReport(loaded.snapshot.version)
        guard = self._settings.guard // timedelta(milliseconds=1)
        rule = loaded.state.rule
        for found in truncated(rule, guard, new.keys, new.changes, new.truncations):
            part = self._commit_batch(self._writer.write(loaded, loaded.state, found))
            if part is None:
                return None
            done, loaded = done.then(part), self._load()
        rest = self._apply(loaded, events, is_truncated=True)
        return rest and done.then(rest)

    def _commit(
        self,
        version: int,
        actions: Sequence[Mapping[str, Any]],
        operation: str,
        said: Mapping[str, Any],
    ) -> bool:
        flush_names(self.location)
        metadata = json.dumps(said)
        return durable_commit(
            self.location,
            version,
            actions,
            self._options,
            operation=operation,
            userMetadata=metadata,
        )
