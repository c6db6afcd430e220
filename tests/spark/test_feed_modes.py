"""What Spark and delta-rs read of tables that replace rows, have no feed, or leave out what changes
nothing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from mirrorlake import read_feed
from mirrorlake.delta.schema import FeedMode
from mirrorlake.model import types
from mirrorlake.model.change import FEED_COLUMNS, Marker
from mirrorlake.spark.engine import spark_engine
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.storage.local import LocalStore
from tests.conformance.mirrored import Mirrored
from tests.histories import Shape
from tests.spark import reading
from tests.spark.test_apply import SparkReader

pytestmark = pytest.mark.spark

INSERT, UPDATE, DELETE = Marker.INSERT, Marker.UPDATE, Marker.DELETE
SHAPE = Shape.of(["id"], id=types.LONG, name=types.STRING)
RESERVED = Shape.of(["id"], id=types.LONG, **dict.fromkeys(FEED_COLUMNS, types.STRING))


@pytest.mark.clause("CF-145", "CF-146", "CF-099", "CF-014")
def test_updates_are_replaced_and_a_table_without_a_feed_may_have_its_columns(
    spark: Spark, store: LocalStore
) -> None:
    engine, reader = spark_engine(spark, store), SparkReader(spark.session, store)
    orders = Mirrored(engine, store, reader, SHAPE, "Tables/orders").create(feed=FeedMode.REPLACE)
    silent = Mirrored(engine, store, reader, RESERVED, "Tables/silent").create(feed=FeedMode.OFF)
    for changes in (
        [(INSERT, 1, "a"), (INSERT, 2, "b"), (INSERT, 3, "c")],
        [(UPDATE, 1, "d"), (DELETE, 2, None), (INSERT, 4, "e")],
        [(UPDATE, 1, "f"), (UPDATE, 3, "g")],
    ):
        steps = [
            orders.step([(marker, (key, name)) for marker, key, name in changes]),
            silent.step([(marker, (key, name, name, name)) for marker, key, name in changes]),
        ]
        engine.apply(steps, lambda: None)
        for table, step in zip((orders, silent), steps, strict=True):
            table.recorded = step.last
    second = Counter({("delete", (1, "a")): 1, ("insert", (1, "d")): 1})
    second += Counter({("delete", (2, "b")): 1, ("insert", (4, "e")): 1})
    third = Counter({("delete", (key, name)): 1 for key, name in ((1, "d"), (3, "c"))})
    third += Counter({("insert", (key, name)): 1 for key, name in ((1, "f"), (3, "g"))})
    location = Path(store.location(orders.path))
    found = reading.feed(spark.session, location, 2)
    assert found == {2: second, 3: third}
    assert not list(location.glob("_change_data/*"))
    rows = [(1, "f"), (3, "g"), (4, "e")]
    assert sorted(orders.rows()) == rows
    assert sorted(silent.rows()) == [(key, *[name] * 3) for key, name in rows]
    paired = read_feed(location, from_version=3, pair_updates=True, key=["id"]).to_arrow()
    assert set(paired["_change_type"].to_pylist()) == {"update_preimage", "update_postimage"}
    assert paired.num_rows == 4
