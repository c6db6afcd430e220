"""The keys to look up and the merge actions of a batch, as DataFrames computed by tasks.

The columns of a frame are named by their index in the table, so that no user-defined name has to be
quoted. Additional columns: `action`, of a merge action; `code`, the number of a key to look up,
whose other columns are NULL; and `report`, of a row that each task adds with nothing but its
report. Frames are cached, so that a batch is not folded again for each use; partitions lost with an
executor are recomputed.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession, functions

from mirrorlake.apply.task.merge import (
    KEYS,
    FoundRows,
    MergeReport,
    MergeTask,
    first_fold,
    second_fold,
)
from mirrorlake.model.arrow import nullable_schema
from mirrorlake.model.table import Schema
from mirrorlake.spark.session import workers

ACTION, CODE, REPORT = "action", "code", "report"
NO_KEY = -1
"""The code of a row that was not found: a task gets at least one row, so that it runs."""

BLOCK_ROWS = 65_536
"""Rows per Arrow batch that a task passes to Spark."""

Blocks = Iterator[pa.RecordBatch]
Look = tuple[MergeReport, pa.Table | None]


def column(index: int) -> str:
    """The name of a table column in a frame."""
    return f"c{index}"


@dataclass(frozen=True, slots=True)
class MergeFrame:
    """The result of the tasks of a batch: their reports in order, and all of their rows."""

    reports: list[MergeReport]
    rows: DataFrame


class MergeFrames:
    """The frames of one batch. A context manager that clears their caches at its end."""

    def __init__(self, session: SparkSession, schema: Schema, key: Sequence[str]) -> None:
        self._session, self._schema, self._key = session, schema, tuple(key)
        self._cached = ExitStack()

    def __enter__(self) -> MergeFrames:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._cached.close()

    @property
    def kinds(self) -> str:
        """The columns of a frame, as SQL."""
        own = [f"{column(index)} {field.type}" for index, field in enumerate(self._schema)]
        return ", ".join([*own, f"{ACTION} byte", f"{CODE} long", f"{REPORT} binary"])

    def first_look(self, tasks: Sequence[MergeTask]) -> MergeFrame:
        """For each task, the merge actions or the keys to look up."""
        numbers = self._session.range(0, len(tasks), 1, len(tasks))
        return self._looked(numbers, partial(_first_looks, list(tasks)))

    def second_look(self, task: MergeTask, found: DataFrame) -> MergeFrame:
        """The merge actions of a batch. found: the code and, if needed, the columns of the existing
        rows with its keys."""
        nothing = [functions.lit(None).alias(name) for name in found.columns if name != CODE]
        none = self._session.range(1).select(*nothing, functions.lit(NO_KEY).alias(CODE))
        together = found.unionByName(none).repartition(1)
        return self._looked(together, partial(_second_looks, task))

    def _looked(
        self, given: DataFrame, work: Callable[..., Iterator[tuple[int, Look]]]
    ) -> MergeFrame:
        needed = workers.required_versions(self._session)
        make = partial(_blocks, work, nullable_schema(self._schema), self._key, needed)
        frame = given.mapInArrow(make, self.kinds).persist(StorageLevel.MEMORY_AND_DISK)
        self._cached.callback(frame.unpersist)
        report = functions.col(REPORT)
        rows = frame.where(report.isNotNull()).select(REPORT).collect()
        reports = dict(pickle.loads(row[0]) for row in rows)  # noqa: S301  (our own tasks wrote it)
        return MergeFrame([reports[n] for n in sorted(reports)], frame.where(report.isNull()))


def _first_looks(tasks: Sequence[MergeTask], numbers: Blocks) -> Iterator[tuple[int, Look]]:
    for block in numbers:
        for number in block.column(0).to_pylist():
            yield number, first_fold(tasks[number])


def _second_looks(task: MergeTask, found: Blocks) -> Iterator[tuple[int, Look]]:
    rows = pa.Table.from_batches(list(found))
    rows = rows.filter(pa.array(rows[CODE].to_numpy() != NO_KEY))
    code = rows[CODE].to_numpy().astype(np.int64)
    schema = nullable_schema(task.rows.schema.schema)
    whole = rows.num_columns > 1
    columns = [rows[column(index)].cast(field.type) for index, field in enumerate(schema) if whole]
    yield 0, second_fold(task, FoundRows(code, pa.table(columns, schema=schema) if whole else None))


def _blocks(
    work: Callable[[Blocks], Iterator[tuple[int, Look]]],
    schema: pa.Schema,
    key: Sequence[str],
    needed: Mapping[str, str] | None,
    given: Blocks,
) -> Blocks:
    """Run work in a task, and pass its rows and reports to Spark."""
    workers.require(needed)
    for number, (report, rows) in work(given):
        pickled = pickle.dumps((number, report))
        yield from _frame(schema, {REPORT: pa.array([pickled], pa.binary())}, 1).to_batches()
        if rows is None:
            continue
        *columns, last = rows.columns
        names = [schema.get_field_index(name) for name in key] if report.needs == KEYS else None
        own = dict(zip(map(column, names or range(len(schema))), columns, strict=True))
        own[CODE if names else ACTION] = last
        yield from _frame(schema, own, rows.num_rows).to_batches(BLOCK_ROWS)


def _frame(schema: pa.Schema, columns: dict[str, Any], rows: int) -> pa.Table:
    """A table with all columns of a frame; missing ones are NULL."""
    kinds = {column(index): field.type for index, field in enumerate(schema)}
    kinds |= {ACTION: pa.int8(), CODE: pa.int64(), REPORT: pa.binary()}
    found = [columns[name] if name in columns else pa.nulls(rows, kinds[name]) for name in kinds]
    return pa.table(found, schema=pa.schema(list(kinds.items())))
