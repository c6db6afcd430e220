"""What the log must have of a row that is changed: its key, or all of it.

Where whole rows are logged, what stands for a key is looked up in the catalog, which may be that of
a later moment. Rows from before it may have NULL in it, and are left to the reading of the table.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mirrorlake.errors import TableError
from mirrorlake.sources.postgresql import protocol
from mirrorlake.sources.postgresql.protocol import Tuples
from mirrorlake.sources.table import SourceTable


class KeyNotSent(Exception):
    """Rows were changed of which the log has no key, or not all that it has to have. rows: which of
    the changes."""

    def __init__(self, table: SourceTable, rows: np.ndarray) -> None:
        what = f"the key ({', '.join(table.key)})" if table.key else "all columns"
        super().__init__(f"the source did not send {what} of a row")
        self.rows = rows
        self.error = TableError(
            str(self),
            table=str(table.table),
            hint="Set a replica identity that contains the key on the table and all its "
            f"partitions, then run `mirrorlake reset {table.table}` to reload it.",
        )


def check_keys(old: Tuples, keys: Sequence[int], table: SourceTable, has_old: np.ndarray) -> None:
    """Every old tuple has the whole key, unless the replica identity was changed meanwhile.

    keys: where its columns stand; has_old: which changes the tuples are of. Raises KeyNotSent.
    """
    lacking = ~protocol.is_sent(old.kind[:, list(keys)]).all(axis=1)
    if lacking.any():
        raise KeyNotSent(table, np.flatnonzero(has_old)[lacking])


def check_filled(
    old: Tuples,
    new: Tuples,
    keys: Sequence[int],
    table: SourceTable,
    has_old: np.ndarray,
    is_new: np.ndarray,
) -> None:
    """No row has NULL in the key, where all of it is logged.

    keys, has_old: as of `check_keys`; is_new: which changes the new tuples are of. Raises
    KeyNotSent.
    """
    lacking = np.zeros(len(is_new), bool)
    for tuples, which in ((old, has_old), (new, is_new)):
        lacking[which] |= (tuples.kind[:, list(keys)] == protocol.NULL).any(axis=1)
    if lacking.any():
        raise KeyNotSent(table, np.flatnonzero(lacking))


def check_whole(
    kind: np.ndarray,
    shape: np.ndarray,
    table: SourceTable,
    old: Tuples,
    unlogged: Sequence[Sequence[int]] | None,
) -> None:
    """Every old row is sent whole, unless the replica identity was changed meanwhile.

    kind, shape: of each change; old: the old tuples of those that have one; unlogged: of a
    partitioned table, as of `PartlyLogged`. A row that may be one of such a partition is taken for
    one: it has NULL in each of the columns. Raises KeyNotSent, of a partitioned table.
    """
    lacking = (kind != protocol.INSERT) & (shape != protocol.OLD_TUPLE)
    has_old = np.flatnonzero((shape == protocol.KEY_TUPLE) | (shape == protocol.OLD_TUPLE))
    for columns in filter(None, unlogged or ()):
        lacking[has_old[(old.kind[:, list(columns)] == protocol.NULL).all(axis=1)]] = True
    if lacking.any() and unlogged is not None:
        raise KeyNotSent(table, np.flatnonzero(lacking))
    if lacking.any():
        raise TableError(
            "the source did not send a changed row as it was before: its replica identity is no "
            "longer full",
            table=str(table.table),
            hint=f"Run `mirrorlake reset {table.table}` to reload the table.",
        )
