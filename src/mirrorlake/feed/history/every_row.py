"""Histories of type 2: every row that a key had, with its interval (CF-203).

A row that ends is deleted from its file by a deletion vector and written again with its end; open
and ended rows are written to different files. The lookup of open rows only reads files with open
rows, so the cost depends on the changes and not on the size of the history. All of it is one commit
(CF-201).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.delta.lookup.key_lookup import Matches, candidates, find_rows
from mirrorlake.delta.write.append import append
from mirrorlake.delta.write.data_files import removed
from mirrorlake.delta.write.rewrite import Action, delete_rows, remaining_rows, write_data_files
from mirrorlake.feed.history.bounds import bounds_of
from mirrorlake.feed.history.intervals import IntervalRows, OpenRows, intervals
from mirrorlake.feed.history.settings import (
    END_AT,
    FROM_SNAPSHOT,
    IS_CURRENT,
    START_AT,
    HistorySettings,
)
from mirrorlake.feed.targets.build import THREADS, Basis, TargetChanges
from mirrorlake.feed.targets.changes import keyed
from mirrorlake.feed.targets.rows import RowsOfOneKey, own_columns, target_columns, unlike
from mirrorlake.feed.targets.source import PORTION_ROWS, Portion
from mirrorlake.feed.targets.target import FEED
from mirrorlake.mirror.compaction.small_files import files_to_join
from mirrorlake.model.arrow import arrow_schema, arrow_type, contiguous
from mirrorlake.model.table import Column, Schema


@dataclass(frozen=True, slots=True)
class EveryRow:
    """A `TargetKind`: the rows whose interval contains a version are the source as of that version,
    if every column is tracked (CF-209)."""

    options: HistorySettings
    kind: str = "a history of type 2"
    portion_rows: int = PORTION_ROWS

    def settings(self, key: Sequence[str]) -> Mapping[str, Any]:
        return self.options.as_record(key)

    @property
    def needs_key(self) -> bool:
        return True

    def properties(self, key: Sequence[str]) -> Mapping[str, str]:  # noqa: ARG002  (of the contract)
        return {FEED: "false"}

    def columns(self, source: Schema, key: Sequence[str], where: str) -> Sequence[Column]:
        return target_columns(
            source, self.options.columns, [*key, *(self.options.track or ())], where
        )

    def sought(self, key: Sequence[str]) -> list[str]:
        return [*key, END_AT]

    def begin(self, basis: Basis, rows: Iterator[pa.Table], version: int) -> TargetChanges:
        bounds = bounds_of(self.options.bounds, basis, [(version, None)])
        own = {START_AT: bounds.values[0].as_py(), IS_CURRENT: True, FROM_SNAPSHOT: True}
        counted = RowsOfOneKey(rows, basis.key, basis.where, version)
        blocks = (own_columns(some, basis.schema, own) for some in counted)
        actions = append(basis.table.folder, basis.schema, blocks, self.sought(basis.key))
        return TargetChanges(actions, counted.count, clock=bounds.clock)

    def apply(self, basis: Basis, portion: Portion) -> TargetChanges:
        schema = arrow_schema(portion.schema.schema)
        changes = keyed(portion.commits, basis.key, schema, basis.where)
        if not changes.keys.num_rows:
            return TargetChanges()
        commits = [(commit.version, commit.time) for commit in portion.commits]
        bounds = bounds_of(self.options.bounds, basis, commits)
        searched, found = self._open_rows(basis, changes.keys)
        count = np.bincount(found.code, minlength=changes.keys.num_rows)
        if (count != changes.existed).any():
            raise unlike(changes, count, basis.where, portion.last)
        new = intervals(
            OpenRows(found.rows, found.code), changes, bounds.values, self.options.track
        )
        actions = self._written(basis, searched, found, new)
        return TargetChanges(actions, new.opened, int(new.replaced.sum()), 0, bounds.clock)

    def _open_rows(
        self, basis: Basis, keys: pa.Table
    ) -> tuple[Sequence[Mapping[str, Any]], Matches]:
        """The open rows of some keys, and the files that were searched for them."""
        end = basis.schema.physical_of(END_AT)
        open_files = [add for add in basis.state.files if _may_be_open(add, end)]
        searched = candidates(open_files, basis.schema, keys)
        basis.table.fetch(searched)
        none = pa.nulls(keys.num_rows, arrow_type(self.options.bounds.type))
        sought = keys.append_column(END_AT, none)
        return searched, find_rows(basis.table.folder, searched, basis.schema, sought, THREADS)

    def _written(
        self,
        basis: Basis,
        searched: Sequence[Mapping[str, Any]],
        found: Matches,
        new: IntervalRows,
    ) -> list[Action]:
        """Write new rows and delete replaced ones. Returns the actions."""
        at = np.flatnonzero(new.replaced)
        gone = replace(
            found,
            rows=found.rows.take(pa.array(at)),
            code=found.code[at],
            file=found.file[at],
            row=found.row[at],
        )
        # In the target's own feed, rows that only move to another file would appear as changes.
        joins = () if basis.state.has_feed else files_to_join(basis.state.files)
        basis.table.fetch(joins)
        left = remaining_rows(basis.table.folder, joins, basis.schema, searched, gone)
        rows = pa.concat_tables([new.rows, *(some.cast(new.rows.schema) for some in left)])
        is_open = pc.is_null(contiguous(rows[END_AT]))
        actions: list[Action] = [{"remove": removed(add)} for add in joins]
        for some in (rows.filter(is_open), rows.filter(pc.invert(is_open))):
            if some.num_rows:
                actions += write_data_files(
                    basis.table.folder, basis.schema, some, self.sought(basis.key)
                )
        return [*actions, *delete_rows(basis.table.folder, searched, gone, joins)]


def _may_be_open(add: Mapping[str, Any], end: str) -> bool:
    """Whether a file may have open rows, according to its statistics."""
    counts = json.loads(add.get("stats") or "{}").get("nullCount") or {}
    return bool(counts.get(end) != 0)
