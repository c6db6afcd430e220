"""Histories of type 1: the newest row of each key (CF-197)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from mirrorlake.delta.write.append import append
from mirrorlake.delta.write.rewrite import rewrite
from mirrorlake.feed.history.settings import IS_DELETED, Deletes, HistorySettings
from mirrorlake.feed.targets.build import THREADS, Basis, TargetChanges
from mirrorlake.feed.targets.changes import KeyedChanges, keyed
from mirrorlake.feed.targets.rows import RowsOfOneKey, existing, own_columns, target_columns
from mirrorlake.feed.targets.source import PORTION_ROWS, Portion
from mirrorlake.mirror.compaction.small_files import files_to_join
from mirrorlake.mirror.table.progress import KEY_COLUMNS
from mirrorlake.model.arrow import arrow_schema, taken
from mirrorlake.model.net_changes import NetChanges
from mirrorlake.model.table import Column, Schema


@dataclass(frozen=True, slots=True)
class NewestRows:
    """A `TargetKind`: by default a table equal to its source."""

    options: HistorySettings
    kind: str = "a history of type 1"
    portion_rows: int = PORTION_ROWS

    def settings(self, key: Sequence[str]) -> Mapping[str, Any]:
        return self.options.as_record(key)

    @property
    def needs_key(self) -> bool:
        return True

    def properties(self, key: Sequence[str]) -> Mapping[str, str]:
        # Its own feed can be followed by key, like that of its source.
        return {KEY_COLUMNS: json.dumps(list(key))}

    def columns(self, source: Schema, key: Sequence[str], where: str) -> Sequence[Column]:
        return target_columns(source, self.options.columns, key, where)

    def sought(self, key: Sequence[str]) -> list[str]:
        return list(key)

    def begin(self, basis: Basis, rows: Iterator[pa.Table], version: int) -> TargetChanges:
        counted = RowsOfOneKey(rows, basis.key, basis.where, version)
        blocks = (own_columns(some, basis.schema, {IS_DELETED: False}) for some in counted)
        actions = append(basis.table.folder, basis.schema, blocks, self.sought(basis.key))
        return TargetChanges(actions, counted.count)

    def apply(self, basis: Basis, portion: Portion) -> TargetChanges:
        schema = arrow_schema(portion.schema.schema)
        changes = keyed(portion.commits, basis.key, schema, basis.where)
        flags = self.options.deletes is Deletes.FLAG
        net = net_of(changes, basis, keeps_deleted=flags)
        files = basis.state.files
        if flags and not changes.keys.num_rows:
            return TargetChanges()
        joins = files_to_join(files)
        table = basis.table
        done = rewrite(table.folder, files, basis.schema, net, THREADS, joins, table.fetch)
        known = int(changes.existed.sum())
        found = done.updated + done.deleted
        if done.duplicates or (found != known if not flags else found < known):
            raise existing(basis, changes, files, portion.last)
        return TargetChanges(done.actions, done.inserted, done.updated, done.deleted)


def net_of(changes: KeyedChanges, basis: Basis, *, keeps_deleted: bool = False) -> NetChanges:
    """The net effect of changes per key. keeps_deleted: a deleted key keeps its last row, with a
    flag (CF-197)."""
    last = changes.last
    after, gone = changes.after[last], changes.after[last] < 0
    state = np.where(gone, changes.before[last], after) if keeps_deleted else after
    kept = np.flatnonzero(state >= 0)
    rows = taken(changes.rows, state[kept])
    keys = changes.keys.num_rows
    # A key that one version deleted and inserted again has both changes in the target (CF-214).
    apart = changes.apart[last] & (changes.first == last)
    return NetChanges(
        keys=changes.keys,
        # All keys are looked up, even new ones: otherwise an existing one would get a second row.
        reset=np.ones(keys, bool),
        rows=own_columns(rows, basis.schema, {IS_DELETED: pa.array(gone[kept])}),
        source_row=state[kept],
        code=kept,
        first=~apart[kept],
        missing=None,
        base=np.full(len(kept), -1),
    )
