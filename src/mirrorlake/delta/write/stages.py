"""The steps of `rewrite` as functions that can run in different tasks.

A batch is distributed three times: by key, by file of the table, and by new row. The task of a key
computes its net change. The task of a file finds the existing rows, and is the only one that writes
its deletion vector. Change types depend on both, for which the tasks exchange numbers, not rows:

    reset_keys           by key     the keys that are reset, first those that have a row afterwards
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
class DeletedRows:
    """The rows of given keys that were deleted from given files.

    rows: their number; once, several: int64, the keys that had one row in the files, and those that
    had more.
    """

    actions: list[dict[str, Any]]
    rows: int
    once: np.ndarray
    several: np.ndarray


def reset_keys(net: NetChanges) -> tuple[pa.Table, int]:
    """The reset keys of net changes, which must not have missing values, and how many of them, from
    the first, are those of the rows that are the first of a reset key, in the order of these."""
    assert net.missing is None
    replaced = net.code[net.first]
    others = net.reset.copy()
    others[replaced] = False
    keys = np.concatenate((replaced, np.flatnonzero(others)))
    return net.keys.take(pa.array(keys)), len(replaced)


def delete_keys(
    table: Path,
    files: Sequence[Mapping[str, Any]],
    schema: TableSchema,
    keys: pa.Table,
    alive: np.ndarray,
    threads: int = 1,
) -> DeletedRows:
    """Delete the rows with these keys from these files, which no other task changes. alive: bool,
    whether a new row replaces the existing rows of the key."""
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
    table: Path, schema: TableSchema, rows: pa.Table, updated: np.ndarray
) -> list[dict[str, Any]]:
    """Write the after images of new rows. updated: bool, whether each replaces exactly one row of
    the table."""
    if not rows.num_rows or schema.feed is not FeedMode.IMAGES:
        return []
    kinds = rewrite.change_types(updated, "update_postimage", "insert")
    return rewrite.write_changes(table, rows, kinds, schema)
