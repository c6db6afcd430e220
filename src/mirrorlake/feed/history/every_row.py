"""Histories of type 2: every row that a key had, with its interval (CF-203).

A row that ends is taken out of its file by a deletion vector and written again with its end; open
rows and ended ones go into files of their own. Whoever looks for the open row of a key looks into
files that have one, so that the cost follows the changes and not the history. All of it is one
commit (CF-201).
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
from mirrorlake.delta.write.rewrite import Action, joined, taken_out, written
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
from mirrorlake.mirror.compaction.small_files import taken_along
from mirrorlake.model.arrow import arrow_schema, arrow_type, contiguous
from mirrorlake.model.table import Column, Schema


@dataclass(frozen=True, slots=True)
class EveryRow:
    """A `TargetKind`: the rows whose interval contains a version are the source as of it, where
    every column is tracked (CF-209)."""

    asked: HistorySettings
    kind: str = "a history of type 2"
    portion_rows: int = PORTION_ROWS

    def settings(self, key: Sequence[str]) -> Mapping[str, Any]:
        return self.asked.as_record(key)

    @property
    def needs_key(self) -> bool:
        return True

    def properties(self, key: Sequence[str]) -> Mapping[str, str]:  # noqa: ARG002  (of the contract)
        return {FEED: "false"}

    def columns(self, source: Schema, key: Sequence[str], where: str) -> Sequence[Column]:
        return target_columns(source, self.asked.columns, [*key, *(self.asked.track or ())], where)

    def begin(self, basis: Basis, rows: Iterator[pa.Table], version: int) -> TargetChanges:
        told = bounds_of(self.asked.bounds, basis, [(version, None)])
        own = {START_AT: told.values[0].as_py(), IS_CURRENT: True, FROM_SNAPSHOT: True}
        counted = RowsOfOneKey(rows, basis.key, basis.where, version)
        blocks = (own_columns(some, basis.schema, own) for some in counted)
        actions = append(basis.table.folder, basis.schema, blocks, self._sought(basis))
        return TargetChanges(actions, counted.count, clock=told.clock)

    def apply(self, basis: Basis, portion: Portion) -> TargetChanges:
        schema = arrow_schema(portion.schema.schema)
        changes = keyed(portion.commits, basis.key, schema, basis.where)
        if not changes.keys.num_rows:
            return TargetChanges()
        commits = [(commit.version, commit.time) for commit in portion.commits]
        told = bounds_of(self.asked.bounds, basis, commits)
        searched, found = self._open_rows(basis, changes.keys)
        count = np.bincount(found.code, minlength=changes.keys.num_rows)
        if (count != changes.existed).any():
            raise unlike(changes, count, basis.where, portion.last)
        new = intervals(OpenRows(found.rows, found.code), changes, told.values, self.asked.track)
        actions = self._written(basis, searched, found, new)
        return TargetChanges(actions, new.opened, int(new.replaced.sum()), 0, told.clock)

    def _open_rows(
        self, basis: Basis, keys: pa.Table
    ) -> tuple[Sequence[Mapping[str, Any]], Matches]:
        """The open rows of some keys, and the files that were searched for them."""
        end = basis.schema.physical_of(END_AT)
        open_files = [add for add in basis.state.files if _may_be_open(add, end)]
        searched = candidates(open_files, basis.schema, keys)
        basis.table.fetch(searched)
        none = pa.nulls(keys.num_rows, arrow_type(self.asked.bounds.type))
        sought = keys.append_column(END_AT, none)
        return searched, find_rows(basis.table.folder, searched, basis.schema, sought, THREADS)

    def _written(
        self,
        basis: Basis,
        searched: Sequence[Mapping[str, Any]],
        found: Matches,
        new: IntervalRows,
    ) -> list[Action]:
        """Write rows that come, and take out those that go: their actions."""
        at = np.flatnonzero(new.replaced)
        gone = replace(
            found,
            rows=found.rows.take(pa.array(at)),
            code=found.code[at],
            file=found.file[at],
            row=found.row[at],
        )
        # With a feed of its own, rows that only move to another file would be told as changes.
        joins = () if basis.state.has_feed else taken_along(basis.state.files)
        basis.table.fetch(joins)
        left = joined(basis.table.folder, joins, basis.schema, searched, gone)
        rows = pa.concat_tables([new.rows, *(some.cast(new.rows.schema) for some in left)])
        is_open = pc.is_null(contiguous(rows[END_AT]))
        actions: list[Action] = [{"remove": removed(add)} for add in joins]
        for some in (rows.filter(is_open), rows.filter(pc.invert(is_open))):
            if some.num_rows:
                actions += written(basis.table.folder, basis.schema, some, self._sought(basis))
        return [*actions, *taken_out(basis.table.folder, searched, gone, joins)]

    def _sought(self, basis: Basis) -> list[str]:
        """The columns by which rows are looked for, which have statistics in each file."""
        return [*basis.key, END_AT]


def _may_be_open(add: Mapping[str, Any], end: str) -> bool:
    """Whether a file can have a row without an end, by its statistics."""
    counts = json.loads(add.get("stats") or "{}").get("nullCount") or {}
    return bool(counts.get(end) != 0)
