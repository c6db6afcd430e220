"""What a batch is to Spark: the keys to look up, and the merge actions, as frames that tasks make.

A frame has the columns of the table, called by their number, so that no name of a user's has to be
quoted. Beside them stand `action`, of a merge action; `code`, the number of a key to look up, whose
other columns are NULL; and `report`, of a row that each task adds with its report and nothing else.
Frames are cached, so that a batch is not folded anew for each use; what an executor takes with it
is made again.
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
    first_look,
    second_look,
)
from mirrorlake.model.arrow import nullable_schema
from mirrorlake.model.table import Schema
from mirrorlake.spark.session import workers

ACTION, CODE, REPORT = "action", "code", "report"
NO_KEY = -1
"""The code of a row that was not found: a task gets one at least, so that it runs."""

BLOCK_ROWS = 65_536
"""Rows that a task hands to Spark together."""

Blocks = Iterator[pa.RecordBatch]
Look = tuple[MergeReport, pa.Table | None]


def column(index: int) -> str:
    """The name of a table's column in a frame."""
    return f"c{index}"


@dataclass(frozen=True, slots=True)
class MergeFrame:
    """What tasks made of a batch: their reports in order, and the rows of all of them."""

    reports: list[MergeReport]
    rows: DataFrame


class MergeFrames:
    """The frames of one batch. Use as a context manager: at its end nothing is cached any more."""

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
        own = [f"{column(index)} {one.type}" for index, one in enumerate(self._schema)]
        return ", ".join([*own, f"{ACTION} byte", f"{CODE} long", f"{REPORT} binary"])

    def first_look(self, tasks: Sequence[MergeTask]) -> MergeFrame:
        """Of each task the merge actions, or the keys to look up."""
        numbers = self._session.range(0, len(tasks), 1, len(tasks))
        return self._looked(numbers, partial(_first_looks, list(tasks)))

    def second_look(self, task: MergeTask, found: DataFrame) -> MergeFrame:
        """The merge actions of a batch. found: the code and, where they are needed, the columns of
        the rows that the table has of its keys."""
        nothing = [functions.lit(None).alias(name) for name in found.columns if name != CODE]
        none = self._session.range(1).select(*nothing, functions.lit(NO_KEY).alias(CODE))
        together = found.unionByName(none).repartition(1)
        return self._looked(together, partial(_second_looks, task))

    def _looked(
        self, given: DataFrame, work: Callable[..., Iterator[tuple[int, Look]]]
    ) -> MergeFrame:
        needed = workers.wanted(self._session)
        make = partial(_blocks, work, nullable_schema(self._schema), self._key, needed)
        frame = given.mapInArrow(make, self.kinds).persist(StorageLevel.MEMORY_AND_DISK)
        self._cached.callback(frame.unpersist)
        report = functions.col(REPORT)
        said = frame.where(report.isNotNull()).select(REPORT).collect()
        reports = dict(pickle.loads(row[0]) for row in said)  # noqa: S301  (our own tasks wrote it)
        return MergeFrame([reports[n] for n in sorted(reports)], frame.where(report.isNull()))


def _first_looks(tasks: Sequence[MergeTask], numbers: Blocks) -> Iterator[tuple[int, Look]]:
    for block in numbers:
        for number in block.column(0).to_pylist():
            yield number, first_look(tasks[number])


def _second_looks(task: MergeTask, found: Blocks) -> Iterator[tuple[int, Look]]:
    rows = pa.Table.from_batches(list(found))
    rows = rows.filter(pa.array(rows[CODE].to_numpy() != NO_KEY))
    code = rows[CODE].to_numpy().astype(np.int64)
    schema = nullable_schema(task.rows.schema.schema)
    whole = rows.num_columns > 1
    columns = [rows[column(index)].cast(field.type) for index, field in enumerate(schema) if whole]
    yield 0, second_look(task, FoundRows(code, pa.table(columns, schema=schema) if whole else None))


def _blocks(
    work: Callable[[Blocks], Iterator[tuple[int, Look]]],
    schema: pa.Schema,
    key: Sequence[str],
    needed: Mapping[str, str] | None,
    given: Blocks,
) -> Blocks:
    """Run work in a task, and hand its rows and reports to Spark."""
    workers.require(needed)
    for number, (report, rows) in work(given):
        said = pickle.dumps((number, report))
        yield from _frame(schema, {REPORT: pa.array([said], pa.binary())}, 1).to_batches()
        if rows is None:
            continue
        *columns, last = rows.columns
        names = [schema.get_field_index(name) for name in key] if report.needs == KEYS else None
        own = dict(zip(map(column, names or range(len(schema))), columns, strict=True))
        own[CODE if names else ACTION] = last
        yield from _frame(schema, own, rows.num_rows).to_batches(BLOCK_ROWS)


def _frame(schema: pa.Schema, columns: dict[str, Any], rows: int) -> pa.Table:
    """A table with all columns of a frame, NULL where there is none."""
    kinds = {column(index): field.type for index, field in enumerate(schema)}
    kinds |= {ACTION: pa.int8(), CODE: pa.int64(), REPORT: pa.binary()}
    found = [columns[name] if name in columns else pa.nulls(rows, kinds[name]) for name in kinds]
    return pa.table(found, schema=pa.schema(list(kinds.items())))
