"""The Spark operations of the merge strategy: the key lookup, the `MERGE`, the append.

Only public interfaces are used. User-defined names are quoted, and statements contain no values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession, functions

from mirrorlake.apply.merge_actions import MergeAction
from mirrorlake.apply.strategy import OpenBatch
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.model.arrow import nullable_schema
from mirrorlake.model.change import ROW_DELETED
from mirrorlake.model.keys import KeyRange
from mirrorlake.model.table import Schema
from mirrorlake.spark.committer import USER_METADATA
from mirrorlake.spark.merge.frames import ACTION, CODE, column
from mirrorlake.spark.sql_text import quoted

APPLICATION_ID = "spark.databricks.delta.write.txnAppId"
APPLICATION_VERSION = "spark.databricks.delta.write.txnVersion"


class NewerVersion(Exception):
    """The table has a newer version than the one on which a batch was opened."""


@dataclass(frozen=True, slots=True)
class MergeSource:
    """The merge actions of a batch, in the columns of a frame. kinds: the kinds of actions it
    contains; marks: set if all rows are to be marked as deleted, see `MergeReport`."""

    actions: DataFrame
    kinds: frozenset[MergeAction]
    marks: pa.Table | None = None

    def rows(self, session: SparkSession, batch: OpenBatch) -> DataFrame:
        """The actions and the fence, which fails when the table has a newer version than the one on
        which the batch was opened."""
        fence = session.range(1, numPartitions=1).mapInArrow(_fence(batch), f"{ACTION} byte")
        nothing = [
            functions.lit(None).cast(str(field.type)).alias(column(n))
            for n, field in enumerate(batch.schema.schema)
        ]
        fence = fence.select(*nothing, ACTION)
        return self.actions.select(*fence.columns).union(fence)


def _fence(batch: OpenBatch) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """One row without effect, which is computed only if there is no commit after the one on which
    the batch was opened.

    Spark computes it when Delta reads the source, inside the transaction: the transaction's version
    is not newer than what is seen here.
    """

    location, options, following = batch.location, batch.options, batch.version + 1

    def fence(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _batch in batches:
            if TableLog(location, options).has(following):
                raise NewerVersion
            action = pa.array([int(MergeAction.NOTHING)], pa.int8())
            yield pa.RecordBatch.from_arrays([action], [ACTION])

    return fence


def look_up(session: SparkSession, batch: OpenBatch, keys: DataFrame, *, whole: bool) -> DataFrame:
    """The key number of each existing row with one of these keys, and with `whole` also its
    columns. keys: with their numbers, in the columns of a frame."""
    schema, key = batch.schema.schema, batch.key
    table = session.read.format("delta").load(batch.location).alias("t")
    same = [_same(name, schema.names.index(name), schema) for name in key]
    found = table.join(keys.alias("s"), _all(same))
    columns = [_of_table(field.name).alias(column(n)) for n, field in enumerate(schema)]
    return found.select(*(columns if whole else []), functions.col(f"s.{CODE}"))


def count(session: SparkSession, batch: OpenBatch) -> int:
    """The number of rows that a truncation removes, or marks as deleted."""
    table = session.read.format("delta").load(batch.location).alias("t")
    return (table.where(_is_live()) if batch.soft else table).count()


def keys_between(session: SparkSession, batch: OpenBatch, keys: KeyRange) -> pa.Table:
    """The keys of the table within a range."""
    table = session.read.format("delta").load(batch.location).alias("t")
    names, schema = list(batch.key), nullable_schema(batch.schema.schema)
    kinds = pa.schema([schema.field(name) for name in names])
    numbered = table.select(*(_of_table(name).alias(column(n)) for n, name in enumerate(names)))

    def only(blocks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for block in blocks:
            rows = pa.Table.from_batches([block])
            inside = keys.contains(rows.rename_columns(names).cast(kinds))
            yield from rows.filter(pa.array(inside)).to_batches()

    found = numbered.mapInArrow(only, numbered.schema).toArrow()
    return found.rename_columns(names).cast(kinds)


def merge(session: SparkSession, batch: OpenBatch, source: MergeSource, user_metadata: str) -> None:
    """Apply the actions in one commit with this user metadata."""
    schema, step = batch.schema.schema, batch.step
    own = {
        quoted(field.name): functions.col(f"s.{column(n)}")
        for n, field in enumerate(schema)
        if field.name not in batch.progress.computed
    }
    # Nothing matches in a truncated table; some columns still have to be compared, or Spark
    # has no way to join but each row with each.
    same = [_same(name, schema.names.index(name), schema) for name in batch.key or schema.names[:1]]
    action = functions.col(f"s.{ACTION}")
    table = DeltaTable.forPath(session, batch.location).alias("t")
    rows = source.rows(session, batch).alias("s")
    updates = action.isin(int(MergeAction.UPDATE), int(MergeAction.UPDATE_OF_DELETED))
    deletes = action.isin(int(MergeAction.DELETE), int(MergeAction.DELETE_OF_DELETED))
    matches = (updates | deletes) & _all(same)
    if batch.soft:
        of_deleted = [int(MergeAction.UPDATE_OF_DELETED), int(MergeAction.DELETE_OF_DELETED)]
        matches &= action.isin(of_deleted) != _is_live()
    builder = table.merge(rows, matches)
    if source.kinds & {MergeAction.DELETE, MergeAction.DELETE_OF_DELETED}:
        builder = builder.whenMatchedDelete(deletes)
    if source.kinds & {MergeAction.UPDATE, MergeAction.UPDATE_OF_DELETED} or not source.kinds:
        builder = builder.whenMatchedUpdate(updates, set=own)
    if MergeAction.INSERT in source.kinds:
        builder = builder.whenNotMatchedInsert(action == int(MergeAction.INSERT), values=own)
    if source.marks is not None:
        values = _literals(source.marks, schema)
        builder = builder.whenNotMatchedBySourceUpdate(_is_live(), set=values)
    elif step.truncated:
        builder = builder.whenNotMatchedBySourceDelete()
    settings = {
        APPLICATION_ID: batch.progress.application,
        APPLICATION_VERSION: str(step.last),
        USER_METADATA: user_metadata,
    }
    for name, value in settings.items():
        session.conf.set(name, value)
    try:
        builder.execute()
    finally:
        for name in settings:
            session.conf.unset(name)


def append(
    session: SparkSession, batch: OpenBatch, source: MergeSource, user_metadata: str
) -> None:
    """Insert the rows in one commit with this user metadata."""
    columns = [
        functions.col(column(n)).alias(field.name)
        for n, field in enumerate(batch.schema.schema)
        if field.name not in batch.progress.computed
    ]
    options = {
        "txnAppId": batch.progress.application,
        "txnVersion": str(batch.step.last),
        "userMetadata": user_metadata,
    }
    rows = source.rows(session, batch)
    inserts = rows.where(functions.col(ACTION) == int(MergeAction.INSERT)).select(*columns)
    inserts.write.format("delta").mode("append").options(**options).save(batch.location)


def _is_live() -> Column:
    """Whether a row of a table with soft deletes is not marked as deleted."""
    return ~functions.coalesce(_of_table(ROW_DELETED), functions.lit(False))


def _literals(marks: pa.Table, schema: Schema) -> dict[str, Column]:
    """The values of one row, by quoted column."""
    (row,) = marks.to_pylist()
    return {
        quoted(name): functions.lit(value).cast(str(schema[name].type))
        for name, value in row.items()
    }


def _same(name: str, index: int, schema: Schema) -> Column:
    """Whether a key column of table and source is equal (LZ-256, LZ-257).

    In Spark, -0.0 equals 0.0 and all NaN are equal; comparing as text as well distinguishes the
    former.
    """
    ours, theirs = _of_table(name), functions.col(f"s.{column(index)}")
    equal = ours.eqNullSafe(theirs)
    if schema[name].type.name in {"float", "double"}:
        equal = equal & ours.cast("string").eqNullSafe(theirs.cast("string"))
    return equal


def _all(conditions: Sequence[Column]) -> Column:
    first, *others = conditions
    for other in others:
        first = first & other
    return first


def _of_table(name: str) -> Column:
    return functions.col(f"t.{quoted(name)}")
