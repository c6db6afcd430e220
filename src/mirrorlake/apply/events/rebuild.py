"""Computes the state of a table of events anew, from the rows of the table and from event files.

No row changes. Afterwards, as before: an event of a file that was applied changes nothing, nor does
an event that is earlier than the row of its key; a later one does. A row whose event is in none of
the files is compared with later events by source time, and is the later one of equal times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.apply.events.batches.spelling import spelled_alike
from mirrorlake.apply.events.columns import METADATA
from mirrorlake.apply.events.described import recognized
from mirrorlake.apply.events.reading import TableEvents
from mirrorlake.apply.events.remembered import merging
from mirrorlake.apply.events.remembered.content import content, identities
from mirrorlake.apply.events.remembered.keyed_files import KeyedFiles, reading
from mirrorlake.apply.events.remembered.merging import IDENTITY, MergeBatch
from mirrorlake.apply.events.remembered.state import EventTableState
from mirrorlake.apply.events.remembered.truncating import truncated
from mirrorlake.apply.events.remembered.unnamed import UnnamedEvents, is_unnamed
from mirrorlake.apply.events.rows import AppliedRows, appended_rows, checked_rows, merge_batch
from mirrorlake.apply.events.settings import EventInput
from mirrorlake.delta.lookup.key_lookup import candidates, find_rows, live_rows
from mirrorlake.delta.schema import TableSchema
from mirrorlake.delta.workspace import TableWorkspace
from mirrorlake.events.envelope import UUID
from mirrorlake.events.types import UnifiedType
from mirrorlake.mirror.event_order import ORDER, first_of_each, records_of_rows
from mirrorlake.mirror.event_order.resolution import DECIDES
from mirrorlake.mirror.event_order.rollbacks import TRANSACTION
from mirrorlake.model import keys as codes
from mirrorlake.model.arrow import contiguous

THREADS = 2
MOST_ROWS = 1 << 18
"""Maximum number of rows that are looked up together, which takes some hundred bytes per row."""
_EVENT = ["uuid", "source_ms", "content"]
"""What tells the event of a row, beside the key."""


@dataclass(frozen=True, slots=True)
class TableRows:
    """The rows of a table, in these files of a folder. Raises DamagedFiles, OSError."""

    folder: Path
    files: Sequence[Mapping[str, Any]]
    schema: TableSchema

    def parts(self) -> Iterator[pa.Table]:
        """All rows, in parts of MOST_ROWS."""
        for add in self.files:
            with reading():
                rows = live_rows(self.folder, add, self.schema)
            for first in range(0, rows.num_rows, MOST_ROWS):
                yield rows.slice(first, MOST_ROWS).combine_chunks()

    def find(self, keys: pa.Table) -> pa.Table:
        """The rows with one of these distinct keys."""
        searched = candidates(self.files, self.schema, keys)
        with reading():
            return find_rows(self.folder, searched, self.schema, keys, THREADS).rows


class StateRebuild:
    """The state of one table, while it is computed.

    state: without files; workspace: for these. Raises DamagedFiles, OSError.
    """

    def __init__(
        self,
        settings: EventInput,
        workspace: TableWorkspace,
        rows: TableRows,
        state: EventTableState,
    ) -> None:
        self._settings, self._workspace = settings, workspace
        self._rows, self._state = rows, state
        self._unnamed = UnnamedEvents()

    @property
    def known(self) -> Mapping[str, UnifiedType]:
        """The types of the columns, by name in the events."""
        return self._state.columns.known

    def add(self, events: TableEvents, *, is_applied: bool) -> None:
        """Remember events: first those that may not have been applied yet, otherwise in any order.
        Of these, only the events of rows count, and deletions of keys without a row, which would
        change nothing."""
        (events,), _names = spelled_alike([events], self._state.columns, is_case_only=True)
        state = recognized(self._state, events, self._settings)
        if state is None:
            return
        self._state = state
        (events,), _names = spelled_alike([events], state.columns)
        rows, _letters = checked_rows(events, state)
        if not state.merges:
            self._add_unnamed(rows, is_applied=is_applied)
            if is_applied:
                self._add_seen(rows.order)
            return
        if not is_applied:
            rows = rows.only(~rows.truncation & ~rows.incomplete)
            rows = rows.only(self._are_in_effect(rows))
        self._state = replace(state, source_ms=max(state.source_ms, rows.latest))
        self._truncate(rows)
        rows = rows.only(~rows.truncation)
        if rows.order.num_rows:
            self._merge(merge_batch(self._state, self._key(), rows))

    def done(self) -> EventTableState:
        """The state, with the rows that no event explained."""
        for rows in self._rows.parts():
            if self._state.merges:
                self._add_rows(rows)
            else:
                self._add_seen(self._order(rows.filter(pc.invert(is_unnamed(rows)))))
                self._unnamed.count(self._own(rows.filter(is_unnamed(rows))))
            times = _told(rows, 1)
            latest = max(self._state.source_ms, pc.max(times).as_py() or 0)
            self._state = replace(self._state, source_ms=latest)
        if found := self._unnamed.found():
            self._add_identities(pa.array(found, pa.binary()), pa.array(found.values(), pa.int64()))
        return self._state

    # -- tables that keep the last row of each key ---------------------------------------------

    def _merge(self, batch: MergeBatch) -> None:
        state, keys = self._state, self._keys()
        known = state.truncated(ORDER.empty_table())
        found = merging.merge(state.rule, self._guard, batch, keys, self._changes(), known)
        if found is not None:
            changes = found.changes.files if found.changes else ()
            self._state = replace(
                state,
                keys=found.remembered().files,
                changes=changes,
                waiting=(state.waiting or 0) + found.waiting,
            )

    def _truncate(self, rows: AppliedRows) -> None:
        state = self._state
        known = state.truncated(rows.order.filter(pa.array(rows.truncation)))
        if (truncations := tuple(known.to_pylist())) == state.truncations:
            return
        keys = self._keys()
        for found in truncated(state.rule, self._guard, keys, self._changes(), known):
            keys = found.keys
        self._state = replace(state, keys=keys.files, truncations=truncations)

    def _are_in_effect(self, rows: AppliedRows) -> np.ndarray:
        """Which of these events are those of the rows of the table, or deletions of keys without a
        row; bool."""
        batch = merge_batch(self._state, self._key(), rows)
        own = _event_facts(batch.records, self._key_names(), batch.uuid)
        wanted = merging.distinct(own.select(self._key_names()))
        if not wanted.num_rows:
            return np.zeros(0, bool)
        names = self._names_of_key()
        found = self._rows.find(wanted.rename_columns(names))
        facts, names = self._facts_of(found), self._key_names()
        has_row = _is_in(own.select(names), facts.select(names))
        return np.where(rows.deletion, ~has_row, _is_in(own, facts))

    def _add_rows(self, rows: pa.Table) -> None:
        """Add the rows that are not those of the deciding events of their keys."""
        if not rows.num_rows:
            return
        own = self._facts_of(rows)
        known = merging.as_order(self._keys().find(own.select(self._key_names())).rows)
        known = known.filter(known.column(DECIDES))
        told = _event_facts(known, self._key_names(), known.column(merging.UUID))
        unknown = pa.array(~_is_in(own, told))
        rows, own = rows.filter(unknown), own.filter(unknown)
        if not rows.num_rows:
            return
        values = self._values(rows)
        names = [*self._key_names(), *ORDER.names]
        columns = [*own.select(self._key_names()).columns, *self._order(rows).columns]
        count = rows.num_rows
        transactions = None
        if self._changes() is not None:
            nulls = pa.nulls(count, pa.string())
            transactions = pa.table([nulls, nulls], names=list(TRANSACTION))
        changed, complete = np.ones(count, bool), np.zeros(count, bool)
        uuid = _told(rows, 0)
        records = pa.table(columns, names=names)
        self._merge(MergeBatch(records, values, uuid, transactions, changed, complete))

    def _facts_of(self, rows: pa.Table) -> pa.Table:
        """Key and event of rows of the table."""
        keys = rows.select(self._names_of_key()).rename_columns(self._key_names())
        order = self._order(rows)
        records = pa.table(
            [*keys.columns, *order.columns], names=[*keys.column_names, *ORDER.names]
        )
        return _event_facts(records, self._key_names(), _told(rows, 0))

    # -- tables that keep every event -----------------------------------------------------------

    def _add_seen(self, order: pa.Table) -> None:
        events = order.take(pa.array(first_of_each(order)))
        self._add_identities(identities(events), events["source_ms"])

    def _add_unnamed(self, rows: AppliedRows, *, is_applied: bool) -> None:
        which = pc.is_null(contiguous(rows.head.column(UUID))).to_numpy(zero_copy_only=False)
        at = np.flatnonzero(which)
        own = self._own(appended_rows(self._state, rows, at, with_metadata=False))
        order = rows.order.take(pa.array(at))
        if is_applied:
            self._unnamed.add_applied(own, identities(order))
        else:
            self._unnamed.add(own, identities(order), order["source_ms"])

    def _own(self, rows: pa.Table) -> pa.Table:
        """Rows without position and time, which not every table has."""
        return rows.select([*(column.name for column in self._state.columns), METADATA])

    def _add_identities(self, found: pa.Array, source_ms: pa.Array | pa.ChunkedArray) -> None:
        state = self._state
        seen = merging.seen_events(self._workspace, state.keys)
        own = pa.table([found, source_ms], schema=seen.arrow)
        known = seen.find(own.select([IDENTITY])).rows.column(IDENTITY).combine_chunks()
        own = own.filter(pc.invert(pc.is_in(own.column(IDENTITY), value_set=known)))
        if not own.num_rows:
            return
        latest = max(state.source_ms, pc.max(own.column("source_ms")).as_py())
        self._state = replace(state, keys=seen.put(own).compacted().files, source_ms=latest)

    # -- parts ----------------------------------------------------------------------------------

    @property
    def _guard(self) -> int:
        return self._settings.guard // timedelta(milliseconds=1)

    def _key(self) -> list[Any]:
        return merging.key_columns(self._state.columns, self._state.key)

    def _key_names(self) -> list[str]:
        return [column.name for column in self._key()]

    def _names_of_key(self) -> list[str]:
        """The key columns in the table."""
        return [self._state.columns.name_of(name) or name for name in self._state.key]

    def _keys(self) -> KeyedFiles:
        state = self._state
        return merging.keys_of(self._workspace, self._key(), state.columns, state.keys)

    def _changes(self) -> KeyedFiles | None:
        if not self._state.rule.startswith("oracle"):
            return None
        return merging.changes_of(self._workspace, self._key(), self._state.changes)

    def _values(self, rows: pa.Table) -> pa.Table:
        columns = [rows.column(one.name) for one in self._state.columns]
        return pa.table(columns, names=[f"v{number}" for number in range(len(columns))])

    def _order(self, rows: pa.Table) -> pa.Table:
        named = self._values(rows).rename_columns([one.name for one in self._state.columns])
        found = content(named, by_value=self._state.content_by_value)
        return records_of_rows(_told(rows, 0), _told(rows, 1), found)


def _told(rows: pa.Table, member: int) -> pa.Array:
    """What the rows tell of their events: 0 for the uuid, 1 for the source time."""
    return pc.struct_field(contiguous(rows.column(METADATA)), [member])


def _event_facts(records: pa.Table, key: Sequence[str], uuid: pa.Array) -> pa.Table:
    own = [contiguous(records.column(name)) for name in ("source_ms", "content")]
    content = pa.array(own[1].to_numpy().view(np.int64))
    return pa.table(
        [*records.select(list(key)).columns, uuid, own[0], content], names=[*key, *_EVENT]
    )


def _is_in(rows: pa.Table, others: pa.Table) -> np.ndarray:
    """Which rows are among the others; bool."""
    both = pa.concat_tables([others.cast(rows.schema), rows]).combine_chunks()
    code = codes.encode(both).code
    return np.asarray(np.isin(code[others.num_rows :], code[: others.num_rows]))
