"""The tasks of each stage.

Values that the source did not send tie keys to each other and to the table: such a batch is for one
task. So is every batch of which a task of a stage meets an error: one task tells it in full.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, TypeVar

import duckdb
import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from mirrorlake.apply.commit_metadata import Rows as MarkerCounts
from mirrorlake.apply.commit_metadata import by_marker
from mirrorlake.apply.fold import LandedBatch, fold
from mirrorlake.apply.stages.shares import InputShare
from mirrorlake.apply.task.batch import BatchTask, as_texts
from mirrorlake.apply.task.errors import fault
from mirrorlake.delta.lookup.key_join import connected
from mirrorlake.delta.partitions import candidate_indexes
from mirrorlake.delta.workspace import at_hand
from mirrorlake.delta.write import flush, stages
from mirrorlake.delta.write.rewrite import written
from mirrorlake.errors import MirrorlakeError
from mirrorlake.landing.parquet.reader import Rows
from mirrorlake.model.arrow import contiguous, nullable_schema
from mirrorlake.model.equality import comparable
from mirrorlake.model.table import Schema

R = TypeVar("R")
Failed = MirrorlakeError
"""What a task returns instead of its result."""


def _guarded(batch: BatchTask, work: Callable[[], R]) -> R | Failed:
    """Do the work of a task; what goes wrong is its result."""
    pa.set_cpu_count(batch.rows.threads)
    try:
        with flush.behind():
            return work()
    except MirrorlakeError as error:
        return error
    except Exception as error:  # noqa: BLE001  (the batch is then done by one task)
        return fault(batch.table, error)


# -- read -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadTask:
    """Read the keys of landed rows, and hash partition them."""

    batch: BatchTask
    shares: tuple[InputShare, ...]
    partitions: int


@dataclass(frozen=True, slots=True)
class KeysRead:
    """A run of landed rows, which are numbered from 0 in their order.

    rows: of each share, by marker; hasher: rows are partitioned by its hash, others by another;
    partial: there are values that were not sent.
    """

    rows: tuple[MarkerCounts, ...]
    hasher: str
    partial: bool

    @property
    def ends(self) -> tuple[int, ...]:
        """The row numbers before which each share ends."""
        return tuple(accumulate(map(sum, self.rows)))


def read_keys(task: ReadTask) -> tuple[KeysRead | Failed, Sequence[bytes]]:
    """What was read, and a block for each partition: its keys, their markers and row numbers."""
    done = _guarded(task.batch, lambda: _read_keys(task))
    if isinstance(done, MirrorlakeError):
        return done, [b""] * task.partitions
    return done


def _read_keys(task: ReadTask) -> tuple[KeysRead, list[bytes]]:
    reading = task.batch.rows
    found = [list(_key_rows(task, share)) for share in task.shares]
    blocks = [block for some in found for block in some]
    empty = nullable_schema(reading.schema.schema).empty_table()
    names = list(reading.key)
    keys = pa.concat_tables([empty.select(names), *(block.data.select(names) for block in blocks)])
    markers = [pa.chunked_array([block.marker for block in some], pa.int8()) for some in found]
    marker = np.concatenate([some.to_numpy() for some in markers])
    partition = hash_partition(keys, task.partitions)
    order = np.argsort(partition, kind="stable")
    rows = _with(keys.take(pa.array(order)), pa.array(marker[order]), pa.array(order))
    read = KeysRead(
        tuple(map(by_marker, markers)),
        f"duckdb {duckdb.__version__}",
        any(block.unchanged is not None for block in blocks),
    )
    rows = rows.replace_schema_metadata({"ends": json.dumps(read.ends)})
    ends = np.cumsum(np.bincount(partition, minlength=task.partitions)).tolist()
    sections = zip([0, *ends[:-1]], ends, strict=True)
    return read, [_encoded([rows.slice(start, end - start)]) for start, end in sections]


def _key_rows(task: ReadTask, share: InputShare) -> Iterator[Rows]:
    """The keys at least. A text has no columns to choose from."""
    if share.landed.text is not None:
        yield task.batch.rows.read(share.landed)
    else:
        yield from task.batch.rows.read_blocks(share.landed, share.share, task.batch.rows.key)


def hash_partition(keys: pa.Table, partitions: int) -> np.ndarray:
    """The partition of each key, uint16: equal keys are in the same one, wherever this is computed.

    Only the same release of DuckDB computes the same.
    """
    columns = {f"k{i}": comparable(contiguous(column)) for i, column in enumerate(keys.columns)}
    query = f"select (hash({', '.join(columns)}) % {partitions})::usmallint as part from keys"  # noqa: S608
    with connected(1) as connection:
        connection.register("keys", pa.table(columns))
        partition: np.ndarray = connection.execute(query).fetchnumpy()["part"]
    return partition


# -- fold -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Folded:
    """The net changes of a partition.

    left: the numbers of the rows that are left, ascending, and of the key whose place each takes or
    -1, a batch for each run of landed rows; count: how many, by run and share; keys: those to look
    for, each with whether it is left with a row; sought: how many; candidates: the indexes of the
    table's files that may hold some of them.
    """

    left: bytes
    count: tuple[tuple[int, ...], ...]
    keys: bytes = b""
    sought: int = 0
    candidates: tuple[int, ...] = ()


def fold_partition(batch: BatchTask, _partition: int, blocks: Sequence[bytes]) -> Folded | Failed:
    """Fold the keys of a partition. blocks: of each run of landed rows; none after an error."""
    if not all(blocks):
        return Folded(b"", ())
    return _guarded(batch, lambda: _fold(batch, blocks))


def _fold(batch: BatchTask, blocks: Sequence[bytes]) -> Folded:
    table_schema, key = batch.rows.schema, batch.rows.key
    files, numbers, ends = [], [], []
    for block in blocks:
        (rows,) = _decoded(block)
        *keys, marker, number = rows.columns
        files.append(("", Rows(pa.table(keys, list(key)), marker, None, key)))
        numbers.append(number.to_numpy())
        ends.append(json.loads(rows.schema.metadata[b"ends"]))
    schema = Schema.of([table_schema.schema[name] for name in key])
    net = fold(LandedBatch(batch.table, schema, key, files))
    left = stages.left(net)
    sections, count, start = [], [], 0
    for number, of_shares in zip(numbers, ends, strict=True):
        end = start + len(number)
        some = slice(*np.searchsorted(net.source_row, [start, end]).tolist())
        rows = number[net.source_row[some] - start]
        sections.append(_numbers(rows, left.index[some]))
        count.append(tuple(np.diff(np.searchsorted(rows, of_shares), prepend=0).tolist()))
        start = end
    if not left.keys.num_rows:
        return Folded(_encoded(sections), tuple(count))
    return Folded(
        _encoded(sections),
        tuple(count),
        _encoded([_with(left.keys, pa.array(left.alive))]),
        left.keys.num_rows,
        tuple(candidate_indexes(batch.files, table_schema, left.keys)),
    )


def _numbers(rows: np.ndarray, index: np.ndarray) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(rows), pa.array(index)], ["row", "index"])


# -- take -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TakeTask:
    """Find keys in files of the table, and take their rows out."""

    batch: BatchTask
    group: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Taken:
    """rows: that were there; beyond: those of them that were not the first of their key; once,
    several: for each partition a bitmap of its keys that had one row in these files, or more.
    """

    actions: tuple[str, ...]
    rows: int
    beyond: int
    once: tuple[bytes, ...]
    several: tuple[bytes, ...]


def take_rows(task: TakeTask, keys: Sequence[bytes]) -> Taken | Failed:
    """keys: of the partitions that look for some, as `Folded.keys`."""
    return _guarded(task.batch, lambda: _take(task, keys))


def _take(task: TakeTask, keys: Sequence[bytes]) -> Taken:
    batch, schema = task.batch, task.batch.rows.schema
    found = [_without(_decoded(some)[0]) for some in keys]
    ends = np.cumsum([some.num_rows for some, _alive in found])
    with at_hand(batch.location, batch.options) as table:
        table.fetch(task.group)
        done = stages.taken(
            table.folder,
            task.group,
            schema,
            pa.concat_tables([some for some, _alive in found]),
            np.concatenate([alive.to_numpy(zero_copy_only=False) for _keys, alive in found]),
            batch.rows.threads,
        )
        table.keep(done.actions)
    return Taken(
        as_texts(done.actions),
        done.rows,
        done.rows - len(done.once) - len(done.several),
        _by_partition(done.once, ends),
        _by_partition(done.several, ends),
    )


def _by_partition(keys: np.ndarray, ends: np.ndarray) -> tuple[bytes, ...]:
    """Ascending numbers of all keys as a bitmap for each partition, which counts its own from 0."""
    starts = [0, *ends[:-1].tolist()]
    bounds = np.searchsorted(keys, [0, *ends.tolist()]).tolist()
    return tuple(
        BitMap((keys[bounds[i] : bounds[i + 1]] - start).astype(np.uint32)).serialize()
        for i, start in enumerate(starts)
    )


# -- write ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FoundKeys:
    """What was found of the keys of a partition. left, sought: as in `Folded`; once: bitmaps of the
    keys that had one row in the table."""

    left: bytes
    sought: int
    once: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Rows of a run, from `begin` on to before `end`, and the share they are read from."""

    run: int
    begin: int
    end: int
    share: InputShare


@dataclass(frozen=True, slots=True)
class WriteTask:
    """Read landed rows, and write those that are left, and their images. images: whether they are
    needed: where nothing of the table goes, data files say it all."""

    batch: BatchTask
    stretches: tuple[Stretch, ...]
    images: bool


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """rows: that are there now; updated: those of them that took the place of one row; size: of the
    rows that were read of each file, by its number, in bytes.
    """

    actions: tuple[str, ...]
    rows: int
    updated: int
    size: tuple[tuple[int, int], ...]


def write_rows(task: WriteTask, found: Sequence[FoundKeys]) -> WrittenRows | Failed:
    """found: of all partitions."""
    return _guarded(task.batch, lambda: _write(task, found))


def _write(task: WriteTask, found: Sequence[FoundKeys]) -> WrittenRows:
    batch, schema = task.batch, task.batch.rows.schema
    size: dict[int, int] = {}
    left = [_decoded(one.left) for one in found]
    rows, indexes = [nullable_schema(schema.schema).empty_table()], [np.zeros(0, np.int64)]
    for stretch in task.stretches:
        numbers, index = _left(stretch, found, left)
        rows += _rows(task, stretch, numbers, size)
        indexes.append(index)
    now = pa.concat_tables(rows)
    updated = 0
    with at_hand(batch.location, batch.options) as table:
        actions = written(table.folder, schema, now, list(batch.rows.key))
        if task.images:
            index = np.concatenate(indexes)
            images, updated = stages.told(table.folder, schema, now, index, _once(found))
            actions += images
        table.keep(actions)
    return WrittenRows(as_texts(actions), now.num_rows, updated, tuple(size.items()))


def _left(
    stretch: Stretch, found: Sequence[FoundKeys], left: Sequence[Sequence[pa.RecordBatch]]
) -> tuple[np.ndarray, np.ndarray]:
    """The rows that are left of a stretch, ascending and counted from its beginning, and the key in
    whose place each is, or -1, of all partitions together."""
    numbers, indexes, first = [], [], 0
    for one, runs in zip(found, left, strict=True):
        row, index = (column.to_numpy() for column in runs[stretch.run].columns)
        some = slice(*np.searchsorted(row, [stretch.begin, stretch.end]).tolist())
        numbers.append(row[some] - stretch.begin)
        indexes.append(np.where(index[some] >= 0, first + index[some], -1))
        first += one.sought
    number = np.concatenate(numbers)
    order = np.argsort(number)
    return number[order], np.concatenate(indexes)[order]


def _rows(
    task: WriteTask, stretch: Stretch, numbers: np.ndarray, size: dict[int, int]
) -> Iterator[pa.Table]:
    """The rows with these numbers. size: gets the bytes of all of each file."""
    reading, share = task.batch.rows, stretch.share
    text = share.landed.text is not None
    start = 0
    blocks = (
        [reading.read(share.landed)] if text else reading.read_blocks(share.landed, share.share)
    )
    for block in blocks:
        end = start + block.data.num_rows
        low, high = np.searchsorted(numbers, [start, end]).tolist()
        yield block.data.take(pa.array(numbers[low:high] - start))
        if not text:  # whose limit was kept when all of it was read
            size[share.number] = size.get(share.number, 0) + block.size
        start = end
    if start != stretch.end - stretch.begin:
        raise ValueError("a landed file was replaced while it was read")


def _once(found: Sequence[FoundKeys]) -> np.ndarray:
    """bool, of the keys of all partitions together: whether there was one row."""
    once = np.zeros(sum(one.sought for one in found), bool)
    first = 0
    for one in found:
        for bitmap in one.once:
            keys = BitMap.deserialize(bitmap).to_array()
            once[first + np.asarray(keys, np.int64)] = True
        first += one.sought
    return once


# -- bytes ----------------------------------------------------------------------------------------


def _encoded(batches: Sequence[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def _decoded(content: bytes) -> list[pa.RecordBatch]:
    return list(pa.ipc.open_stream(content))


def _with(table: pa.Table, *more: pa.Array) -> pa.RecordBatch:
    """The table with more columns, whatever the others are called."""
    columns = [*map(contiguous, table.columns), *more]
    fields = [*table.schema, *(pa.field("", column.type) for column in more)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _without(batch: pa.RecordBatch) -> tuple[pa.Table, pa.Array]:
    """The table and the last column."""
    *columns, last = batch.columns
    return pa.table(columns, schema=pa.schema(list(batch.schema)[:-1])), last


def without_files(batch: BatchTask) -> BatchTask:
    """The batch for tasks that need no list of the table's files, which is long."""
    return replace(batch, files=())
