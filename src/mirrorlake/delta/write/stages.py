"""What `rewrite` does, in parts that can be done in different places.

The keys of a batch are dealt out, its rows and the files of the table are given out by their size.
Who has keys knows what they leave behind; who has files knows what was there, and alone writes the
deletion vector of each. Kinds of images need both, and these exchange no rows for it, but numbers:

    left     by keys    which keys replaced or deleted, and which of them are left with a row
    taken    by files   the images of what was there, and its deletion; which keys had one row
    told     by rows    the images of what is there now

A key whose rows lie in files of different places is known to neither: `taken` of both tells it, and
such a batch is for `rewrite`. Like there, nothing here commits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mirrorlake.delta.lookup.key_lookup import find_rows
from mirrorlake.delta.schema import TableSchema
from mirrorlake.delta.write import rewrite
from mirrorlake.model.net import NetChanges


@dataclass(frozen=True, slots=True)
class Left:
    """What net changes leave of the keys that they reset.

    keys: these; alive: bool, whether the key is left with a row in the place of what it had; place:
    int64, for each of the changes' rows the number of the key whose place it takes, or -1.
    """

    keys: pa.Table
    alive: np.ndarray
    index: np.ndarray


@dataclass(frozen=True, slots=True)
class TakenOut:
    """What became of the rows that some files had of some keys.

    rows: how many; once, several: int64, the keys that had one row there, and those that had more.
    """

    actions: list[dict[str, Any]]
    rows: int
    once: np.ndarray
    several: np.ndarray


def left(net: NetChanges) -> Left:
    """What net changes leave. Values that the table has are not provided for."""
    assert net.missing is None
    wanted = np.flatnonzero(net.reset)
    number = np.full(len(net.reset) + 1, -1)  # the last one is for rows without a key
    number[wanted] = np.arange(len(wanted))
    index = np.where(net.first, number[net.code], -1)
    alive = np.zeros(len(wanted), bool)
    alive[index[index >= 0]] = True
    return Left(net.keys.take(pa.array(wanted)), alive, index)


def taken(
    table: Path,
    files: Sequence[Mapping[str, Any]],
    schema: TableSchema,
    keys: pa.Table,
    alive: np.ndarray,
    threads: int = 1,
) -> TakenOut:
    """Take the rows with these keys out of these files; nobody else works on the files."""
    found = find_rows(table, files, schema, keys, threads)
    before = np.bincount(found.code, minlength=keys.num_rows)
    actions: list[dict[str, Any]] = []
    if len(found.code):
        replaced = (alive & (before == 1))[found.code]
        kinds = rewrite.kinds(replaced, "update_preimage", "delete")
        actions += rewrite.told(table, found.rows, kinds, schema)
        actions += rewrite.taken_out(table, files, found)
    return TakenOut(
        actions, len(found.code), np.flatnonzero(before == 1), np.flatnonzero(before > 1)
    )


def told(
    table: Path, schema: TableSchema, rows: pa.Table, index: np.ndarray, once: np.ndarray
) -> tuple[list[dict[str, Any]], int]:
    """Tell of the rows that are there now: the actions, and how many of them are updates.

    place: as in `Left`; once: bool, the keys that had one row in the table.
    """
    updated = np.zeros(len(index), bool)
    takes = index >= 0
    updated[takes] = once[index[takes]]
    if not rows.num_rows:
        return [], 0
    kinds = rewrite.kinds(updated, "update_postimage", "insert")
    return rewrite.told(table, rows, kinds, schema), int(updated.sum())
