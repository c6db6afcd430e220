"""Compaction: rewrites the live rows of several files into fewer files, sorted by key.

The change feed is not affected: every action has `dataChange` false (CF-095). As in `rewrite`,
nothing here commits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.delta.lookup.key_lookup import live_rows
from mirrorlake.delta.schema import TableSchema
from mirrorlake.delta.write import data_files
from mirrorlake.delta.write.rewrite import write_data_files
from mirrorlake.model.arrow import taken


def compact(
    table: Path, files: Sequence[Mapping[str, Any]], schema: TableSchema, key: Sequence[str]
) -> list[dict[str, Any]]:
    """Rewrite the live rows of these files. Returns the add and remove actions.

    Memory: twice the rows.
    """
    rows = pa.concat_tables([live_rows(table, add, schema) for add in files])
    actions = write_data_files(table, schema, _ordered(rows, key), list(key), data_change=False)
    actions += [{"remove": data_files.removed(add, data_change=False)} for add in files]
    return actions


def _ordered(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Sort rows by key, so that a key lookup can skip most row groups."""
    if not key:
        return rows
    order = pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in key])
    return taken(rows, order)
