"""The pieces of a batch that is spread over many tasks; see `spread`.

Each is a specification with its work, as `task.TaskSpec` is for a whole batch. What goes from one
to the next is rows in a scratch folder, and numbers in what it hands back. Values that the source
did not send bind keys to each other and to the table: such a batch is not taken apart.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
from mirrorlake.model.net import NetChanges
from mirrorlake.model.table import Schema
from mirrorlake.spark import scratch, task
from mirrorlake.spark.dealing import dealt

GATHERED = 4
"""Parts up to which rows stay where they stand: each part gathers what it keeps of them, and none
is copied twice. With more parts each would read too much of what is not its own."""

# -- rows, dealt out by their keys ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Part:
    """A landed file or a share of it. number: of the file in the batch."""

    number: int
    landed: task.LandedPath
    share: Share


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes that were dealt out. place: they, a section for each part; or, where `chosen` is
    said, all in one as they stood, and there the numbers of the rows of each part, ascending.
    """

    place: str
    chosen: str = ""

    def of(self, part: int) -> tuple[pa.RecordBatch, np.ndarray]:
        """Rows, the marker last, and which of them are those of a part."""
        if not self.chosen:
            rows = scratch.read(self.place, part)
            return rows, np.arange(rows.num_rows)
        return scratch.read(self.place), scratch.read(self.chosen, part).column(0).to_numpy()


@dataclass(frozen=True, slots=True)
class Dealt:
    """dealt: the changes. rows, size: of each file that was read from, by its number: its rows by
    marker, and their bytes. dealer: who dealt; others deal otherwise.
    """

    dealt: Changes
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
        numbers = [part.number for part in self.landed]
        return Dealt(
            self._written(_with(data, pa.array(marker)), order, ends.tolist()),
            tuple(zip(numbers, (receipt.by_marker(rows.marker) for rows in found), strict=True)),
            tuple(zip(numbers, (rows.data.nbytes for rows in found), strict=True)),
            f"duckdb {duckdb.__version__}",
            any(rows.unchanged is not None for rows in found),
        )

    def _written(self, rows: pa.RecordBatch, order: np.ndarray, ends: list[int]) -> Changes:
        """order: the rows by their parts; ends: of each part in it."""
        bounds = list(zip([0, *ends[:-1]], ends, strict=True))
        if self.parts > GATHERED:
            rows = rows.take(pa.array(order))
            sections = [rows.slice(start, end - start) for start, end in bounds]
            return Changes(scratch.write(self.folder, sections))
        numbers = [
            pa.RecordBatch.from_arrays([pa.array(order[start:end])], ["row"])
            for start, end in bounds
        ]
        return Changes(scratch.write(self.folder, [rows]), scratch.write(self.folder, numbers))


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

    dealt: tuple[Changes, ...]
    part: int

    def work(self) -> Folded:
        batch = self.batch
        shares = [changes.of(self.part) for changes in self.dealt]
        net = self._net(shares)
        left = parts.left(net)
        with at_hand(batch.location, batch.options) as table:
            new = written(table.folder, batch.schema, net.rows, list(batch.key))
            table.keep(new)
        actions = tuple(json.dumps(action) for action in new)
        rows = scratch.write(self.folder, [*_sections(net.rows, left.place)])
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

    def _net(self, shares: Sequence[tuple[pa.RecordBatch, np.ndarray]]) -> NetChanges:
        """The net changes by keys and markers alone, and then the rows that are left by them."""
        batch = self.batch
        names = list(batch.key)
        schema = Schema.of([batch.schema.schema[name] for name in names])
        files = []
        for rows, numbers in shares:
            chosen = pa.array(numbers)
            keys = pa.Table.from_batches([rows.select(names)]).take(chosen)
            marker = rows.column(rows.num_columns - 1).take(chosen)
            files.append(("", Rows(keys, marker, None, tuple(names))))
        net = fold(Batch(batch.table, schema, batch.key, files))
        ends = np.cumsum([len(numbers) for _rows, numbers in shares])
        kept, start = [], 0
        for (rows, numbers), own, end in zip(
            shares, np.split(net.kept, np.searchsorted(net.kept, ends[:-1])), ends, strict=True
        ):
            data, _marker = _without(rows)
            kept.append(data.take(pa.array(numbers[own - start])))
            start = int(end)
        return replace(net, rows=pa.concat_tables(kept))


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
        rows, replaced = _without(scratch.whole(self.rows))
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


def _sections(table: pa.Table, last: np.ndarray) -> Iterator[pa.RecordBatch]:
    """The table with one more column, as it lies in memory."""
    start = 0
    for some in table.to_batches():
        end = start + some.num_rows
        yield _with(pa.Table.from_batches([some]), pa.array(last[start:end]))
        start = end
    if not start:
        yield _with(table, pa.array(last))


def _without(section: pa.RecordBatch | pa.Table) -> tuple[pa.Table, pa.Array]:
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
