"""Applies one batch of one table in one task: read, fold, look up, write.

A task needs only its input and the storage, not the driver or other tasks. It writes the files, so
its result is small. Errors are part of the result, because an error of one table must not fail the
job of all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from mirrorlake.apply.commit_metadata import Rows, by_marker
from mirrorlake.apply.fold import LandedBatch, SoftDeletes, fold
from mirrorlake.apply.task.backfill_chunk import read_chunk
from mirrorlake.apply.task.errors import missing_base_row, table_error
from mirrorlake.apply.task.existing_deletes import fold_chunk
from mirrorlake.apply.task.landed_rows import LandedPath, LandedRows, NotAppendOnly
from mirrorlake.apply.task.ready_files import TakenFile, take_file
from mirrorlake.delta.workspace import TableWorkspace, open_workspace
from mirrorlake.delta.write import flush
from mirrorlake.delta.write.append import append
from mirrorlake.delta.write.rewrite import NoBaseRow, NoSuchRow, rewrite
from mirrorlake.errors import MirrorlakeError, RowNotFound
from mirrorlake.landing.parquet import reader as parquet
from mirrorlake.mirror.engine import Counts
from mirrorlake.model.keys import KeyRange
from mirrorlake.model.net_changes import NetChanges
from mirrorlake.storage.options import ObjectOptions


@dataclass(frozen=True, slots=True)
class BatchTask:
    """A batch, or a part of a load.

    files: the add actions of the live files of the table.
    appends: write the rows of delimited texts as they are read, if all are inserts.
    takes: landed files that are written as data files become data files (`ready_files`).
    joins: small files among `files`, to be joined with the new rows.
    options: how to access the location of the table if it is a URL.
    backfill: the landed rows are all rows of the source with keys in this range.
    skip_equal: do not rewrite rows whose values do not change.
    soft: set with soft deletes.
    """

    rows: LandedRows
    location: str
    landed: tuple[LandedPath, ...]
    truncate: bool
    files: Sequence[Mapping[str, Any]]
    appends: bool = False
    takes: bool = False
    joins: Sequence[Mapping[str, Any]] = ()
    options: ObjectOptions | None = None
    backfill: KeyRange | None = None
    skip_equal: bool = False
    soft: SoftDeletes | None = None

    @property
    def table(self) -> str:
        return self.rows.table


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The actions to commit as JSON texts, or the error.

    read: rows of each file, by marker; continues: the first of these files is the last one of the
    previous task; not_append_only: a row is not an insert, so one task has to apply the whole
    batch; again: landed files were opened more than once.
    """

    actions: tuple[str, ...] = ()
    counts: Counts = field(default_factory=Counts)
    error: MirrorlakeError | None = None
    read: tuple[Rows, ...] = ()
    continues: bool = False
    not_append_only: bool = False
    again: bool = False


def run_batch(task: BatchTask) -> BatchResult:
    """Do the work of a task. Raises nothing."""
    pa.set_cpu_count(task.rows.threads)  # for the process, which runs only this task
    try:
        with flush.flush_in_background():
            return _append(task) if task.appends else _apply(task)
    except NotAppendOnly:
        return BatchResult(not_append_only=True)
    except NoBaseRow:
        return BatchResult(error=missing_base_row(task.table, task.landed[0].name))
    except NoSuchRow:
        return BatchResult(error=RowNotFound.of(task.table, task.landed[0].name))
    except Exception as error:  # noqa: BLE001  (it becomes the table's error)
        return BatchResult(
            error=table_error(task.table, task.location, task.options, task.files, error)
        )


def rows_of_files(results: Iterable[BatchResult]) -> list[Rows]:
    """The rows of each file of a batch; parts of a file may have been read by several tasks."""
    files: list[Rows] = []
    for result in results:
        read = list(result.read)
        if result.continues and files:
            insert, update, delete, upsert = zip(files.pop(), read.pop(0), strict=True)
            files.append((sum(insert), sum(update), sum(delete), sum(upsert)))
        files += read
    return files


def _append(task: BatchTask) -> BatchResult:
    read: list[Rows] = []
    schema, key = task.rows.schema, list(task.rows.key)
    with open_workspace(task.location, task.options) as table:
        actions = append(table.folder, schema, _inserted(task, read), keys=key)
        table.upload(actions)
    part = task.landed[0].part
    return BatchResult(
        as_texts(actions),
        Counts(insert=sum(insert for insert, *_none in read)),
        read=tuple(read),
        continues=part is not None and part.begin > 0,
    )


def _inserted(task: BatchTask, read: list[Rows]) -> Iterator[pa.Table]:
    """The rows of delimited texts, in blocks. read: the number of rows of each file is appended.
    Raises NotAppendOnly."""
    for landed in task.landed:
        count = 0
        for rows in task.rows.read_inserts(landed):
            count += rows.num_rows
            yield rows
        read.append((count, 0, 0, 0))


def _apply(task: BatchTask) -> BatchResult:
    schema = task.rows.schema
    with open_workspace(task.location, task.options) as table:
        taken = _taken(task, table.folder) if task.takes else {}
        net, read = _net(task, [landed for landed in task.landed if landed not in taken], table)
        done = rewrite(
            table.folder,
            task.files,
            schema,
            net,
            task.rows.threads,
            task.joins,
            table.fetch,
            skip_equal=task.skip_equal,
        )
        actions = [*({"add": file.add} for file in taken.values()), *done.actions]
        table.upload(actions)
    untaken = iter(read)
    return BatchResult(
        as_texts(actions),
        Counts(
            done.inserted + sum(file.rows for file in taken.values()),
            done.updated,
            done.deleted,
            done.duplicates,
        ),
        read=tuple(
            (taken[landed].rows, 0, 0, 0) if landed in taken else next(untaken)
            for landed in task.landed
        ),
    )


def _taken(task: BatchTask, folder: Path) -> dict[LandedPath, TakenFile]:
    """The landed files that became data files."""
    found = {landed: take_file(landed, task.rows, folder) for landed in task.landed}
    return {landed: taken for landed, taken in found.items() if taken is not None}


def _net(
    task: BatchTask, landed: Sequence[LandedPath], table: TableWorkspace
) -> tuple[NetChanges, list[Rows]]:
    """The net changes of a batch, and the rows of each file by marker. Raises TableError."""
    if task.backfill is None:
        files = [(file.name, task.rows.read(file)) for file in landed]
        return fold(_batch(task, files)), [by_marker(rows.marker) for _name, rows in files]
    (file,) = landed
    chunk = read_chunk(task.rows, file, task.backfill, task.files, table)
    batch = _batch(task, [(file.name, chunk.landed)])
    return fold_chunk(batch, chunk.existing), [chunk.read]


def _batch(task: BatchTask, files: Sequence[tuple[str, parquet.Rows]]) -> LandedBatch:
    schema, key, whole = task.rows.schema.schema, task.rows.key, task.rows.whole_rows
    return LandedBatch(task.table, schema, key, files, task.truncate, whole, task.soft)


def as_texts(actions: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Actions as JSON texts, which are smaller than pickled dictionaries."""
    return tuple(json.dumps(action) for action in actions)
