"""The steps of `rewrite` as functions that can run in different tasks.

A batch is distributed three times: by key, by file of the table, and by new row. The task of a key
computes its net change. The task of a file finds the existing rows, and is the only one that writes
its deletion vector. Change types depend on both, for which the tasks exchange numbers, not rows:

    reset_keys           by key     the keys that are reset, and which of them have a row afterwards
    delete_keys          by file    deletes the existing rows, and writes their before images
    write_after_images   by row     writes the after images of new rows

If a key has rows in files of different tasks, `delete_keys` of both returns it, and the batch has
to be applied by `rewrite`. As there, nothing here commits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mirrorlake.delta.lookup.key_lookup import find_rows
from mirrorlake.delta.schema import FeedMode, TableSchema
from mirrorlake.delta.write import rewrite
from mirrorlake.model.net_changes import NetChanges


@dataclass(frozen=True, slots=True)
class ResetKeys:
    """The reset keys of net changes.

    keys: the reset keys; alive: bool, whether a new row replaces the existing rows of the key;
    index: int64, for each row of the net changes, the row number of the key whose existing rows it
    replaces, or -1.
    """

    keys: pa.Table
    alive: np.ndarray
    index: np.ndarray


@dataclass(frozen=True, slots=True)
class DeletedRows:
    """The rows of given keys that were deleted from given files.

    rows: their number; once, several: int64, the keys that had one row in the files, and those that
    had more.
    """

    actions: list[dict[str, Any]]
    rows: int
    once: np.ndarray
    several: np.ndarray


def reset_keys(net: NetChanges) -> ResetKeys:
    """The reset keys of net changes, which must not have missing values."""
    assert net.missing is None
    reset = np.flatnonzero(net.reset)
    number = np.full(len(net.reset) + 1, -1)  # the last one is for rows without a key
    number[reset] = np.arange(len(reset))
    index = np.where(net.first, number[net.code], -1)
    alive = np.zeros(len(reset), bool)
    alive[index[index >= 0]] = True
    return ResetKeys(net.keys.take(pa.array(reset)), alive, index)


def delete_keys(
    table: Path,
    files: Sequence[Mapping[str, Any]],
    schema: TableSchema,
    keys: pa.Table,
    alive: np.ndarray,
    threads: int = 1,
) -> DeletedRows:
    """Delete the rows with these keys from these files, which no other task changes."""
    found = find_rows(table, files, schema, keys, threads)
    before = np.bincount(found.code, minlength=keys.num_rows)
    actions: list[dict[str, Any]] = []
    if len(found.code):
        if schema.feed is FeedMode.IMAGES:
            replaced = (alive & (before == 1))[found.code]
            kinds = rewrite.change_types(replaced, "update_preimage", "delete")
            actions += rewrite.write_changes(table, found.rows, kinds, schema)
        actions += rewrite.delete_rows(table, files, found)
    return DeletedRows(
        actions, len(found.code), np.flatnonzero(before == 1), np.flatnonzero(before > 1)
    )


def write_after_images(
    table: Path, schema: TableSchema, rows: pa.Table, index: np.ndarray, once: np.ndarray
) -> tuple[list[dict[str, Any]], int]:
    """Write the after images of new rows. Returns the actions and the number of updates.

    index: as in `ResetKeys`; once: bool, whether the key had one row in the table.
    """
    updated = np.zeros(len(index), bool)
    takes = index >= 0
    updated[takes] = once[index[takes]]
    if not rows.num_rows:
        return [], 0
    actions: list[dict[str, Any]] = []
    if schema.feed is FeedMode.IMAGES:
        kinds = rewrite.change_types(updated, "update_postimage", "insert")
        actions = rewrite.write_changes(table, rows, kinds, schema)
    return actions, int(updated.sum())
