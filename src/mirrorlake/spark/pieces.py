"""The pieces of a batch that is spread over many tasks; see `spread`.

Each is a specification with its work, as `task.TaskSpec` is for a whole batch. What goes from one
to the next is keys and numbers of rows, in a scratch folder: rows as a whole are read only where
they are written. Values that the source did not send bind keys to each other and to the table: such
a batch is not taken apart.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from mirrorlake.apply import commit_metadata
from mirrorlake.apply.fold import Batch, fold
from mirrorlake.delta.lookup.key_lookup import candidates
from mirrorlake.delta.workspace import at_hand
from mirrorlake.delta.write import stages as parts
from mirrorlake.delta.write.rewrite import written
from mirrorlake.landing.parquet.bounded import Share
from mirrorlake.landing.parquet.reader import Rows
from mirrorlake.model.arrow import contiguous, nullable_schema
from mirrorlake.model.table import Schema
from mirrorlake.spark import scratch, task
from mirrorlake.spark.dealing import partitioned

# -- keys, dealt out ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Part:
    """A landed file or a share of it. number: of the file in the batch; rows: where the rows of a
    text are, once it has been read."""

    number: int
    landed: task.LandedPath
    share: Share
    rows: str = ""


@dataclass(frozen=True, slots=True)
class Dealt:
    """What is known of a run of landed rows, which are numbered from 0 in their order.

    keys: where the keys are, the marker and the number of each row, a section for each part of the
    keys; texts: where the rows of each text are that was read, "" for what is no text; rows: of
    each of what was read, by marker; dealer: who dealt, others deal otherwise; partial: there are
    values that were not sent.
    """

    keys: str
    texts: tuple[str, ...]
    rows: tuple[commit_metadata.Rows, ...]
    dealer: str
    partial: bool


@dataclass(frozen=True, slots=True)
class DealSpec(task.Piece):
    """Read the keys of landed rows and deal them out to `parts`, in their order."""

    landed: tuple[Part, ...]
    parts: int

    def work(self) -> Dealt:
        batch, found = self.batch, [self._read(part) for part in self.landed]
        pieces = [piece for some in found for piece in some]
        names = list(batch.key)
        empty = nullable_schema(batch.schema.schema).empty_table()
        keys = pa.concat_tables(
            [empty.select(names), *(piece.data.select(names) for piece in pieces)]
        )
        markers = [_markers(some) for some in found]
        marker = np.concatenate([some.to_numpy() for some in markers])
        part_of = partitioned(keys, self.parts)
        order = np.argsort(part_of, kind="stable")
        rows = _with(keys.take(pa.array(order)), pa.array(marker[order]), pa.array(order))
        ends = np.cumsum(np.bincount(part_of, minlength=self.parts)).tolist()
        sections = [
            rows.slice(start, end - start) for start, end in zip([0, *ends[:-1]], ends, strict=True)
        ]
        return Dealt(
            scratch.write(self.folder, sections),
            tuple(self._kept(part, some) for part, some in zip(self.landed, found, strict=True)),
            tuple(map(commit_metadata.by_marker, markers)),
            f"duckdb {duckdb.__version__}",
            any(piece.unchanged is not None for piece in pieces),
        )

    def _read(self, part: Part) -> list[Rows]:
        """The keys at least. Of a text everything: it is read once."""
        if part.landed.text is not None:
            return [task.rows(self.batch, part.landed)]
        return list(task.row_blocks(self.batch, part.landed, part.share, self.batch.key))

    def _kept(self, part: Part, found: list[Rows]) -> str:
        if part.landed.text is None:
            return ""
        (rows,) = found
        return scratch.write(self.folder, [scratch.section(rows.data)])


def _markers(pieces: Sequence[Rows]) -> pa.ChunkedArray:
    return pa.chunked_array([piece.marker for piece in pieces], pa.int8())


# -- the net changes of a part --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Folded:
    """left: where the numbers of the rows are that are left, ascending, and of the key in whose
    place each of them is, or -1, a section for each run of landed rows; count: how many there are,
    by run and by what the run is read from; keys, sought: what is to be looked for, if anything;
    candidates: the places of the files that may hold some of it.
    """

    left: str
    count: tuple[tuple[int, ...], ...]
    keys: str = ""
    sought: int = 0
    candidates: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class FoldSpec(task.Piece):
    """Fold a part, and say which of its rows are left and which keys are to be looked for.

    dealt: of each run where its keys are, and the ends of what it is read from.
    """

    partitioned: tuple[tuple[str, tuple[int, ...]], ...]
    part: int

    def work(self) -> Folded:
        batch = self.batch
        names, files, numbers = list(batch.key), [], []
        for place, _ends in self.partitioned:
            *keys, marker, number = scratch.read(place, self.part).columns
            files.append(("", Rows(pa.table(keys, names), marker, None, batch.key)))
            numbers.append(number.to_numpy())
        schema = Schema.of([batch.schema.schema[name] for name in names])
        net = fold(Batch(batch.table, schema, batch.key, files))
        left = parts.left(net)
        sections, count, start = [], [], 0
        for number, (_place, ends) in zip(numbers, self.partitioned, strict=True):
            end = start + len(number)
            some = slice(*np.searchsorted(net.source_row, [start, end]).tolist())
            rows = number[net.source_row[some] - start]
            sections.append(_numbers(rows, left.index[some]))
            count.append(tuple(np.diff(np.searchsorted(rows, ends), prepend=0).tolist()))
            start = end
        written = scratch.write(self.folder, sections)
        if not left.keys.num_rows:
            return Folded(written, tuple(count))
        chosen = {id(add) for add in candidates(batch.files, batch.schema, left.keys)}
        return Folded(
            written,
            tuple(count),
            scratch.write(self.folder, [_with(left.keys, pa.array(left.alive))]),
            left.keys.num_rows,
            tuple(place for place, add in enumerate(batch.files) if id(add) in chosen),
        )


def _numbers(rows: np.ndarray, place: np.ndarray) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(rows), pa.array(place)], ["row", "place"])


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
class Found:
    """What was found of the keys of a part. left, sought: as in `Folded`; once: bitmaps of the keys
    that had one row in the table."""

    left: str
    sought: int
    once: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Written:
    """rows: that are there now; updated: those of them that took the place of one row; size: of the
    rows that were read of each file, by its number, in bytes.
    """

    actions: tuple[str, ...]
    rows: int
    updated: int
    size: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Rows of a run, from `begin` on to before `end`, and what they are read from."""

    run: int
    begin: int
    end: int
    part: Part


@dataclass(frozen=True, slots=True)
class WriteSpec(task.Piece):
    """Read landed rows, and write those that are left, and their images.

    found: for each part of the keys; images: whether they are needed: where nothing of the table
    goes, data files say it all.
    """

    landed: tuple[Stretch, ...]
    found: tuple[Found, ...]
    images: bool

    def work(self) -> Written:
        batch = self.batch
        size: dict[int, int] = {}
        rows, places = [nullable_schema(batch.schema.schema).empty_table()], [np.zeros(0, np.int64)]
        for stretch in self.landed:
            numbers, place = self._left(stretch)
            rows += self._rows(stretch, numbers, size)
            places.append(place)
        now = pa.concat_tables(rows)
        actions, updated = list[dict[str, Any]](), 0
        with at_hand(batch.location, batch.options) as table:
            actions += written(table.folder, batch.schema, now, list(batch.key))
            if self.images:
                place, once = np.concatenate(places), self._once()
                images, updated = parts.told(table.folder, batch.schema, now, place, once)
                actions += images
            table.keep(actions)
        texts = tuple(json.dumps(action) for action in actions)
        return Written(texts, now.num_rows, updated, tuple(size.items()))

    def _left(self, stretch: Stretch) -> tuple[np.ndarray, np.ndarray]:
        """The rows that are left of a stretch, ascending and counted from its beginning, and the
        key in whose place each is, or -1, of all parts of the keys together."""
        numbers, places, first = [], [], 0
        for part in self.found:
            section = scratch.read(part.left, stretch.run)
            row, place = (column.to_numpy() for column in section.columns)
            some = slice(*np.searchsorted(row, [stretch.begin, stretch.end]).tolist())
            numbers.append(row[some] - stretch.begin)
            places.append(np.where(place[some] >= 0, first + place[some], -1))
            first += part.sought
        number = np.concatenate(numbers)
        order = np.argsort(number)
        return number[order], np.concatenate(places)[order]

    def _rows(
        self, stretch: Stretch, numbers: np.ndarray, size: dict[int, int]
    ) -> Iterator[pa.Table]:
        """The rows with these numbers. size: gets the bytes of all of each file."""
        file, start = stretch.part.number, 0
        for piece, taken in self._pieces(stretch.part):
            end = start + piece.num_rows
            low, high = np.searchsorted(numbers, [start, end]).tolist()
            yield piece.take(pa.array(numbers[low:high] - start))
            size[file] = size.get(file, 0) + taken
            start = end
        assert start == stretch.end - stretch.begin, "a landed file is not what it was"

    def _pieces(self, part: Part) -> Iterator[tuple[pa.Table, int]]:
        """Rows, and what they took in memory as they were read. Of a text nothing: its limit was
        kept when all of it was read."""
        if part.rows:
            yield scratch.whole(part.rows), 0
        else:
            for piece in task.row_blocks(self.batch, part.landed, part.share):
                yield piece.data, piece.size

    def _once(self) -> np.ndarray:
        """bool, of the keys of all parts together: whether there was one row."""
        once = np.zeros(sum(part.sought for part in self.found), bool)
        first = 0
        for part in self.found:
            for bitmap in part.once:
                keys = BitMap.deserialize(bitmap).to_array()
                once[first + np.asarray(keys, np.int64)] = True
            first += part.sought
        return once


# -- together -------------------------------------------------------------------------------------


def _with(table: pa.Table, *more: pa.Array) -> pa.RecordBatch:
    """The table with more columns, whatever the others are called."""
    columns = [*map(contiguous, table.columns), *more]
    fields = [*table.schema, *(pa.field("", column.type) for column in more)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


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
