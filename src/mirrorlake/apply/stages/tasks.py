"""The tasks of each stage.

A batch with unchanged values cannot be applied in stages, because these values connect keys with
each other and with the table. A batch with an error in a task is applied again in one task, which
reports the error with all details.
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
from mirrorlake.delta.workspace import open_workspace
from mirrorlake.delta.write import flush, stages
from mirrorlake.delta.write.rewrite import write_data_files
from mirrorlake.errors import MirrorlakeError
from mirrorlake.landing.parquet.reader import Rows
from mirrorlake.model.arrow import contiguous, nullable_schema
from mirrorlake.model.equality import comparable
from mirrorlake.model.table import Schema

R = TypeVar("R")
Failed = MirrorlakeError
"""Returned by a task instead of its result."""


def _guarded(batch: BatchTask, work: Callable[[], R]) -> R | Failed:
    """Do the work of a task; an error is returned as its result."""
    pa.set_cpu_count(batch.rows.threads)
    try:
        with flush.flush_in_background():
            return work()
    except MirrorlakeError as error:
        return error
    except Exception as error:  # noqa: BLE001  (the batch is then applied in one task)
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
    """The result of reading a run of landed rows, which are numbered from 0 in their order.

    rows: number of rows of each share, by marker; hasher: name and version of the hash function
    that partitioned the rows; partial: whether there are unchanged values.
    """

    rows: tuple[MarkerCounts, ...]
    hasher: str
    partial: bool

    @property
    def ends(self) -> tuple[int, ...]:
        """The row number after the last row of each share."""
        return tuple(accumulate(map(sum, self.rows)))


def read_keys(task: ReadTask) -> tuple[KeysRead | Failed, Sequence[bytes]]:
    """The result, and one block per partition: keys, markers and row numbers."""
    done = _guarded(task.batch, lambda: _read_keys(task))
    if isinstance(done, MirrorlakeError):
        return done, [b""] * task.partitions
    return done


def _read_keys(task: ReadTask) -> tuple[KeysRead, list[bytes]]:
    reading = task.batch.rows
    found = [list(_key_rows(task, share)) for share in task.shares]
    blocks = [block for group in found for block in group]
    empty = nullable_schema(reading.schema.schema).empty_table()
    names = list(reading.key)
    keys = pa.concat_tables([empty.select(names), *(block.data.select(names) for block in blocks)])
    markers = [pa.chunked_array([block.marker for block in group], pa.int8()) for group in found]
    marker = np.concatenate([group.to_numpy() for group in markers])
    partition = hash_partition(keys, task.partitions)
    order = np.argsort(partition, kind="stable")
    rows = _with_columns(keys.take(pa.array(order)), pa.array(marker[order]), pa.array(order))
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
    """The rows of a share; of Parquet only the key columns."""
    if share.landed.text is not None:
        yield task.batch.rows.read(share.landed)
    else:
        yield from task.batch.rows.read_blocks(share.landed, share.share, task.batch.rows.key)


def hash_partition(keys: pa.Table, partitions: int) -> np.ndarray:
    """The partition of each key, uint16. Equal keys have the same partition on every machine with
    the same release of DuckDB."""
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

    left: one record batch per run of landed rows: the row numbers of the resulting rows, ascending,
        and the number of the key whose existing rows each replaces, or -1.
    count: the number of resulting rows by run and share.
    keys: the keys to look up, each with whether a resulting row replaces its existing rows.
    sought: the number of these keys.
    candidates: the indexes of the files of the table that may contain them.
    """

    left: bytes
    count: tuple[tuple[int, ...], ...]
    keys: bytes = b""
    sought: int = 0
    candidates: tuple[int, ...] = ()


def fold_partition(batch: BatchTask, _partition: int, blocks: Sequence[bytes]) -> Folded | Failed:
    """Fold the keys of a partition. blocks: of each run of landed rows; empty after an error."""
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
    left = stages.reset_keys(net)
    sections, count, start = [], [], 0
    for number, of_shares in zip(numbers, ends, strict=True):
        end = start + len(number)
        section = slice(*np.searchsorted(net.source_row, [start, end]).tolist())
        rows = number[net.source_row[section] - start]
        sections.append(_numbers(rows, left.index[section]))
        count.append(tuple(np.diff(np.searchsorted(rows, of_shares), prepend=0).tolist()))
        start = end
    if not left.keys.num_rows:
        return Folded(_encoded(sections), tuple(count))
    return Folded(
        _encoded(sections),
        tuple(count),
        _encoded([_with_columns(left.keys, pa.array(left.alive))]),
        left.keys.num_rows,
        tuple(candidate_indexes(batch.files, table_schema, left.keys)),
    )


def _numbers(rows: np.ndarray, index: np.ndarray) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(rows), pa.array(index)], ["row", "index"])


# -- take -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TakeTask:
    """Look up keys in files of the table, and delete their rows."""

    batch: BatchTask
    group: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Taken:
    """rows: number of deleted rows; beyond: number of those that were not the first of their key;
    once, several: for each partition a bitmap of its keys that had one row, or several, in these
    files."""

    actions: tuple[str, ...]
    rows: int
    beyond: int
    once: tuple[bytes, ...]
    several: tuple[bytes, ...]


def take_rows(task: TakeTask, keys: Sequence[bytes]) -> Taken | Failed:
    """keys: `Folded.keys` of each partition that has any."""
    return _guarded(task.batch, lambda: _take(task, keys))


def _take(task: TakeTask, keys: Sequence[bytes]) -> Taken:
    batch, schema = task.batch, task.batch.rows.schema
    found = [_split_last_column(_decoded(part)[0]) for part in keys]
    ends = np.cumsum([part.num_rows for part, _alive in found])
    with open_workspace(batch.location, batch.options) as table:
        table.fetch(task.group)
        done = stages.delete_keys(
            table.folder,
            task.group,
            schema,
            pa.concat_tables([part for part, _alive in found]),
            np.concatenate([alive.to_numpy(zero_copy_only=False) for _keys, alive in found]),
            batch.rows.threads,
        )
        table.upload(done.actions)
    return Taken(
        as_texts(done.actions),
        done.rows,
        done.rows - len(done.once) - len(done.several),
        _by_partition(done.once, ends),
        _by_partition(done.several, ends),
    )


def _by_partition(keys: np.ndarray, ends: np.ndarray) -> tuple[bytes, ...]:
    """Convert ascending numbers of keys to one bitmap per partition, whose keys count from 0."""
    starts = [0, *ends[:-1].tolist()]
    bounds = np.searchsorted(keys, [0, *ends.tolist()]).tolist()
    return tuple(
        BitMap((keys[bounds[i] : bounds[i + 1]] - start).astype(np.uint32)).serialize()
        for i, start in enumerate(starts)
    )


# -- write ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FoundKeys:
    """The lookup result of a partition. left, sought: as in `Folded`; once: bitmaps of the keys
    that had one row in the table."""

    left: bytes
    sought: int
    once: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Stretch:
    """The rows `begin` to `end` - 1 of a run, and the share that contains them."""

    run: int
    begin: int
    end: int
    share: InputShare


@dataclass(frozen=True, slots=True)
class WriteTask:
    """Read landed rows, and write the resulting ones with their after images. images: whether after
    images are needed; they are not if no row of the table is deleted."""

    batch: BatchTask
    stretches: tuple[Stretch, ...]
    images: bool


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """rows: number of new rows; updated: number of those that replaced exactly one row; size: bytes
    in memory of the rows that were read, by number of the file."""

    actions: tuple[str, ...]
    rows: int
    updated: int
    size: tuple[tuple[int, int], ...]


def write_rows(task: WriteTask, found: Sequence[FoundKeys]) -> WrittenRows | Failed:
    """found: the lookup results of all partitions."""
    return _guarded(task.batch, lambda: _write(task, found))


def _write(task: WriteTask, found: Sequence[FoundKeys]) -> WrittenRows:
    batch, schema = task.batch, task.batch.rows.schema
    size: dict[int, int] = {}
    left = [_decoded(result.left) for result in found]
    rows, indexes = [nullable_schema(schema.schema).empty_table()], [np.zeros(0, np.int64)]
    for stretch in task.stretches:
        numbers, index = _resulting_rows(stretch, found, left)
        rows += _rows(task, stretch, numbers, size)
        indexes.append(index)
    now = pa.concat_tables(rows)
    updated = 0
    with open_workspace(batch.location, batch.options) as table:
        actions = write_data_files(table.folder, schema, now, list(batch.rows.key))
        if task.images:
            index = np.concatenate(indexes)
            images, updated = stages.write_after_images(
                table.folder, schema, now, index, _had_one_row(found)
            )
            actions += images
        table.upload(actions)
    return WrittenRows(as_texts(actions), now.num_rows, updated, tuple(size.items()))


def _resulting_rows(
    stretch: Stretch, found: Sequence[FoundKeys], left: Sequence[Sequence[pa.RecordBatch]]
) -> tuple[np.ndarray, np.ndarray]:
    """The resulting rows of a stretch, ascending, numbered from its beginning, and the number of
    the key among those of all partitions whose existing rows each replaces, or -1."""
    numbers, indexes, first = [], [], 0
    for result, runs in zip(found, left, strict=True):
        row, index = (column.to_numpy() for column in runs[stretch.run].columns)
        section = slice(*np.searchsorted(row, [stretch.begin, stretch.end]).tolist())
        numbers.append(row[section] - stretch.begin)
        indexes.append(np.where(index[section] >= 0, first + index[section], -1))
        first += result.sought
    number = np.concatenate(numbers)
    order = np.argsort(number)
    return number[order], np.concatenate(indexes)[order]


def _rows(
    task: WriteTask, stretch: Stretch, numbers: np.ndarray, size: dict[int, int]
) -> Iterator[pa.Table]:
    """The rows with these numbers. size: the bytes that were read are added by file."""
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
        if not text:  # the limit of a text was checked when all of it was read
            size[share.number] = size.get(share.number, 0) + block.size
        start = end
    if start != stretch.end - stretch.begin:
        raise ValueError("a landed file was replaced while it was read")


def _had_one_row(found: Sequence[FoundKeys]) -> np.ndarray:
    """Whether each key of all partitions had one row in the table; bool."""
    once = np.zeros(sum(result.sought for result in found), bool)
    first = 0
    for result in found:
        for bitmap in result.once:
            keys = BitMap.deserialize(bitmap).to_array()
            once[first + np.asarray(keys, np.int64)] = True
        first += result.sought
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


def _with_columns(table: pa.Table, *more: pa.Array) -> pa.RecordBatch:
    """The table with additional columns without names."""
    columns = [*map(contiguous, table.columns), *more]
    fields = [*table.schema, *(pa.field("", column.type) for column in more)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _split_last_column(batch: pa.RecordBatch) -> tuple[pa.Table, pa.Array]:
    """Split off the last column."""
    *columns, last = batch.columns
    return pa.table(columns, schema=pa.schema(list(batch.schema)[:-1])), last


def without_files(batch: BatchTask) -> BatchTask:
    """The batch without the list of the table's files, which may be long."""
    return replace(batch, files=())
