"""Columns that are altered in a table of the real Delta, and who can read it then."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from operator import itemgetter

import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError

from mirrorlake import read_feed
from mirrorlake.apply.engine import Engine
from mirrorlake.delta.schema import MAPPING, TYPE_WIDENING
from mirrorlake.mirror.steps import AddColumns, AlterColumns, RenameColumns
from mirrorlake.model import types
from mirrorlake.model.table import Column
from mirrorlake.spark.engine import spark_engine
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.storage.local import LocalStore
from tests.conformance.apply.scenario import delete, insert, update
from tests.conformance.mirrored import Mirrored
from tests.delta.readers import rows_by_delta_rs, rows_by_duckdb, rows_by_view
from tests.histories import Shape
from tests.reference import Row
from tests.spark import reading
from tests.spark.test_apply import SparkReader

pytestmark = [pytest.mark.spark, pytest.mark.full]

SHAPE = Shape.of(["id"], id=types.INTEGER, a=types.STRING, b=types.STRING, d=types.decimal(9, 2))
OTHERS = {"b": types.STRING, "d": types.decimal(12, 3), "c": types.INTEGER}
WIDE = Shape.of(["id"], id=types.LONG, a=types.STRING, **OTHERS)
MANY = 1_000
RETYPED = Shape.of(["id"], id=types.LONG, a=types.INTEGER, **OTHERS)


def test_altered_columns_are_read_by_everybody(spark: Spark, store: LocalStore) -> None:
    engine = spark_engine(spark, store)
    reader = SparkReader(spark.session, store)
    table = Mirrored(engine, store, reader, SHAPE, "Tables/altered").create()
    table.apply([insert(1, "x", "y", None), insert(2, "z", None, None)])
    table.apply([update(1, "x", "w", None)])
    table.add_columns(Column("c", types.INTEGER))
    step = AlterColumns(
        table.table, table.path, 3, {"a": "b", "b": "a"}, pa.record_batch({"c": pa.array([7])}), {}
    )
    engine.alter_columns(step, lambda: None)
    version = engine.progress(table.path).version
    assert sum(reader.feed(table.path)[version].values()) == 4
    wider = {"id": types.LONG, "d": types.decimal(12, 3)}
    engine.alter_columns(AlterColumns(table.table, table.path, 4, {}, None, wider), lambda: None)
    after = Mirrored(engine, store, reader, WIDE, table.path, recorded=2)
    after.apply([insert(2**40, "n", None, None, 8), update(2, None, "q", None, 7)])
    expected = [(1, "w", "x", None, 7), (2, None, "q", None, 7), (2**40, "n", None, None, 8)]
    assert sorted(after.rows()) == expected
    location = store.location(table.path)
    assert sorted(rows_by_duckdb(location)) == expected
    assert sorted(rows_by_view(location)) == expected
    assert sorted(rows_by_delta_rs(location)) == expected
    # A batch read of the feed by Spark begins behind the change of a type (CF-136), ours does not.
    feed = spark.session.read.format("delta").option("readChangeFeed", "true")
    assert feed.option("startingVersion", version + 1).load(location).count() > 0
    united = read_feed(location, from_version=0, on_schema_change="unite").to_arrow()
    assert united.num_rows > 8
    assert _operations(spark, location, version, version + 1) == ["UPDATE SCHEMA"] * 2
    other = AlterColumns(
        *(table.table, table.path, 5, {"a_before_1": "a"}, None, {"a": types.INTEGER}),
        converted=frozenset({"a"}),
    )
    engine.add_columns(AddColumns(table.table, table.path, (Column("a_before_1", types.STRING),)))
    engine.alter_columns(other, lambda: None)
    version = engine.progress(table.path).version
    assert sorted(row[-1] for row in after.rows() if row[-1]) == ["n", "w"]
    assert [row[1] for row in after.rows()] == [None] * 3
    dropped = AlterColumns(table.table, table.path, 6, {}, None, {}, dropped=("a_before_1",))
    engine.alter_columns(dropped, lambda: None)
    last = Mirrored(engine, store, reader, RETYPED, table.path, recorded=3)
    last.apply([update(1, 5, "x", None, 7)])
    expected = [(1, 5, "x", None, 7), (2, None, "q", None, 7), (2**40, None, None, None, 8)]
    others = (rows_by_duckdb(location), rows_by_view(location), rows_by_delta_rs(location))
    for rows in (last.rows(), *others):
        assert sorted(rows, key=lambda row: row[0]) == expected
    _drop_and_add_again(engine, last, store)
    pieces = read_feed(location, from_version=version, to_version=version + 2)
    assert [one.last - one.first for one in pieces.ranges] == [0, 1]
    assert sum(commit.rows.num_rows for commit in pieces) == 6


def _drop_and_add_again(engine: Engine, table: Mirrored, store: LocalStore) -> None:
    """Column d is dropped by column mapping; another one of its name has other values."""
    engine.set_properties(table.path, {MAPPING: "name"})
    dropped = AlterColumns(table.table, table.path, 7, {}, None, {}, dropped=("d",))
    engine.alter_columns(dropped, lambda: None)
    engine.add_columns(AddColumns(table.table, table.path, (Column("d", types.LONG),)))
    names = {"a": types.INTEGER, "b": types.STRING, "c": types.INTEGER, "d": types.LONG}
    shape = Shape.of(["id"], id=types.LONG, **names)
    again = Mirrored(engine, store, table.reader, shape, table.path, recorded=4)
    again.apply([update(1, 6, "x", 7, 8)])
    expected = [(1, 6, "x", 7, 8), (2, None, "q", 7, None), (2**40, None, None, 8, None)]
    location = store.location(table.path)
    others = (rows_by_duckdb(location), rows_by_view(location), rows_by_delta_rs(location))
    for rows in (again.rows(), *others):
        assert sorted(rows, key=lambda row: row[0]) == expected


def _operations(spark: Spark, location: str, *versions: int) -> list[str]:
    """What Delta says of these versions."""
    said = {row["version"]: row["operation"] for row in reading.history(spark.session, location)}
    return [said[version] for version in versions]


def test_renamed_columns_are_read_by_everybody(spark: Spark, store: LocalStore) -> None:
    """Key columns go round with the others, and a name is used again."""
    engine = spark_engine(spark, store)
    reader = SparkReader(spark.session, store)
    shape = Shape.of(["id", "a"], id=types.INTEGER, a=types.INTEGER, b=types.INTEGER)
    table = Mirrored(engine, store, reader, shape, "Tables/renamed").create()
    table.apply([insert(1, 2, 3), insert(2, 1, 4), insert(5, 6, None)])
    table.apply([update(1, 2, 7)])
    engine.set_properties(table.path, {MAPPING: "name"})
    names = {"id": "a", "a": "b", "b": "id"}
    step = RenameColumns(table.table, table.path, 3, names, key=("id", "a"))
    before = engine.progress(table.path).version
    engine.rename_columns(step, lambda: None)
    assert engine.progress(table.path).key == ("a", "b")
    assert engine.progress(table.path).version == before + 1
    engine.rename_columns(step, lambda: None)
    assert engine.progress(table.path).version == before + 1
    around = Shape.of(["a", "b"], a=types.INTEGER, b=types.INTEGER, id=types.INTEGER)
    again = Mirrored(engine, store, reader, around, table.path, recorded=2)
    again.apply([update(1, 2, 8), delete(5, 6, None), insert(6, 5, 9)])
    expected = [(1, 2, 8), (2, 1, 4), (6, 5, 9)]
    location = store.location(table.path)
    assert _operations(spark, location, before + 1) == ["UPDATE SCHEMA"]
    for rows in (again.rows(), rows_by_duckdb(location), rows_by_view(location)):
        assert sorted(rows) == expected
    assert sorted(rows_by_delta_rs(location)) == expected
    more = RenameColumns(table.table, table.path, 4, {"id": "former"})
    engine.rename_columns(more, lambda: None)
    engine.add_columns(AddColumns(table.table, table.path, (Column("id", types.INTEGER),)))
    last = Shape.of(["a", "b"], **dict.fromkeys(("a", "b", "former", "id"), types.INTEGER))
    again = Mirrored(engine, store, reader, last, table.path, recorded=3)
    again.apply([update(2, 1, 4, 10)])
    expected = [(1, 2, 8, None), (2, 1, 4, 10), (6, 5, 9, None)]
    others = (rows_by_duckdb(location), rows_by_view(location), rows_by_delta_rs(location))
    for rows in (again.rows(), *others):
        assert sorted(rows, key=lambda row: row[0]) == expected
    pieces = read_feed(location, from_version=0)
    assert [[*piece.schema.schema.names] for piece in pieces.ranges] == [
        ["id", "a", "b"],
        ["a", "b", "id"],
        ["a", "b", "former", "id"],
    ]
    assert sum(commit.rows.num_rows for commit in pieces) == 3 + 2 + 4 + 2


def test_widened_types_are_read_by_those_who_know_them(spark: Spark, store: LocalStore) -> None:
    """Rows of files with the former types are found, changed and compacted with those of others."""
    engine = spark_engine(spark, store)
    reader = SparkReader(spark.session, store)
    shape = Shape.of(["id"], id=types.SHORT, n=types.INTEGER, d=types.decimal(9, 2))
    table = Mirrored(engine, store, reader, shape, "Tables/widened").create()
    table.apply([insert(i, i, Decimal(f"{i}.25")) for i in range(MANY)])
    table.apply([delete(7, None, None), update(8, None, Decimal("8.5"))])
    engine.set_properties(table.path, {TYPE_WIDENING: "true"})
    wider = {"id": types.INTEGER, "n": types.LONG, "d": types.decimal(14, 2)}
    step = AlterColumns(table.table, table.path, 3, {}, None, wider, widened=frozenset(wider))
    before = engine.progress(table.path).version
    engine.alter_columns(step, lambda: None)
    step = replace(step, number=4, types={"id": types.LONG}, widened=frozenset({"id"}))
    engine.alter_columns(step, lambda: None)
    after = Shape.of(["id"], id=types.LONG, n=types.LONG, d=types.decimal(14, 2))
    again = Mirrored(engine, store, reader, after, table.path, recorded=2)
    again.apply(
        [
            update(1, 2**40, None),
            delete(2, None, None),
            insert(2**40, 7, Decimal("1234567890.25")),
        ]
    )
    changed = {1: (1, 2**40, None), 8: (8, None, Decimal("8.5"))}
    expected = {
        **{i: (i, i, Decimal(f"{i}.25")) for i in range(MANY) if i not in {2, 7}},
        **changed,
        2**40: (2**40, 7, Decimal("1234567890.25")),
    }
    location = store.location(table.path)
    for rows in rows_of_each(spark, location):
        assert {row[0]: row for row in rows} == expected
    conditions = {
        "id > 998.5": lambda row: row[0] > 998,
        "id <> 4294967297 and n < 4294967298": lambda row: row[1] is not None and row[1] < 2**32,
        "n >= 4294967297 or n in (3, 1099511627777)": lambda row: row[1] in {3, 2**40},
        "d between 8.3 and 9.255": lambda row: row[2] and Decimal(8) < row[2] < Decimal(10),
        "d > 1234567890": lambda row: row[2] and row[2] > 1234567890,
    }
    for condition, holds in conditions.items():
        wanted = sorted((row for row in expected.values() if holds(row)), key=itemgetter(0))
        assert wanted
        for rows in rows_of_each(spark, location, condition):
            assert sorted(rows, key=itemgetter(0)) == wanted, condition
    feed = spark.session.read.format("delta").option("readChangeFeed", "true")
    assert feed.option("startingVersion", before + 2).load(location).count() == 4
    united = read_feed(location, from_version=0, on_schema_change="unite").to_arrow()
    assert united.num_rows == MANY + 1 + 2 + 4
    spark.session.sql(f"optimize delta.`{location}`")
    again.apply([update(3, None, None)])
    found = {row[0]: row for row in reading.rows(spark.session, location)}
    assert found == expected | {3: (3, None, None)}
    with pytest.raises(DeltaError, match="TypeWidening"):
        rows_by_delta_rs(location)


def rows_of_each(spark: Spark, location: str, condition: str = "true") -> list[list[Row]]:
    """The rows of a table by each reader that knows its features."""
    found = spark.session.read.format("delta").load(location).where(condition)
    by_spark = [tuple(row) for row in found.collect()]
    return [by_spark, rows_by_duckdb(location, condition), rows_by_view(location, condition)]
