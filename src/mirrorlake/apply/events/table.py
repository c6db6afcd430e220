"""One table that is made of events.

Order: read → write what is remembered → write rows → commit rows and the number of the batch at
once. The record of what is remembered has the same number, and counts when the table has it; so a
process may die at any point, and the same events may come again (ST-223, ST-232).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.apply.events import merging
from mirrorlake.apply.events.columns import (
    check_key,
)
from mirrorlake.apply.events.content import identities
from mirrorlake.apply.events.keyed_files import KeyedFiles
from mirrorlake.apply.events.reading import DeadLetter, TableEvents
from mirrorlake.apply.events.rows import (
    AppliedRows,
    appended_rows,
    checked_rows,
    merge_batch,
    struct_type,
    table_rows,
)
from mirrorlake.apply.events.settings import EventInput
from mirrorlake.apply.events.state import MALFORMED, EventTableState, StateFolder
from mirrorlake.delta.log import checkpoint
from mirrorlake.delta.log.durability import flush_commit
from mirrorlake.delta.log.table_log import BrokenLog, TableLog, TableSnapshot
from mirrorlake.delta.schema import OF_EVENTS, TableSchema, parse
from mirrorlake.delta.workspace import at_hand
from mirrorlake.delta.write import flush
from mirrorlake.delta.write.append import append
from mirrorlake.delta.write.commit import write_commit
from mirrorlake.delta.write.compact import compact
from mirrorlake.delta.write.rewrite import rewrite
from mirrorlake.delta.write.table_metadata import PROTOCOL, metadata, widened
from mirrorlake.errors import EventTableError, KeyColumnUnknown, Unavailable
from mirrorlake.events.types import UnifiedType
from mirrorlake.mirror.compaction import small_files
from mirrorlake.mirror.engine import Counts
from mirrorlake.mirror.order import first_of_each
from mirrorlake.mirror.schema_evolution import needs_mapping
from mirrorlake.mirror.strategy import TableFacts
from mirrorlake.mirror.table.progress import KEY_COLUMNS
from mirrorlake.model import types
from mirrorlake.model.arrow import contiguous
from mirrorlake.model.crash_points import CrashHook, CrashPoint, no_crash
from mirrorlake.model.table import Column, TableId
from mirrorlake.root import delta_path
from mirrorlake.storage.local import flush_folder
from mirrorlake.storage.store import Store
from mirrorlake.storage.urls import is_url

APPLICATION = "mirrorlake-events"
ATTEMPTS = 20
"""At one batch, while other writers are faster."""
CHECKPOINT = 50
"""Commits from one checkpoint to the next."""
THREADS = 2
IDENTITY = "identity"


@dataclass(frozen=True, slots=True)
class EventTableReport:
    """What a batch did. version: of the table; letters: events that could not be applied; parked:
    deletions that wait for the event that tells their key (ST-230)."""

    version: int
    counts: Counts = field(default_factory=Counts)
    letters: Sequence[DeadLetter] = ()
    parked: int = 0
    commits: int = 0


@dataclass(frozen=True, slots=True)
class _Loaded:
    """The table and what is remembered of it, at one version."""

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
        self._is_swept = False

    @property
    def known(self) -> dict[str, UnifiedType]:
        """The types of its columns, by their names in events. Raises EventTableError."""
        return self._load().state.columns.known

    def apply(self, events: Sequence[TableEvents]) -> EventTableReport:
        """Apply events, in whatever order, whether they were applied before or not.

        Raises TableError for a table that stops, Unavailable.
        """
        for _attempt in range(ATTEMPTS):
            done = self._apply(self._load(), events)
            if done is not None:
                return done
        raise self._error(
            "other writers are faster all the time", "Stop the other writer, and run it again."
        )

    def compact(self) -> None:
        """Write small files of the table anew together, where there are many; one step."""
        loaded = self._load()
        chosen = small_files.choose(loaded.files) if loaded.snapshot.exists else ()
        if not chosen:
            return
        with at_hand(self.location, self._options) as workspace, flush.behind():
            workspace.fetch(chosen)
            key = self._key_names(loaded.state)
            actions = compact(workspace.folder, chosen, loaded.schema, key)
            workspace.keep(actions)
        self._commit(loaded.snapshot.version + 1, actions, "OPTIMIZE", {})

    # -- what there is --------------------------------------------------------------------------

    def _load(self) -> _Loaded:
        if not self._is_swept:
            self._folder.sweep()
            self._is_swept = True
        try:
            snapshot = self._log.snapshot()
        except FileNotFoundError:
            snapshot = TableSnapshot()
        except BrokenLog as error:
            raise self._error(f"its Delta log cannot be read: {error}") from error
        number = snapshot.transactions.get(APPLICATION, 0) if snapshot.exists else 0
        if not snapshot.exists:
            if self._folder.is_described:
                raise self._error("the table was removed, but not what is remembered of it")
            return _Loaded(snapshot, EventTableState())
        self._check_table(snapshot, number)
        try:
            state = self._folder.read(number)
        except MALFORMED as error:
            raise self._error(f"what is remembered of its keys cannot be read: {error}") from error
        if state is None or state.table_id != snapshot.metadata["id"]:
            raise self._error("what is remembered of its keys is missing")
        return _Loaded(snapshot, state)

    def _check_table(self, snapshot: TableSnapshot, number: int) -> None:
        if OF_EVENTS not in snapshot.properties or not number:
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

    def _error(self, what: str, hint: str = "") -> EventTableError:
        hint = hint or f"Make it anew from the files: mirrorlake reset {self.table}."
        return EventTableError(what, table=str(self.table), hint=hint)

    # -- what a batch does ----------------------------------------------------------------------

    def _apply(self, loaded: _Loaded, events: Sequence[TableEvents]) -> EventTableReport | None:
        """None when another writer was faster."""
        before = loaded.state
        state = self._described(before, events)
        rows, letters = self._rows(state, events)
        state = replace(state, source_ms=max(state.source_ms, rows.latest))
        key = merging.key_columns(state.columns, state.key) if state.merges else []
        folder = self._folder.files
        if not state.merges:
            return self._append(loaded, state, rows, letters)
        keys = merging.keys_of(folder, key, state.columns, state.keys)
        changes = None
        if state.rule.startswith("oracle"):
            changes = merging.changes_of(folder, key, state.changes)
        guard = self._settings.guard // timedelta(milliseconds=1)
        with flush.behind():
            found = merging.merge(state.rule, guard, merge_batch(state, key, rows), keys, changes)
        if found is None:
            if before.number:
                return EventTableReport(loaded.snapshot.version, letters=letters)
            found = merging.Merged(
                keys, changes, keys.arrow.empty_table(), keys.arrow.empty_table()
            )
        state = replace(
            state,
            keys=found.keys.files,
            changes=found.changes.files if found.changes else (),
        )
        return self._write(loaded, state, found, letters)

    def _described(self, state: EventTableState, events: Sequence[TableEvents]) -> EventTableState:
        """With name, key and columns as these events have them. Raises TableError."""
        table = str(self.table)
        name, source = events[0].name, events[0].source
        rule = self._settings.rule(source)
        for one in events:
            if (one.name, one.source) != (name, source) or (state.number and state.name != name):
                other = state.name if state.number else name
                raise self._error(
                    f"events of {one.name} and of {other} would be in one table",
                    "Read them with two projects, or set source.dataset or source.prefix.",
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
            raise self._error(f"its key has changed, which is not supported: {keys}")
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
    ) -> tuple[AppliedRows, list[DeadLetter]]:
        found: list[AppliedRows] = []
        letters: list[DeadLetter] = []
        for part in events:
            rows, own = checked_rows(part, state)
            found.append(rows)
            letters += own
        return AppliedRows.together(found), letters

    def _append(
        self,
        loaded: _Loaded,
        state: EventTableState,
        rows: AppliedRows,
        letters: Sequence[DeadLetter],
    ) -> EventTableReport | None:
        """Add the events that were not seen before (ST-234, ST-239, ST-251)."""
        seen = KeyedFiles.of(
            self._folder.files, [Column(IDENTITY, types.BINARY)], (IDENTITY,), state.keys
        )
        first = first_of_each(rows.order)
        own = pa.table({IDENTITY: identities(rows.order.take(pa.array(first)))})
        known = seen.find(own).column(IDENTITY)
        is_new = pc.invert(pc.is_in(own.column(IDENTITY), value_set=known.combine_chunks()))
        which = first[contiguous(is_new).to_numpy(zero_copy_only=False)]
        if not len(which) and state.number and state.columns == loaded.state.columns:
            return EventTableReport(loaded.snapshot.version, letters=letters)
        with flush.behind():
            kept = seen.put(own.filter(is_new)).compacted()
        state = replace(state, keys=kept.files)
        return self._write(loaded, state, appended_rows(state, rows, which), letters)

    def _write(
        self,
        loaded: _Loaded,
        state: EventTableState,
        found: merging.Merged | pa.Table,
        letters: Sequence[DeadLetter],
    ) -> EventTableReport | None:
        """Write rows, and make them part of the table. None when another writer was faster."""
        described = self._metadata(loaded, state)
        schema = loaded.schema if described is None else parse(described)
        names = self._key_names(state)
        if not is_url(self.location):
            Path(self.location).mkdir(parents=True, exist_ok=True)
        with at_hand(self.location, self._options) as workspace, flush.behind():
            if isinstance(found, pa.Table):
                rows = found.select(schema.schema.names)
                actions = append(workspace.folder, schema, [rows] if rows.num_rows else [], [])
                counts, parked = Counts(found.num_rows), 0
            else:
                rows = table_rows(state, found.upserts).select(schema.schema.names)
                net = merging.net_changes(found, rows, names)
                done = rewrite(
                    workspace.folder, loaded.files, schema, net, THREADS, (), workspace.fetch
                )
                actions, parked = done.actions, found.parked
                counts = Counts(done.inserted, done.updated, done.deleted)
            workspace.keep(actions)
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
        state = self._folder.add(state)
        self._reached(CrashPoint.KEYS_WRITTEN)
        actions.append({"txn": {"appId": APPLICATION, "version": state.number}})
        if not self._commit(version, actions, operation, {"mirrorlake_events": state.number}):
            return None
        self._reached(CrashPoint.EVENTS_COMMITTED)
        if not self._folder.is_described:
            self._folder.describe(self.table)
        self._folder.discard(state)
        return EventTableReport(version, counts, letters, parked, commits=1)

    def _metadata(self, loaded: _Loaded, state: EventTableState) -> dict[str, Any] | None:
        """The metaData action of a new table, or of one with new columns."""
        wanted = state.columns.schema(struct_type(state))
        if not loaded.snapshot.exists:
            key = {KEY_COLUMNS: json.dumps(list(self._key_names(state)))}
            own = {OF_EVENTS: json.dumps({"format": 1, "name": state.name})}
            return metadata(wanted, mapped=needs_mapping(wanted), properties=own | key)
        present = loaded.schema.schema
        new = [column for column in wanted if column.name not in present]
        return widened(loaded.snapshot.metadata, new) if new else None

    def _key_names(self, state: EventTableState) -> list[str]:
        """The key in the table; none of one that keeps every event."""
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
        if not is_url(self.location):
            for folder in (Path(self.location), Path(self.location, "_change_data")):
                if folder.exists():
                    flush_folder(folder)
        try:
            done = write_commit(
                self.location,
                version,
                actions,
                self._options,
                operation=operation,
                userMetadata=json.dumps(said),
            )
        except OSError as error:
            # It may have happened: whoever calls again finds out from what is recorded.
            why = error.strerror or type(error).__name__
            raise Unavailable(f"the storage does not answer: {why}", where=self.location) from error
        if done and not is_url(self.location):
            flush_commit(Path(self.location), version)
            if version and version % CHECKPOINT == 0:
                with suppress(checkpoint.Unfamiliar):
                    checkpoint.write(Path(self.location))
        return done
