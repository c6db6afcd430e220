"""Which way batches go on Spark: tables that only Delta can write, doubts, and a forced way."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import structlog
from delta.tables import DeltaTable

from mirrorlake.apply.direct import Direct
from mirrorlake.apply.engine import STRATEGY
from mirrorlake.errors import ConstraintViolated, UnsupportedTable
from mirrorlake.mirror.engine import Applied, Failed, Outcome
from mirrorlake.mirror.faults import TableFault
from mirrorlake.mirror.strategy import StrategySetting
from mirrorlake.mirror.table.progress import GENERATION, KEY_COLUMNS
from mirrorlake.model import types
from mirrorlake.model.change import Marker
from mirrorlake.model.table import Column, Schema
from mirrorlake.spark.engine import spark_engine
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.storage.local import LocalStore
from tests.conformance import mirrored
from tests.conformance.mirrored import Mirrored
from tests.histories import Shape, counted
from tests.spark import reading
from tests.spark.test_apply import SparkReader

pytestmark = pytest.mark.spark

INSERT, UPDATE, DELETE, UPSERT = Marker.INSERT, Marker.UPDATE, Marker.DELETE, Marker.UPSERT
SHAPE = Shape.of(["id"], id=types.LONG, name=types.STRING)


def delegated(spark: Spark, store: LocalStore) -> Mirrored:
    """A table of ours with everything that only Delta keeps right."""
    shape = Shape.of(["id"], id=types.LONG, name=types.STRING, twice=types.LONG)
    reader = SparkReader(spark.session, store)
    table = Mirrored(spark_engine(spark, store), store, reader, shape)
    location = store.location(table.path)
    properties = {
        GENERATION: mirrored.GENERATION,
        KEY_COLUMNS: json.dumps(["id"]),
        "delta.enableChangeDataFeed": "true",
        "delta.enableRowTracking": "true",
    }
    builder = DeltaTable.create(spark.session).location(location)
    builder = builder.addColumn("id", "bigint", nullable=False).addColumn("name", "string")
    builder = builder.addColumn("twice", "bigint", generatedAlwaysAs="id * 2")
    for name, value in properties.items():
        builder = builder.property(name, value)
    builder.partitionedBy("name").execute()
    named = reading.sql_name(location)
    demanded = "constraint positive check (id is null or id > 0)"
    spark.session.sql(f"alter table {named} add {demanded}").collect()
    return table


def changes(*rows: tuple[Marker, int | None, str | None]) -> list[tuple[int, tuple[Any, ...]]]:
    return [(marker, (number, name, None)) for marker, number, name in rows]


@pytest.mark.full
def test_a_table_that_only_delta_can_write_goes_by_merge(spark: Spark, store: LocalStore) -> None:
    table = delegated(spark, store)
    assert table.engine.progress(table.path).unsupported == ""
    with structlog.testing.capture_logs() as logs:
        table.apply(changes((INSERT, 1, "a"), (INSERT, 2, "b"), (INSERT, 3, None)))
        table.apply(changes((UPDATE, 1, "moved"), (DELETE, 2, None), (UPSERT, 4, "d")))
    (told,) = [entry for entry in logs if entry["event"] == STRATEGY]
    assert (told["strategy"], told["table"]) == ("merge", "orders")
    rows = [(1, "moved", 2), (3, None, 6), (4, "d", 8)]
    assert counted(table.rows()) == counted(rows)
    assert table.compact() is None

    for number, said in ((-1, "the constraint positive"), (None, "NOT NULL of id")):
        outcome = table.run(table.step(changes((UPSERT, number, "a"))))
        assert isinstance(outcome, Failed)
        assert isinstance(outcome.error, ConstraintViolated)
        assert said in outcome.error.what
    assert counted(table.rows()) == counted(rows)
    forced = spark_engine(spark, store, strategy=StrategySetting.DIRECT)
    (outcome,) = forced.apply([table.step(changes((INSERT, 5, "e")))], lambda: None)
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, UnsupportedTable)


@pytest.mark.full
def test_a_text_that_is_longer_than_its_column_stops_its_own_table_alone(
    spark: Spark, store: LocalStore
) -> None:
    table = delegated(spark, store)
    named = reading.sql_name(store.location(table.path))
    spark.session.sql(f"alter table {named} add columns (code varchar(3))").collect()
    table.shape = Shape(Schema.of([*table.shape.schema, Column("code", types.STRING)]), ("id",))
    assert table.engine.progress(table.path).unsupported == ""
    table.apply([(INSERT, (1, "a", None, "abc")), (INSERT, (2, "b", None, None))])

    other = Mirrored(table.engine, store, table.reader, SHAPE, "Tables/other").create()
    steps = [table.step([(UPDATE, (1, "a", None, "abcd"))]), other.step([(INSERT, (1, "abcd"))])]
    refused, applied = table.engine.apply(steps, lambda: None)
    assert isinstance(refused, Failed)
    assert isinstance(refused.error, ConstraintViolated)
    assert "length(code) <= 3" in refused.error.what
    assert "abcd" not in str(refused.error)
    assert isinstance(applied, Applied)
    assert other.rows() == [(1, "abcd")]
    table.apply([(UPDATE, (1, "a", None, "xyz"))])
    assert counted(table.rows()) == counted([(1, "a", 2, "xyz"), (2, "b", 4, None)])


@pytest.fixture
def orders(spark: Spark, store: LocalStore) -> Callable[..., Mirrored]:
    def make(**options: Any) -> Mirrored:
        reader = SparkReader(spark.session, store)
        return Mirrored(spark_engine(spark, store, **options), store, reader, SHAPE).create()

    return make


def astonished(_self: Direct, batches: Sequence[Any], _before: Callable[[], None]) -> list[Outcome]:
    return [Failed(TableFault("KeyError at log.py:1", table="orders")) for _ in batches]


@pytest.mark.full
def test_what_astonishes_the_direct_way_goes_by_merge(
    orders: Callable[..., Mirrored], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = orders()
    monkeypatch.setattr(Direct, "apply", astonished)
    with structlog.testing.capture_logs() as logs:
        assert isinstance(table.run(table.step([(INSERT, (1, "a"))])), Applied)
    (told,) = [entry for entry in logs if entry["event"] == STRATEGY]
    assert told["reason"] == "KeyError at log.py:1"
    assert table.rows() == [(1, "a")]


def test_a_way_that_is_asked_for_is_not_left(
    orders: Callable[..., Mirrored], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = orders(strategy=StrategySetting.DIRECT)
    monkeypatch.setattr(Direct, "apply", astonished)
    assert isinstance(table.run(table.step([(INSERT, (1, "a"))])), Failed)
    assert table.rows() == []
