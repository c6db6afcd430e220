"""One table that is built from events.

Order: read → write the state → write rows → commit rows and the number of the batch together. The
record of the state has the same number and becomes current with the commit. A crash may happen at
any point, and the same events may be applied again (ST-223, ST-232).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import repeat
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.apply.events.columns import (
    check_key,
)
from mirrorlake.apply.events.described import known_state
from mirrorlake.apply.events.lookups import Lookups, looking_up
from mirrorlake.apply.events.reading import DeadLetter, TableEvents
from mirrorlake.apply.events.rebuild import StateRebuild, TableRows
from mirrorlake.apply.events.remembered import merging, retention
from mirrorlake.apply.events.remembered.content import identities
from mirrorlake.apply.events.remembered.keyed_files import THREADS, DamagedFiles, KeyedFiles
from mirrorlake.apply.events.remembered.merging import IDENTITY
from mirrorlake.apply.events.remembered.state import MOST_NAME, EventTableState, StateFolder
from mirrorlake.apply.events.remembered.truncating import truncated
from mirrorlake.apply.events.rows import (
    AppliedRows,
    appended_rows,
    checked_rows,
    merge_batch,
    struct_type,
    table_rows,
)
from mirrorlake.apply.events.settings import EventInput
from mirrorlake.apply.events.table_report import EventTableReport
from mirrorlake.delta.log.files import FOLDER
from mirrorlake.delta.log.table_log import BrokenLog, TableLog, TableSnapshot
from mirrorlake.delta.lookup.early_lookup import Search
from mirrorlake.delta.schema import OF_EVENTS, TableSchema, parse
from mirrorlake.delta.workspace import LostFile, OutsideTable, open_workspace
from mirrorlake.delta.write import flush
from mirrorlake.delta.write.append import append
from mirrorlake.delta.write.compact import compact
from mirrorlake.delta.write.data_files import has_huge
from mirrorlake.delta.write.durable_commit import durable_commit, flush_names
from mirrorlake.delta.write.rewrite import rewrite, searcher
from mirrorlake.delta.write.table_metadata import PROTOCOL, metadata, widened
from mirrorlake.errors import (
    EventStateDamaged,
    EventTableError,
    KeyColumnUnknown,
    NestedTables,
)
from mirrorlake.events.types import UnifiedType
from mirrorlake.mirror.compaction import small_files
from mirrorlake.mirror.engine import Counts
from mirrorlake.mirror.event_order import first_of_each
from mirrorlake.mirror.schema_evolution import needs_mapping
from mirrorlake.mirror.strategy import TableFacts
from mirrorlake.mirror.table.progress import KEY_COLUMNS, MALFORMED
from mirrorlake.model.arrow import contiguous
from mirrorlake.model.change import ROW_POSITION
from mirrorlake.model.crash_points import CrashHook, CrashPoint, no_crash
from mirrorlake.model.table import TableId
from mirrorlake.root import delta_path, escaped
from mirrorlake.storage.store import Store
from mirrorlake.storage.urls import is_url

APPLICATION = "mirrorlake-events"
KEY_CHANGED = "BIGQUERY_UNSUPPORTED_PRIMARY_KEY_CHANGE"
"""The reason why a table stops whose key has changed (ST-263)."""
ATTEMPTS = 20
"""Attempts at one batch while other writers commit first."""


@dataclass(frozen=True, slots=True)
class _Loaded:
    """The table and its state at one version."""

    snapshot: TableSnapshot
    state: EventTableState

    @property
    def schema(self) -> TableSchema:
        return parse(self.snapshot.metadata)

    @property
    def files(self) -> list[Mapping[str, Any]]:
        return list(self.snapshot.files.values())


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
        self._is_swept = self._is_described = False

    @property
    def known(self) -> dict[str, UnifiedType]:
        """The types of its columns, by name in the events. Raises EventTableError."""
        return self._load().state.columns.known

    def apply(self, events: Sequence[TableEvents]) -> EventTableReport:
        """Apply events in any order, including events that were applied before.

        Raises TableError when the table stops, Unavailable.
        """
        for attempt in range(ATTEMPTS):
            loaded = self._load()
            try:
                with self._folder.open():
                    done = self._apply(loaded, events)
            except (FileNotFoundError, LostFile) as error:
                if not attempt:  # another vacuum may have removed files that a newer version lacks
                    continue
                lost = error.filename if isinstance(error, OSError) else error
                name = Path(str(lost or "")).name
                raise self._error(f"a file of it is missing: {name}") from error
            except DamagedFiles as error:
                raise self._damaged(str(error)) from error
            if done is not None:
                return done
        raise self._error(
            "other writers are faster all the time", "Stop the other writer, and run it again."
        )

    def compact(self) -> None:
        """Merge small files of the table if there are many; one step."""
        loaded = self._load()
        chosen = small_files.choose(loaded.files) if loaded.snapshot.exists else ()
        if not chosen:
            return
        with open_workspace(self.location, self._options) as workspace, flush.flush_in_background():
            workspace.fetch(chosen)
            key = self._key_names(loaded.state)
            actions = compact(workspace.folder, chosen, loaded.schema, key)
            workspace.upload(actions)
        self._reached(CrashPoint.FILES_COMPACTED)
        if self._commit(loaded.snapshot.version + 1, actions, "OPTIMIZE", {}):
            self._reached(CrashPoint.COMPACTION_COMMITTED)

    def prune(self, now: datetime) -> None:
        """Remove state that is no longer needed, once a day."""
        loaded = self._load()
        before = retention.horizon(loaded.state, self._settings.retention, now)
        if not loaded.snapshot.exists or before - loaded.state.pruned_ms < retention.STEP_MS:
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
            loaded, schema = _Loaded(snapshot, state), parse(snapshot.metadata)
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
        self, loaded: _Loaded, schema: TableSchema, read: Callable[[StateRebuild], None]
    ) -> EventTableState:
        with open_workspace(self.location, self._options) as workspace, flush.flush_in_background():
            workspace.fetch(loaded.files)
            rows = TableRows(workspace.folder, loaded.files, schema)
            computed = StateRebuild(self._settings, self._folder.files, rows, loaded.state)
            read(computed)
            return computed.done()

    def _commit_state(self, loaded: _Loaded, state: EventTableState) -> bool:
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

    def _load(self) -> _Loaded:
        if not self._is_swept:
            self._folder.sweep()
            self._is_swept = True
        loaded = self._read()
        if loaded.snapshot.exists:
            self._describe()
        return loaded

    def _read(self) -> _Loaded:
        snapshot = self._snapshot()
        if not snapshot.exists:
            if self._folder.is_described():
                raise self._error("the table was removed, but not what is remembered of it")
            self._check_apart()
            return _Loaded(snapshot, EventTableState())
        try:
            state = self._folder.read(snapshot.transactions[APPLICATION])
        except MALFORMED as error:
            raise self._damaged(f"it cannot be read: {error}") from error
        if state is None or state.table_id != snapshot.metadata["id"]:
            raise self._damaged("it is missing")
        return _Loaded(snapshot, state)

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
        hint = hint or f"Make it anew from the files: mirrorlake reset {self.table}."
        return EventTableError(what, table=str(self.table), hint=hint)

    def _damaged(self, why: str) -> EventStateDamaged:
        return EventStateDamaged(
            f"what is remembered of its keys is damaged: {why}",
            table=str(self.table),
            hint="Compute it anew from the table and the files that are there: "
            f"mirrorlake repair {self.table}.",
        )

    # -- what a batch does ----------------------------------------------------------------------

    def _apply(
        self, loaded: _Loaded, events: Sequence[TableEvents], *, is_truncated: bool = False
    ) -> EventTableReport | None:
        """None when another writer committed first. is_truncated: whether the rows that new
        truncations delete were deleted."""
        state = self._described(loaded.state, events)
        if not state.merges:
            return self._append(loaded, *self._rows(state, events))
        key = merging.key_columns(state.columns, state.key)
        keys = merging.keys_of(self._folder.files, key, state.columns, state.keys)
        search = Lookups(merging.searcher(keys), self._search(loaded, state))
        with looking_up(state, events, search) as lookups:
            return self._merge(loaded, state, events, keys, lookups, is_truncated)

    def _merge(
        self,
        loaded: _Loaded,
        state: EventTableState,
        events: Sequence[TableEvents],
        keys: KeyedFiles,
        lookups: Lookups,
        is_truncated: bool,
    ) -> EventTableReport | None:
        before, folder = loaded.state, self._folder.files
        key = merging.key_columns(state.columns, state.key)
        state, rows, letters = self._rows(state, events)
        changes = None
        if state.rule.startswith("oracle"):
            changes = merging.changes_of(folder, key, state.changes)
        guard = self._settings.guard // timedelta(milliseconds=1)
        truncations = state.truncated(rows.order.filter(pa.array(rows.truncation)))
        state = replace(state, truncations=tuple(truncations.to_pylist()))
        if state.truncations != before.truncations and before.number and not is_truncated:
            return self._truncate(loaded, events, keys, changes, truncations)
        rows = rows.only(~rows.truncation)
        with flush.flush_in_background():
            batch = merge_batch(state, key, rows)
            found = merging.merge(
                state.rule, guard, batch, keys, changes, truncations, lookups.state
            )
        del rows, batch  # copies of the events, which are not needed any more
        if found is None:
            if before.number and state.truncations == before.truncations:
                return EventTableReport(loaded.snapshot.version, letters=letters)
            found = merging.Merged(
                keys, changes, keys.arrow.empty_table(), keys.arrow.empty_table()
            )
        state = replace(state, changes=found.changes.files if found.changes else ())
        return self._write(loaded, state, found, letters, lookups.table)

    def _truncate(
        self,
        loaded: _Loaded,
        events: Sequence[TableEvents],
        keys: KeyedFiles,
        changes: KeyedFiles | None,
        truncations: pa.Table,
    ) -> EventTableReport | None:
        """Delete the rows that new truncations delete, and apply the events. The truncations are
        remembered with these: a process that ends before gets them again."""
        done = EventTableReport(loaded.snapshot.version)
        guard = self._settings.guard // timedelta(milliseconds=1)
        for found in truncated(loaded.state.rule, guard, keys, changes, truncations):
            part = self._write(loaded, loaded.state, found, ())
            if part is None:
                return None
            done, loaded = done.then(part), self._load()
        rest = self._apply(loaded, events, is_truncated=True)
        return rest and done.then(rest)

    def _described(self, state: EventTableState, events: Sequence[TableEvents]) -> EventTableState:
        """The state with name, key and columns of these events. Raises TableError."""
        table = str(self.table)
        name, source = events[0].name, events[0].source
        rule = self._settings.rule(source)
        for one in events:
            other = state.name if state.number else name
            if one.name != other:
                raise self._error(
                    f"events of {one.name} and of {other} would be in one table",
                    "Read them with two projects, or set source.dataset or source.dataset_prefix.",
                )
            if one.source is not source:
                raise self._error(
                    f"its events are of {one.source} and of {source}",
                    "Read them with two projects, or name the source in source.system.",
                )
        if state.number and (state.rule, state.is_append) != (rule, self._settings.is_append):
            raise self._error("it was made with another order or mode")
        columns = state.columns
        for one in events:
            columns = columns.widened(table, one.columns)
        named = {one for part in events for one in part.keys}
        if state.number:
            named.add(frozenset(state.key))
        if len(named) > 1:
            keys = " and ".join(sorted(", ".join(sorted(one)) or "none" for one in named))
            raise self._error(f"its key has changed ({KEY_CHANGED}): {keys}")
        if not state.number:
            wanted = next(iter(named))
            key = [one.source for one in columns if one.source in wanted]
            if len(key) < len(wanted):
                missing = ", ".join(sorted(wanted - set(key)))
                raise KeyColumnUnknown(
                    f"no event has a value of its key column {missing}",
                    table=table,
                    hint="It is tried again when more events come. If the table has no such "
                    "column, name its key in source.keys.",
                )
            check_key(table, columns, key)
            state = replace(
                state, name=name, rule=rule, key=tuple(key), is_append=self._settings.is_append
            )
        return replace(state, columns=columns)

    def _rows(
        self, state: EventTableState, events: Sequence[TableEvents]
    ) -> tuple[EventTableState, AppliedRows, list[DeadLetter]]:
        """The state with the latest time, the events that can be applied, and the others."""
        with ThreadPoolExecutor(THREADS, thread_name_prefix="rows") as pool:
            found = list(pool.map(checked_rows, events, repeat(state)))
        letters = [letter for _rows, own in found for letter in own]
        rows = AppliedRows.together([rows for rows, _own in found])
        state = replace(state, source_ms=max(state.source_ms, rows.latest))
        if not state.number:
            kept_ms = self._settings.retention // timedelta(milliseconds=1)
            state = replace(state, pruned_ms=state.source_ms - kept_ms)
        return state, rows, letters

    def _append(
        self,
        loaded: _Loaded,
        state: EventTableState,
        rows: AppliedRows,
        letters: Sequence[DeadLetter],
    ) -> EventTableReport | None:
        """Add the events that were not seen before (ST-234, ST-239, ST-251)."""
        seen = merging.seen_events(self._folder.files, state.keys)
        first = first_of_each(rows.order)
        events = rows.order.take(pa.array(first))
        own = pa.table([identities(events), events["source_ms"]], schema=seen.arrow)
        known = seen.find(own.select([IDENTITY])).rows.column(IDENTITY)
        is_new = pc.invert(pc.is_in(own.column(IDENTITY), value_set=known.combine_chunks()))
        which = first[contiguous(is_new).to_numpy(zero_copy_only=False)]
        if not len(which) and state.number and state.columns == loaded.state.columns:
            return EventTableReport(loaded.snapshot.version, letters=letters)
        with flush.flush_in_background():
            kept = seen.put(own.filter(is_new)).compacted()
        state = replace(state, keys=kept.files)
        new = appended_rows(state, rows, which, with_metadata=self._has_metadata(loaded))
        return self._write(loaded, state, new, letters)

    def _has_metadata(self, loaded: _Loaded) -> bool:
        """Whether rows have position and time; a table that has these columns always fills them."""
        if not loaded.snapshot.exists:
            return self._settings.metadata_columns
        return self._settings.metadata_columns or ROW_POSITION in loaded.schema.schema

    def _write(
        self,
        loaded: _Loaded,
        state: EventTableState,
        found: merging.Merged | pa.Table,
        letters: Sequence[DeadLetter],
        search: Search | None = None,
    ) -> EventTableReport | None:
        """Write and commit rows. None when another writer committed first. search: as for
        `rewrite`."""
        described = self._metadata(loaded, state)
        schema = loaded.schema if described is None else parse(described)
        names = self._key_names(state)
        if not is_url(self.location):
            Path(self.location).mkdir(parents=True, exist_ok=True)
        with open_workspace(self.location, self._options) as workspace, flush.flush_in_background():
            if isinstance(found, pa.Table):
                rows = found.select(schema.schema.names)
                actions = append(workspace.folder, schema, [rows] if rows.num_rows else [], [])
                counts, parked = Counts(found.num_rows), 0
            else:
                with_metadata = self._has_metadata(loaded)
                rows = table_rows(state, found.upserts, with_metadata=with_metadata).select(
                    schema.schema.names
                )
                net = merging.net_changes(found, rows, names)
                with ThreadPoolExecutor(1, thread_name_prefix="remember") as pool:
                    keys = pool.submit(found.remembered)
                    if any(map(has_huge, rows.columns)):
                        keys.result()  # so that such a value is not written twice at once
                    where = workspace.folder, loaded.files, schema
                    fetch = workspace.fetch
                    done = rewrite(*where, net, THREADS, (), fetch, search=search)
                state = replace(state, keys=keys.result().files)
                actions, parked = done.actions, found.parked
                counts = Counts(done.inserted, done.updated, done.deleted)
            workspace.upload(actions)
        version = loaded.snapshot.version + 1
        operation = "MERGE"
        actions = list(actions)
        if described is not None:
            actions = [{"metaData": described}, *actions]
        if not loaded.snapshot.exists:
            actions, operation = [{"protocol": PROTOCOL}, *actions], "CREATE TABLE"
        elif isinstance(found, pa.Table):
            operation = "WRITE"
        state = replace(
            state,
            table_id=(described or loaded.snapshot.metadata)["id"],
            counts=Counts.total([state.counts, counts]),
        )
        state = self._folder.add(state, loaded.state)
        self._reached(CrashPoint.KEYS_WRITTEN)
        actions.append({"txn": {"appId": APPLICATION, "version": state.number}})
        if not self._commit(version, actions, operation, {"mirrorlake_events": state.number}):
            return None
        self._reached(CrashPoint.EVENTS_COMMITTED)
        self._describe()
        self._folder.discard(state)
        return EventTableReport(version, counts, letters, parked, commits=1)

    def _search(self, loaded: _Loaded, state: EventTableState) -> Search | None:
        """Finds the rows of keys, given under internal names; None if the table has to be looked
        into later: it gets columns, or its files would have to be fetched in vain."""
        if is_url(self.location) or self._metadata(loaded, state) is not None:
            return None
        search = searcher(Path(self.location), loaded.files, loaded.schema, THREADS)
        return lambda keys: search(keys.rename_columns(self._key_names(state)))

    def _metadata(self, loaded: _Loaded, state: EventTableState) -> dict[str, Any] | None:
        """The metaData action of a new table, or of one with new columns."""
        wanted = state.columns.schema(struct_type(state), with_metadata=self._has_metadata(loaded))
        if not loaded.snapshot.exists:
            key = {KEY_COLUMNS: json.dumps(list(self._key_names(state)))}
            own = {OF_EVENTS: json.dumps({"format": 1, "name": state.name})}
            return metadata(wanted, mapped=needs_mapping(wanted), properties=own | key)
        present = loaded.schema.schema
        new = [column for column in wanted if column.name not in present]
        return widened(loaded.snapshot.metadata, new) if new else None

    def _key_names(self, state: EventTableState) -> list[str]:
        """The key columns in the table; empty for a table that keeps every event."""
        if not state.merges:
            return []
        return [state.columns.name_of(name) or name for name in state.key]

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
