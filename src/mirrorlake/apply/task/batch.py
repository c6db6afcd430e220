"""One batch of one table in one task: read, fold, look up, write.

A task needs nothing but what it is given and the storage: it knows no driver and no other task. It
writes the files itself, so what it returns is small. Its errors are part of its result: a table
that fails must not fail the job in which others are carried.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from mirrorlake.apply.commit_metadata import Rows, by_marker
from mirrorlake.apply.fold import LandedBatch, fold
from mirrorlake.apply.task.errors import missing_base_row, table_error
from mirrorlake.apply.task.gone_before import gone_before
from mirrorlake.apply.task.landed_rows import LandedPath, LandedRows, NotAppendOnly
from mirrorlake.delta.lookup.key_range import keys_between, overlapping
from mirrorlake.delta.workspace import TableWorkspace, at_hand
from mirrorlake.delta.write import flush
from mirrorlake.delta.write.append import append
from mirrorlake.delta.write.rewrite import NoBaseRow, NoSuchRow, rewrite
from mirrorlake.errors import MirrorlakeError, RowNotFound
from mirrorlake.landing.parquet import reader as parquet
from mirrorlake.mirror.engine import Counts
from mirrorlake.model.keys import KeyRange
from mirrorlake.model.net import NetChanges
from mirrorlake.storage.options import ObjectOptions


@dataclass(frozen=True, slots=True)
class BatchTask:
    """One batch, or a part of a load.

    files: the add actions of the table's live files; appends: texts whose rows are taken for
    inserts, and written as they are read; joins: small ones of the files, which are written anew
    with the batch; options: how the location of the table is reached when that is a URL; backfill:
    the rows are all that the source has with keys in this range.
    """

    rows: LandedRows
    location: str
    landed: tuple[LandedPath, ...]
    truncate: bool
    files: Sequence[Mapping[str, Any]]
    appends: bool = False
    joins: Sequence[Mapping[str, Any]] = ()
    options: ObjectOptions | None = None
    backfill: KeyRange | None = None

    @property
    def table(self) -> str:
        return self.rows.table


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The actions to commit as JSON texts, or why there are none.

    read: rows of each file; continues: the first of these files is the last one of the task before;
    not_append_only: a row was met that is no insert, so that one task has to read the whole batch;
    again: landed files were opened more than once.
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
    pa.set_cpu_count(task.rows.threads)  # of a process that is a task's own
    try:
        with flush.behind():
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
    """The rows of each file of a batch, whose parts several tasks may have read."""
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
    with at_hand(task.location, task.options) as table:
        actions = append(table.folder, schema, _inserted(task, read), keys=key)
        table.keep(actions)
    part = task.landed[0].part
    return BatchResult(
        as_texts(actions),
        Counts(insert=sum(insert for insert, *_none in read)),
        read=tuple(read),
        continues=part is not None and part.begin > 0,
    )


def _inserted(task: BatchTask, read: list[Rows]) -> Iterator[pa.Table]:
    """The rows of texts, block by block. read: gets the rows of each file. Raises NotAppendOnly."""
    for landed in task.landed:
        count = 0
        for rows in task.rows.read_inserts(landed):
            count += rows.num_rows
            yield rows
        read.append((count, 0, 0, 0))


def _apply(task: BatchTask) -> BatchResult:
    schema = task.rows.schema
    files = [(landed.name, task.rows.read(landed)) for landed in task.landed]
    with at_hand(task.location, task.options) as table:
        net = _net(task, files, table)
        done = rewrite(
            table.folder,
            task.files,
            schema,
            net,
            task.rows.threads,
            task.joins,
            table.fetch,
            spares_equal=task.backfill is not None,
        )
        table.keep(done.actions)
    return BatchResult(
        as_texts(done.actions),
        Counts(done.inserted, done.updated, done.deleted, done.duplicates),
        read=tuple(by_marker(some.marker) for _name, some in files),
    )


def _net(
    task: BatchTask, files: Sequence[tuple[str, parquet.Rows]], table: TableWorkspace
) -> NetChanges:
    """The net effect of a batch. Raises TableError."""
    schema, key = task.rows.schema, task.rows.key
    whole = task.rows.whole_rows
    batch = LandedBatch(task.table, schema.schema, key, files, task.truncate, whole)
    if task.backfill is None:
        return fold(batch)
    searched = overlapping(task.files, schema, key, task.backfill)
    table.fetch(searched)
    present = keys_between(table.folder, searched, schema, key, task.backfill)
    return fold(replace(batch, files=[gone_before(batch, present), *files]))


def as_texts(actions: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Actions of Delta's log as a task returns them: smaller than dictionaries."""
    return tuple(json.dumps(action) for action in actions)
