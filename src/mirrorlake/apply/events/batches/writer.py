"""Computes and writes what a batch of events changes in a table, which stays as it is until that is
committed.

Order: read → write the state → write rows. All files are new ones, which only a commit makes part
of the table, so that a batch may be prepared several times, in any process.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.apply.events.batches.prepared import (
    EventTableVersion,
    NewTruncations,
    PreparedBatch,
    WiderColumns,
    event_table_error,
)
from mirrorlake.apply.events.columns import EventTableColumns, check_key
from mirrorlake.apply.events.lookups import Lookups, looking_up
from mirrorlake.apply.events.reading import DeadLetter, TableEvents
from mirrorlake.apply.events.remembered import merging
from mirrorlake.apply.events.remembered.content import identities
from mirrorlake.apply.events.remembered.key_values import BY_VALUE, is_key, key_types
from mirrorlake.apply.events.remembered.keyed_files import THREADS, KeyedFiles
from mirrorlake.apply.events.remembered.merging import IDENTITY
from mirrorlake.apply.events.remembered.state import EventTableState, StateFolder
from mirrorlake.apply.events.remembered.waiting import waiting
from mirrorlake.apply.events.rows import (
    AppliedRows,
    appended_rows,
    checked_rows,
    is_truncation,
    merge_batch,
    struct_type,
    table_rows,
)
from mirrorlake.apply.events.settings import EventInput, source_table
from mirrorlake.apply.events.table_report import EventTableReport
from mirrorlake.delta.lookup.early_lookup import Search
from mirrorlake.delta.schema import OF_EVENTS, parse
from mirrorlake.delta.workspace import open_workspace
from mirrorlake.delta.write import flush
from mirrorlake.delta.write.append import append
from mirrorlake.delta.write.data_files import has_huge
from mirrorlake.delta.write.rewrite import rewrite, searcher
from mirrorlake.delta.write.table_metadata import PROTOCOL, metadata, widened
from mirrorlake.errors import KeyColumnUnknown
from mirrorlake.events.wider import has_every_value
from mirrorlake.mirror.engine import Counts
from mirrorlake.mirror.event_order import first_of_each
from mirrorlake.mirror.schema_evolution import needs_mapping
from mirrorlake.mirror.table.progress import KEY_COLUMNS
from mirrorlake.model.arrow import contiguous
from mirrorlake.model.change import ROW_POSITION
from mirrorlake.model.table import TableId, of_table
from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.urls import is_url

KEY_CHANGED = "BIGQUERY_UNSUPPORTED_PRIMARY_KEY_CHANGE"
"""The reason why a table stops whose key has changed (ST-263)."""

Preparation = PreparedBatch | NewTruncations | WiderColumns | EventTableReport
"""What a batch comes to: to commit; to truncate or to widen columns first; nothing to write, as
where no event of a new table can be applied, which says nothing of its order or key."""


@dataclass(frozen=True, slots=True)
class BatchWriter:
    """Prepares the batches of one table. folder: open."""

    table: TableId
    location: str
    options: ObjectOptions | None
    folder: StateFolder
    settings: EventInput

    def prepare(
        self,
        before: EventTableVersion,
        events: Sequence[TableEvents],
        *,
        is_truncated: bool = False,
    ) -> Preparation:
        """is_truncated: whether the rows that new truncations delete were deleted. Raises
        TableError."""
        state = self._described(before.state, events)
        if (wider := wider_columns(before.state, state)) is not None:
            return wider
        if not state.merges:
            return self._append(before, *self._rows(state, events))
        key = merging.key_columns(state.columns, state.key)
        keys = merging.keys_of(self.folder.files, key, state.columns, state.keys)
        search = Lookups(merging.searcher(keys), self._search(before, state))
        with looking_up(state, events, search) as lookups:
            return self._merge(before, state, events, keys, lookups, is_truncated)

    def _merge(
        self,
        before: EventTableVersion,
        state: EventTableState,
        events: Sequence[TableEvents],
        keys: KeyedFiles,
        lookups: Lookups,
        is_truncated: bool,
    ) -> Preparation:
        known, folder = before.state, self.folder.files
        key = merging.key_columns(state.columns, state.key)
        state, rows, letters = self._rows(state, events)
        changes = None
        if state.rule.startswith("oracle"):
            changes = merging.changes_of(folder, key, state.changes)
        if not known.number and not len(rows.order):
            return EventTableReport(before.snapshot.version, letters=letters)
        guard = self.settings.guard // timedelta(milliseconds=1)
        truncations = state.truncated(rows.order.filter(pa.array(rows.truncation)))
        state = replace(state, truncations=tuple(truncations.to_pylist()))
        if state.truncations != known.truncations and known.number and not is_truncated:
            return NewTruncations(keys, changes, truncations)
        rows, waited = rows.only(~rows.truncation), known.waiting
        if waited is None:  # a record of a release that did not count them
            waited = waiting(changes).num_rows if changes else 0
        with flush.flush_in_background():
            batch = merge_batch(state, key, rows)
            found = merging.merge(
                state.rule,
                guard,
                batch,
                keys,
                changes,
                truncations,
                lookups.state,
                keeps_changes=self.settings.keeps_changes,
            )
        del rows, batch  # copies of the events, which are not needed any more
        if found is None:
            if known.number and state.truncations == known.truncations:
                return EventTableReport(before.snapshot.version, letters=letters)
            found = merging.Merged(
                keys, changes, keys.arrow.empty_table(), keys.arrow.empty_table()
            )
        state = replace(
            state,
            changes=found.changes.files if found.changes else (),
            waiting=waited + found.waiting,
        )
        return self.write(before, state, found, letters, lookups.table)

    def _described(self, state: EventTableState, events: Sequence[TableEvents]) -> EventTableState:
        """The state with name, key and columns of these events. Raises TableError."""
        table = str(self.table)
        name, source = events[0].name, events[0].source
        rule = self.settings.rule(source)
        for one in events:
            other = state.name if state.number else name
            if one.name != other:
                raise event_table_error(
                    self.table,
                    f"events of {one.name} and of {other} would be in one table",
                    "Read them with two projects, or set source.dataset or source.dataset_prefix.",
                )
            if one.source is not source:
                raise event_table_error(
                    self.table,
                    f"its events are of {one.source} and of {source}",
                    "Read them with two projects, or name the source in source.system.",
                )
        state = replace(state, database=self._database(state, events))
        if state.number and (state.rule, state.is_append) != (rule, self.settings.is_append):
            raise event_table_error(self.table, "it was made with another order or mode")
        named = {one for part in events for one in part.keys}
        if state.number:
            named.add(frozenset(state.key))
        columns = self._columns(state, events, frozenset().union(*named))
        if len(named) > 1:
            keys = " and ".join(sorted(", ".join(sorted(one)) or "none" for one in named))
            what = f"its key has changed ({KEY_CHANGED}): {keys}"
            raise event_table_error(self.table, what, _other_key(self.table, named))
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
                state,
                name=name,
                rule=rule,
                key=tuple(key),
                is_append=self.settings.is_append,
                is_by_value=True,
                content_by_value=True,
            )
        return replace(state, columns=columns)

    def _columns(
        self, state: EventTableState, events: Sequence[TableEvents], key: Set[str]
    ) -> EventTableColumns:
        """The columns of the table with those of these events, and the types that they get. key:
        the names of key columns. Raises TableError."""
        typed = of_table(self.settings.types, source_table(events[0].name)) or {}
        by_value = state.content_by_value or not state.number
        known = {column.source: column.unified for column in state.columns}
        widened = partial(state.columns.widened, key=key, by_value=by_value)
        columns = widened(str(self.table), {name: typed[name] for name in known.keys() & typed})
        for column in columns:
            if (kind := typed.get(column.source, column.unified)) != column.unified:
                what = (
                    f"its column {column.source} is {known[column.source]}, and {kind} in "
                    "source.types"
                )
                raise event_table_error(self.table, what)
        for one in events:
            if is_truncation(one.change_type).all():
                continue  # may be read before there is a table, and says nothing of its columns
            kinds = typed if state.number else {**key_types(one), **typed}
            columns = columns.widened(
                str(self.table), one.columns, kinds, key=key, by_value=by_value
            )
        return columns

    def _database(self, state: EventTableState, events: Sequence[TableEvents]) -> str:
        """The database of the table and of these events, of which some may name none. Raises
        TableError for those of two: their rows would be merged."""
        named = dict.fromkeys(filter(None, [state.database, *(one.database for one in events)]))
        if len(named) > 1:
            raise event_table_error(
                self.table,
                f"events of {events[0].name} in the databases {' and '.join(sorted(named))} would "
                "be in one table",
                "Read each database with a project of its own: write their files below different "
                "folders and name these in source.path, with a root or a source.dataset_prefix "
                "each.",
            )
        return next(iter(named), "")

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
            kept_ms = self.settings.retention // timedelta(milliseconds=1)
            state = replace(state, pruned_ms=state.source_ms - kept_ms)
        return state, rows, letters

    def _append(
        self,
        before: EventTableVersion,
        state: EventTableState,
        rows: AppliedRows,
        letters: Sequence[DeadLetter],
    ) -> Preparation:
        """Add the events that were not seen before (ST-234, ST-239, ST-251)."""
        if not state.number and not len(rows.order):
            return EventTableReport(before.snapshot.version, letters=letters)
        seen = merging.seen_events(self.folder.files, state.keys)
        first = first_of_each(rows.order)
        events = rows.order.take(pa.array(first))
        own = pa.table([identities(events), events["source_ms"]], schema=seen.arrow)
        known = seen.find(own.select([IDENTITY])).rows.column(IDENTITY)
        is_new = pc.invert(pc.is_in(own.column(IDENTITY), value_set=known.combine_chunks()))
        which = first[contiguous(is_new).to_numpy(zero_copy_only=False)]
        if not len(which) and state.number and state.columns == before.state.columns:
            return EventTableReport(before.snapshot.version, letters=letters)
        with flush.flush_in_background():
            kept = seen.put(own.filter(is_new)).compacted()
        state = replace(state, keys=kept.files)
        new = appended_rows(state, rows, which, with_metadata=self._has_metadata(before))
        return self.write(before, state, new, letters)

    def write(
        self,
        before: EventTableVersion,
        state: EventTableState,
        found: merging.Merged | pa.Table,
        letters: Sequence[DeadLetter] = (),
        search: Search | None = None,
    ) -> PreparedBatch:
        """Write the files of a batch. search: as for `rewrite`."""
        described = self._metadata(before, state)
        schema = before.schema if described is None else parse(described)
        names = key_names(state)
        if not is_url(self.location):
            Path(self.location).mkdir(parents=True, exist_ok=True)
        with open_workspace(self.location, self.options) as workspace, flush.flush_in_background():
            if isinstance(found, pa.Table):
                rows = found.select(schema.schema.names)
                actions = append(workspace.folder, schema, [rows] if rows.num_rows else [], [])
                counts = Counts(found.num_rows)
            else:
                with_metadata = self._has_metadata(before)
                rows = table_rows(state, found.upserts, with_metadata=with_metadata).select(
                    schema.schema.names
                )
                net = merging.net_changes(found, rows, names)
                with ThreadPoolExecutor(1, thread_name_prefix="remember") as pool:
                    keys = pool.submit(found.remembered)
                    threads = THREADS
                    if any(map(has_huge, rows.columns)):
                        threads = 1  # so that such a value is not written twice at once
                        keys.result()
                        pa.default_memory_pool().release_unused()
                    where = workspace.folder, before.files, schema
                    fetch = workspace.fetch
                    done = rewrite(*where, net, threads, (), fetch, search=search)
                state = replace(state, keys=keys.result().files)
                actions = done.actions
                counts = Counts(done.inserted, done.updated, done.deleted)
            workspace.upload(actions)
        operation = "MERGE"
        actions = list(actions)
        if described is not None:
            actions = [{"metaData": described}, *actions]
        if not before.snapshot.exists:
            actions, operation = [{"protocol": PROTOCOL}, *actions], "CREATE TABLE"
        elif isinstance(found, pa.Table):
            operation = "WRITE"
        state = replace(
            state,
            table_id=(described or before.snapshot.metadata)["id"],
            counts=Counts.total([state.counts, counts]),
        )
        self.folder.upload(state, before.state)
        version = before.snapshot.version + 1
        name = self._stored_changes(before, state, found, schema.schema.names)
        return PreparedBatch(version, operation, actions, state, counts, letters, name)

    def _stored_changes(
        self,
        before: EventTableVersion,
        state: EventTableState,
        found: merging.Merged | pa.Table,
        columns: Sequence[str],
    ) -> str | None:
        """Write every change of the keys that are changed several times, if these are kept."""
        if not self.settings.keeps_changes or isinstance(found, pa.Table):
            return None
        changes = found.every_change
        if changes is None or not changes.num_rows:
            return ""
        rows = table_rows(state, changes, with_metadata=self._has_metadata(before))
        for index, name in enumerate(key_names(state)):  # deletions may have no other values
            place = rows.column_names.index(name)
            rows = rows.set_column(place, rows.field(place), changes.column(f"k{index}"))
        deletion = contiguous(changes.column("deletion")).to_numpy(zero_copy_only=False)
        return self.folder.stored_changes.write(rows.select(columns), deletion)

    def _has_metadata(self, before: EventTableVersion) -> bool:
        """Whether rows have position and time; a table that has these columns always fills them."""
        if not before.snapshot.exists:
            return self.settings.metadata_columns
        return self.settings.metadata_columns or ROW_POSITION in before.schema.schema

    def _search(self, before: EventTableVersion, state: EventTableState) -> Search | None:
        """Finds the rows of keys, given under internal names; None if the table has to be looked
        into later: it gets columns, or its files would have to be fetched in vain."""
        if is_url(self.location) or self._metadata(before, state) is not None:
            return None
        search = searcher(Path(self.location), before.files, before.schema, THREADS)
        return lambda keys: search(keys.rename_columns(key_names(state)))

    def _metadata(self, before: EventTableVersion, state: EventTableState) -> dict[str, Any] | None:
        """The metaData action of a new table, or of one with new columns."""
        wanted = state.columns.schema(struct_type(state), with_metadata=self._has_metadata(before))
        if not before.snapshot.exists:
            key = {KEY_COLUMNS: json.dumps(list(key_names(state)))}
            own = {OF_EVENTS: json.dumps(told(state))}
            return metadata(wanted, mapped=needs_mapping(wanted), properties=own | key)
        present = set(before.schema.schema.names)
        new = [column for column in wanted if column.name not in present]
        return widened(before.snapshot.metadata, new) if new else None


def wider_columns(before: EventTableState, after: EventTableState) -> WiderColumns | None:
    """Which columns of a table get wider types first; None if none does. A type of the same values
    is only another name for it, and new columns come with the batch."""
    both = list(zip(before.columns, after.columns, strict=False))
    widened = {
        column.name: (column.unified, wider.unified)
        for column, wider in both
        if not has_every_value(column.unified, wider.unified)
    }
    return (
        WiderColumns(EventTableColumns(tuple(one for _, one in both)), widened) if widened else None
    )


def told(state: EventTableState) -> dict[str, Any]:
    """What a table says of the one in the source."""
    found: dict[str, Any] = {"format": 1, "name": state.name}
    if state.is_by_value:
        kinds = {one.name: str(one.unified) for one in state.columns if is_key(state, one)}
        found[BY_VALUE] = kinds
    return found | {"database": state.database} if state.database else found


def _other_key(table: TableId, named: Collection[frozenset[str]]) -> str:
    """What to do about events that name several keys, of which none is that of all files."""
    anew = f"run `mirrorlake reset {table}`"
    if len(named) == 2 and frozenset() in named:
        (key,) = (sorted(one) for one in named if one)
        return (
            f"Some events name no key. If it is that of the others, set source.keys to "
            f"{{{table}: [{', '.join(key)}]}} and {anew}, which reads the files again. Before "
            "that, a reset deletes the rows, and the table stops again."
        )
    return (
        f"Move the files with the former key out of the folder that is read, and {anew}, which "
        "makes the table from the others; load it anew in its stream for rows that these lack. "
        "Before that, a reset deletes the rows, and the table stops again."
    )


def key_names(state: EventTableState) -> list[str]:
    """The key columns in the table; empty for a table that keeps every event."""
    if not state.merges:
        return []
    return [state.columns.name_of(name) or name for name in state.key]
