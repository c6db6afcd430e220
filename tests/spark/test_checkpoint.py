"""Checkpoints are written between commits, so that no batch waits for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirrorlake.errors import TableError
from mirrorlake.lake.log import TableLog
from mirrorlake.mirror.engine import Applied
from mirrorlake.mirror.strategy import Wanted
from mirrorlake.model.change import Marker
from mirrorlake.spark.engine import SparkEngine
from mirrorlake.spark.session import Spark
from mirrorlake.storage.local import LocalStore
from tests.conformance.apply import ORDERS
from tests.conformance.mirrored import Mirrored
from tests.spark.test_apply import SparkReader

pytestmark = pytest.mark.spark

UPSERT = Marker.UPSERT
DELTAS_OWN = 10
"""Commits after which Delta writes a checkpoint by itself, unless it is told otherwise."""


@pytest.fixture
def orders(spark: Spark, store: LocalStore) -> Mirrored:
    reader = SparkReader(spark.session, store)
    return Mirrored(SparkEngine(spark, store), store, reader, ORDERS).create()


def checkpoints(orders: Mirrored) -> list[str]:
    log = Path(orders.store.location(orders.path)) / "_delta_log"
    return [file.name[:20] for file in log.glob("*.checkpoint*.parquet")]


def test_no_commit_writes_one_and_whoever_asks_does(orders: Mirrored) -> None:
    for number in range(DELTAS_OWN + 1):
        assert isinstance(orders.apply([(UPSERT, (number % 3, str(number), None))]), Applied)
    assert checkpoints(orders) == []
    orders.engine.checkpoint(orders.path)
    assert checkpoints(orders) == [f"{DELTAS_OWN + 1:020d}"]
    before = orders.rows()
    for commit in (Path(orders.store.location(orders.path)) / "_delta_log").glob("*5.json"):
        commit.unlink()  # nobody needs it any more
    assert TableLog(orders.store.location(orders.path)).snapshot().version == DELTAS_OWN + 1
    orders.apply([(UPSERT, (9, "after", None))])
    assert sorted(orders.rows()) == sorted([*before, (9, "after", None)])


def test_a_table_that_is_merged_gets_them_within_commits_and_not_through_insides_of_delta(
    spark: Spark, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("mirrorlake.spark.engine.checkpoint")
    monkeypatch.setattr("mirrorlake.spark.engine.CHECKPOINT_EVERY", 3)
    engine = SparkEngine(spark, store, wanted=Wanted.MERGE)
    orders = Mirrored(engine, store, SparkReader(spark.session, store), ORDERS).create()
    orders.engine.checkpoint(orders.path)
    before = orders.engine.progress(orders.path)
    orders.engine.checkpoint(orders.path)
    assert orders.engine.progress(orders.path) == before
    for number in (1, 2):
        orders.apply([(Marker.INSERT, (number, "a", None))])
    assert checkpoints(orders) == [f"{3:020d}"]


def test_a_table_that_is_gone_is_an_error_of_that_table(orders: Mirrored) -> None:
    with pytest.raises(TableError):
        orders.engine.checkpoint("Tables/nowhere")
