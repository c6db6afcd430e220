"""The tasks of each stage.

A batch with unchanged values cannot be applied in stages, because these values connect keys with
each other and with the table. A batch with an error in a task is applied again in one task, which
reports the error with all details.
"""

from __future__ import annotations

from array import array
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
from mirrorlake.apply.stages.shares import InputShare, balanced
from mirrorlake.apply.task.batch import BatchTask, as_texts
from mirrorlake.apply.task.errors import fault
from mirrorlake.apply.task.landed_rows import LandedRows
from mirrorlake.delta.file_list import chosen, sizes
from mirrorlake.delta.lookup.key_join import connected
from mirrorlake.delta.partitions import candidate_indexes
from mirrorlake.delta.workspace import open_workspace
from mirrorlake.delta.write import flush, stages
from mirrorlake.delta.write.rewrite import write_data_files
from mirrorlake.errors import MirrorlakeError
from mirrorlake.landing.parquet.reader import Rows
from mirrorlake.model.arrow import contiguous, nullable_schema
from mirrorlake.model.keys import comparable
from mirrorlake.model.table import Schema

R = TypeVar("R")
Failed = MirrorlakeError
"""Returned by a task instead of its result."""


def guarded(batch: BatchTask, work: Callable[[], R]) -> R | Failed:
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


@dataclass(frozen=True, slots=True)
class KeyBlock:
    """The landed rows of a run that are in one partition.

    keys: the key and the marker of each; rows: a bitmap of their row numbers, in the same order.
    """

    keys: bytes
    rows: bytes


def read_keys(task: ReadTask) -> tuple[KeysRead | Failed, Sequence[KeyBlock | None]]:
    """The result, and one block per partition; None after an error or with unchanged values."""
    done = guarded(task.batch, lambda: _read_keys(task))
    if isinstance(done, MirrorlakeError):
        return done, [None] * task.partitions
    return done


def _read_keys(task: ReadTask) -> tuple[KeysRead, Sequence[KeyBlock | None]]:
    read, keys, marker = keys_and_markers(task.batch.rows, task.shares)
    if read.partial:
        return read, [None] * task.partitions
    partition = hash_partition(keys, task.partitions)
    order = np.argsort(partition, kind="stable")
    rows = _with_column(keys.take(pa.array(order)), pa.array(marker[order]))
    ends = np.cumsum(np.bincount(partition, minlength=task.partitions)).tolist()
    sections = zip([0, *ends[:-1]], ends, strict=True)
    return read, [
        KeyBlock(_encoded(rows.slice(start, end - start)), bitmap(order[start:end]))
        for start, end in sections
    ]


def keys_and_markers(
    reading: LandedRows, shares: Sequence[InputShare]
) -> tuple[KeysRead, pa.Table, np.ndarray]:
    """The result of reading a run of landed rows, and the key and the marker (int8) of each row."""
    found = [list(_key_rows(reading, share)) for share in shares]
    blocks = [block for group in found for block in group]
    empty = nullable_schema(reading.schema.schema).empty_table()
    names = list(reading.key)
    keys = pa.concat_tables([empty.select(names), *(block.data.select(names) for block in blocks)])
    markers = [pa.chunked_array([block.marker for block in group], pa.int8()) for group in found]
    partial = any(block.unchanged is not None for block in blocks)
    read = KeysRead(tuple(map(by_marker, markers)), f"duckdb {duckdb.__version__}", partial)
    return read, keys, np.concatenate([group.to_numpy() for group in markers])


def _key_rows(reading: LandedRows, share: InputShare) -> Iterator[Rows]:
    """The rows of a share; of Parquet only the key columns."""
    if share.landed.text is not None:
        yield reading.read(share.landed)
    else:
        yield from reading.read_blocks(share.landed, share.share, reading.key)


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

    left: for each run of landed rows, bitmaps of the row numbers of its resulting rows, and of
        those that replace the existing rows of a key.
    sought: the number of keys to look up. The first ones are those of the replacing rows.
    rows: the number of resulting rows.
    """

    left: tuple[tuple[bytes, bytes], ...]
    sought: int
    rows: int


@dataclass(frozen=True, slots=True)
class SoughtKeys:
    """The keys of a partition to look up.

    replaced: the number of keys, from the first, whose existing rows are replaced by a resulting
    row; candidates: a bitmap of the indexes of the files of the table that may contain a key.
    """

    keys: bytes
    replaced: int
    candidates: bytes


def fold_partition(
    batch: BatchTask, tasks: int, _partition: int, blocks: Sequence[KeyBlock | None]
) -> tuple[Folded | Failed, Sequence[SoughtKeys | None]]:
    """Fold the keys of a partition, for `tasks` tasks that look up. blocks: of each run of landed
    rows; None after an error."""
    given = [block for block in blocks if block is not None]
    if len(given) < len(blocks):
        return Folded((), 0, 0), [None] * tasks
    done = guarded(batch, lambda: _fold(batch, given))
    if isinstance(done, MirrorlakeError):
        return done, [None] * tasks
    folded, sought = done
    return folded, [sought] * tasks


def _fold(batch: BatchTask, blocks: Sequence[KeyBlock]) -> tuple[Folded, SoughtKeys]:
    rows = []
    for block in blocks:
        keys, marker = _split_last_column(_decoded(block.keys))
        rows.append((keys, marker, numbers(block.rows)))
    folded, keys, replaced = fold_keys(batch, rows)
    candidates = candidates_of(batch, keys)
    return folded, SoughtKeys(_encoded(_batch_of(keys)), replaced, bitmap(candidates))


def fold_keys(
    batch: BatchTask, rows: Sequence[tuple[pa.Table, pa.Array, np.ndarray]]
) -> tuple[Folded, pa.Table, int]:
    """Fold rows, given as the keys, the markers and the row numbers in each run of landed rows.
    Returns the keys to look up, and how many of them, from the first, are those of the replacing
    rows."""
    table_schema, key = batch.rows.schema, batch.rows.key
    files = [("", Rows(keys, marker, None, key)) for keys, marker, _number in rows]
    schema = Schema.of([table_schema.schema[name] for name in key])
    net = fold(LandedBatch(batch.table, schema, key, files))
    keys, replaced = stages.reset_keys(net)
    left, start = [], 0
    for _keys, _marker, number in rows:
        end = start + len(number)
        section = slice(*np.searchsorted(net.source_row, [start, end]).tolist())
        resulting = number[net.source_row[section] - start]
        left.append((bitmap(resulting), bitmap(resulting[net.first[section]])))
        start = end
    return Folded(tuple(left), keys.num_rows, net.rows.num_rows), keys, replaced


def candidates_of(batch: BatchTask, keys: pa.Table) -> np.ndarray:
    """The indexes of the files of the table that may contain one of the keys, ascending; int64."""
    found = candidate_indexes(batch.files, batch.rows.schema, keys) if keys.num_rows else []
    return np.asarray(found, np.int64)


# -- take -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Taken:
    """rows: number of deleted rows; beyond: number of those that were not the first of their key;
    once, several: for each partition a bitmap of its keys that had one row, or several, in these
    files."""

    actions: tuple[str, ...] = ()
    rows: int = 0
    beyond: int = 0
    once: tuple[bytes, ...] = ()
    several: tuple[bytes, ...] = ()


def take_rows(
    batch: BatchTask, tasks: int, task: int, keys: Sequence[SoughtKeys | None]
) -> tuple[Taken | Failed, Sequence[None]]:
    """Look up the keys of all partitions in the files of the table that are those of this one of
    `tasks` tasks, and delete their rows. keys: of each partition; None after an error."""
    given = [part for part in keys if part is not None]
    if len(given) < len(keys):
        return Taken(), ()
    return guarded(batch, lambda: _take(batch, tasks, task, given)), ()


def _take(batch: BatchTask, tasks: int, task: int, keys: Sequence[SoughtKeys]) -> Taken:
    candidates = np.unique(np.concatenate([numbers(part.candidates) for part in keys]))
    group = files_of(batch, candidates, tasks, task)
    if not group:
        return nothing_taken(len(keys))
    found = [(pa.Table.from_batches([_decoded(part.keys)]), part.replaced) for part in keys]
    return take_from(batch, group, found)


def files_of(
    batch: BatchTask, candidates: np.ndarray, tasks: int, task: int
) -> Sequence[Mapping[str, Any]]:
    """The files of a task among the candidates. Every task divides them in the same way."""
    indexes = candidates.tolist()
    groups = balanced(indexes, sizes(batch.files, indexes), tasks)
    return chosen(batch.files, groups[task]) if task < len(groups) else ()


def nothing_taken(partitions: int) -> Taken:
    return Taken(once=(bitmap(NONE),) * partitions, several=(bitmap(NONE),) * partitions)


def take_from(
    batch: BatchTask, files: Sequence[Mapping[str, Any]], sought: Sequence[tuple[pa.Table, int]]
) -> Taken:
    """Delete the rows of keys from files that no other task changes. sought: of each partition the
    keys, and the number of those, from the first, that are replaced by a resulting row."""
    ends = np.cumsum([keys.num_rows for keys, _replaced in sought])
    alive = [np.arange(keys.num_rows) < replaced for keys, replaced in sought]
    with open_workspace(batch.location, batch.options) as table:
        table.fetch(files)
        done = stages.delete_keys(
            table.folder,
            files,
            batch.rows.schema,
            pa.concat_tables([keys for keys, _replaced in sought]),
            np.concatenate(alive),
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
    return tuple(bitmap(keys[bounds[i] : bounds[i + 1]] - start) for i, start in enumerate(starts))


# -- write ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stretch:
    """The rows `begin` to `end` - 1 of a run, and the share that contains them.

    left, updated: bitmaps of the resulting rows, and of those that replace exactly one row of the
    table; numbered from `begin`.
    """

    run: int
    begin: int
    end: int
    share: InputShare
    left: bytes
    updated: bytes


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


def write_rows(task: WriteTask) -> WrittenRows | Failed:
    return guarded(task.batch, lambda: _write(task))


def _write(task: WriteTask) -> WrittenRows:
    batch, schema = task.batch, task.batch.rows.schema
    size: dict[int, int] = {}
    rows, updated = [nullable_schema(schema.schema).empty_table()], [np.zeros(0, bool)]
    for stretch in task.stretches:
        number = numbers(stretch.left)
        rows += _rows(task, stretch, number, size)
        updated.append(np.isin(number, numbers(stretch.updated), assume_unique=True))
    now, replaces = pa.concat_tables(rows), np.concatenate(updated)
    with open_workspace(batch.location, batch.options) as table:
        actions = write_data_files(table.folder, schema, now, list(batch.rows.key))
        if task.images:
            actions += stages.write_after_images(table.folder, schema, now, replaces)
        table.upload(actions)
    return WrittenRows(as_texts(actions), now.num_rows, int(replaces.sum()), tuple(size.items()))


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


# -- bytes ----------------------------------------------------------------------------------------

NONE = np.zeros(0, np.int64)


def bitmap(ascending: np.ndarray) -> bytes:
    """A compressed bitmap of ascending numbers."""
    # Of an array of numpy, it would make an object of each number.
    return BitMap(array("I", ascending.astype(np.uint32).tobytes())).serialize()


def numbers(encoded: bytes) -> np.ndarray:
    """The numbers in a bitmap, ascending; int64."""
    return np.asarray(BitMap.deserialize(encoded).to_array(), np.int64)


def _encoded(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def _decoded(content: bytes) -> pa.RecordBatch:
    (batch,) = pa.ipc.open_stream(content)
    return batch


def _batch_of(table: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*map(contiguous, table.columns)], schema=table.schema)


def _with_column(table: pa.Table, column: pa.Array) -> pa.RecordBatch:
    """The table with a last column without a name."""
    return _batch_of(table.append_column("", column))


def _split_last_column(batch: pa.RecordBatch) -> tuple[pa.Table, pa.Array]:
    *columns, last = batch.columns
    return pa.table(columns, schema=pa.schema(list(batch.schema)[:-1])), last


def without_files(batch: BatchTask) -> BatchTask:
    """The batch without the list of the table's files, which may be long."""
    return replace(batch, files=())
