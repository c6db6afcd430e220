"""The pieces of a batch that is spread over many tasks; see `spread`.

Each is a specification with its work, as `task.TaskSpec` is for a whole batch. What goes from one
to the next is rows in a scratch folder, and numbers in what it hands back. Values that the source
did not send bind keys to each other and to the table: such a batch is not taken apart.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from mirrorlake.lake import parts
from mirrorlake.lake.place import at_hand
from mirrorlake.lake.probe import candidates
from mirrorlake.lake.rewrite import written
from mirrorlake.landing.bounded import Share
from mirrorlake.landing.parquet import Rows
from mirrorlake.mirror import receipt
from mirrorlake.mirror.fold import Batch, fold
from mirrorlake.model.arrow import contiguous
from mirrorlake.spark import scratch, task
from mirrorlake.spark.dealing import dealt

# -- rows, dealt out by their keys ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Part:
    """A landed file or a share of it. number: of the file in the batch."""

    number: int
    landed: task.LandedPath
    share: Share


@dataclass(frozen=True, slots=True)
class Dealt:
    """place: the changes, a section for each part. rows, size: of each file that was read from, by
    its number: its rows by marker, and their bytes. dealer: who dealt; others deal otherwise.
    """

    place: str
    rows: tuple[tuple[int, receipt.Rows], ...]
    size: tuple[tuple[int, int], ...]
    dealer: str
    partial: bool


@dataclass(frozen=True, slots=True)
class DealSpec(task.Piece):
    """Read landed files and deal their rows out to `parts`, in their order."""

    landed: tuple[Part, ...]
    parts: int

    def work(self) -> Dealt:
        batch = self.batch
        found = [task.rows(batch, part.landed, part.share) for part in self.landed]
        data = pa.concat_tables([rows.data for rows in found])
        marker = np.concatenate([rows.marker.to_numpy(zero_copy_only=False) for rows in found])
        part_of = dealt(data.select(list(batch.key)), self.parts)
        order = np.argsort(part_of, kind="stable")
        ends = np.cumsum(np.bincount(part_of, minlength=self.parts))
        sorted_ = _with(data.take(pa.array(order)), pa.array(marker[order]))
        sections = [
            sorted_.slice(start, end - start)
            for start, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True)
        ]
        numbers = [part.number for part in self.landed]
        return Dealt(
            scratch.write(self.folder, sections),
            tuple(zip(numbers, (receipt.by_marker(rows.marker) for rows in found), strict=True)),
            tuple(zip(numbers, (rows.data.nbytes for rows in found), strict=True)),
            f"duckdb {duckdb.__version__}",
            any(rows.unchanged is not None for rows in found),
        )


# -- the net changes of a part --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Folded:
    """actions: of the data files; rows, count: what is in them; keys, sought: what is to be looked
    for, if anything; candidates: the places of the files that may hold some of it.
    """

    actions: tuple[str, ...]
    rows: str
    count: int
    keys: str = ""
    sought: int = 0
    candidates: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class FoldSpec(task.Piece):
    """Fold a part, write its data files, and say which keys are to be looked for."""

    dealt: tuple[str, ...]
    part: int

    def work(self) -> Folded:
        batch = self.batch
        files = [("", self._rows(place)) for place in self.dealt]
        net = fold(Batch(batch.table, batch.schema.schema, batch.key, files))
        left = parts.left(net)
        with at_hand(batch.location, batch.options) as table:
            new = written(table.folder, batch.schema, net.rows, list(batch.key))
            table.keep(new)
        actions = tuple(json.dumps(action) for action in new)
        rows = scratch.write(self.folder, [_with(net.rows, pa.array(left.place))])
        if not left.keys.num_rows:
            return Folded(actions, rows, net.rows.num_rows)
        chosen = {id(add) for add in candidates(batch.files, batch.schema, left.keys)}
        return Folded(
            actions,
            rows,
            net.rows.num_rows,
            scratch.write(self.folder, [_with(left.keys, pa.array(left.alive))]),
            left.keys.num_rows,
            tuple(place for place, add in enumerate(batch.files) if id(add) in chosen),
        )

    def _rows(self, place: str) -> Rows:
        data, marker = _without(scratch.read(place, self.part))
        return Rows(data, marker, None, tuple(data.column_names))


# -- what the table has of them -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Taken:
    """rows: that were there; beyond: those of them that were not the first of their key; once,
    several: for each part a bitmap of its keys that had one row in these files, or more.
    """

    actions: tuple[str, ...]
    rows: int
    beyond: int
    once: tuple[bytes, ...]
    several: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class TakeSpec(task.Piece):
    """Find keys, of which each part has written its own, in files of the table; take them out."""

    group: tuple[Mapping[str, Any], ...]
    keys: tuple[str, ...]

    def work(self) -> Taken:
        batch = self.batch
        found = [_without(scratch.read(place)) for place in self.keys]
        ends = np.cumsum([keys.num_rows for keys, _alive in found])
        with at_hand(batch.location, batch.options) as table:
            table.fetch(self.group)
            done = parts.taken(
                table.folder,
                self.group,
                batch.schema,
                pa.concat_tables([keys for keys, _alive in found]),
                np.concatenate([alive.to_numpy(zero_copy_only=False) for _keys, alive in found]),
                batch.threads,
            )
            table.keep(done.actions)
        return Taken(
            tuple(json.dumps(action) for action in done.actions),
            done.rows,
            done.rows - len(done.once) - len(done.several),
            _by_part(done.once, ends),
            _by_part(done.several, ends),
        )


# -- what there is now ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Told:
    actions: tuple[str, ...]
    updated: int


@dataclass(frozen=True, slots=True)
class TellSpec(task.Piece):
    """Write the images of a part's rows. once: bitmaps of its keys that had one row, `sought` of
    them all in all."""

    rows: str
    sought: int
    once: tuple[bytes, ...]

    def work(self) -> Told:
        batch = self.batch
        rows, replaced = _without(scratch.read(self.rows))
        once = np.zeros(self.sought, bool)
        for bitmap in self.once:
            once[np.asarray(BitMap.deserialize(bitmap).to_array(), np.int64)] = True
        with at_hand(batch.location, batch.options) as table:
            actions, updated = parts.told(
                table.folder, batch.schema, rows, replaced.to_numpy(), once
            )
            table.keep(actions)
        return Told(tuple(json.dumps(action) for action in actions), updated)


# -- together -------------------------------------------------------------------------------------


def _with(table: pa.Table, last: pa.Array) -> pa.RecordBatch:
    """The table with one more column, whatever the others are called."""
    columns = [*map(contiguous, table.columns), last]
    fields = [*table.schema, pa.field("", last.type)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _without(section: pa.RecordBatch) -> tuple[pa.Table, pa.Array]:
    """The table and the last column."""
    *columns, last = section.columns
    fields = list(section.schema)[:-1]
    return pa.table(columns, schema=pa.schema(fields)), last


def _by_part(keys: np.ndarray, ends: np.ndarray) -> tuple[bytes, ...]:
    """Ascending numbers of all keys as a bitmap for each part, which counts its own from 0."""
    starts = [0, *ends[:-1].tolist()]
    places = np.searchsorted(keys, [0, *ends.tolist()]).tolist()
    return tuple(
        BitMap((keys[places[i] : places[i + 1]] - start).astype(np.uint32)).serialize()
        for i, start in enumerate(starts)
    )
