"""The deletions of Oracle that wait for the event with their key (ST-230).

The state has their number, which each batch changes by what it finds. Which ones they are is read
from the changes that are remembered, when somebody asks.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from mirrorlake.apply.events.remembered.keyed_files import DamagedFiles, KeyedFiles
from mirrorlake.apply.events.remembered.merging import as_order, changes_of, distinct, key_columns
from mirrorlake.apply.events.remembered.state import StateFolder, created, newest_state
from mirrorlake.mirror.event_order import ORDER, complete
from mirrorlake.mirror.event_order.rollbacks import INCOMPLETE, TRANSACTION
from mirrorlake.model.table import TableId
from mirrorlake.storage.store import Store

ATTEMPTS = 3
"""How often files are read that a running process may replace meanwhile."""


@dataclass(frozen=True, slots=True)
class WaitingDeletion:
    """A deletion by `row_id` alone, of a transaction."""

    row_id: str
    tx_id: str


@dataclass(frozen=True, slots=True)
class WaitingDeletions:
    """Those of a table. named: which they are, sorted; fewer than `count`, or none, while the
    process that applies events replaces the files, or if these are damaged."""

    table: TableId
    count: int
    named: tuple[WaitingDeletion, ...] = ()


def waiting(changes: KeyedFiles) -> pa.Table:
    """The deletions without a preceding event, with the columns of the changes. Raises
    DamagedFiles. Memory: a file, and the changes of rows of transactions with such deletions."""
    pairs = []
    for add in changes.files:
        rows = changes.live(add)
        pairs.append(rows.filter(rows.column(INCOMPLETE)).select(list(TRANSACTION)))
    wanted = distinct(pa.concat_tables(pairs)) if pairs else None
    if wanted is None or not wanted.num_rows:
        return changes.arrow.empty_table()
    others = {*ORDER.names, *TRANSACTION, INCOMPLETE}
    key = [name for name in changes.arrow.names if name not in others]
    found = complete(key, as_order(changes.find(wanted).rows).combine_chunks())
    return found.memory.take(pa.array(found.waiting))


def waiting_deletions(store: Store) -> list[WaitingDeletions]:
    """Those of each table that has some, sorted by table."""
    found = (_of_table(store, table) for table in sorted(created(store)))
    return [one for one in found if one is not None]


def _of_table(store: Store, table: TableId) -> WaitingDeletions | None:
    count, folder = 0, StateFolder(store, table)
    for _attempt in range(ATTEMPTS):
        state = newest_state(store, table)
        if state is None or not state.waiting:
            return None
        count = state.waiting
        key = key_columns(state.columns, state.key)
        with suppress(DamagedFiles), folder.open():
            rows = waiting(changes_of(folder.files, key, state.changes))
            pairs = zip(*(rows.column(n).to_pylist() for n in ("row_id", "tx_id")), strict=True)
            return WaitingDeletions(
                table, count, tuple(WaitingDeletion(*one) for one in sorted(pairs))
            )
    return WaitingDeletions(table, count)
