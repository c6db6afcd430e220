"""Views of change feeds in the catalog of a session."""

from __future__ import annotations

from pathlib import Path

import pyspark
import pytest
from pyspark.errors import AnalysisException

from mirrorlake import FeedError, Mirror, UsageError
from mirrorlake.model import types
from mirrorlake.model.table import Column, Schema
from mirrorlake.spark.session.spark_session import Spark
from tests.cli.conftest import Run, run
from tests.feed.handmade_feed import DELETE, INSERT, FeedTable
from tests.spark.plain_delta.plain import changes_of

__all__ = ["run"]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A table with a quote in its path, one whose type became wider, and one without a feed."""
    root = tmp_path / "it's a shop"
    orders = FeedTable(root / "Tables/shop/orders")
    orders.change((INSERT, (1, "a")), (INSERT, (2, "b")))
    orders.change((DELETE, (2, None)))
    narrow = Schema.of([Column("id", types.INTEGER), Column("name", types.STRING)])
    wider = FeedTable(root / "Tables/shop/wider", narrow)
    wider.describe(orders.schema.schema)
    wider.change((INSERT, (5, "e")))
    FeedTable(root / "Tables/silent", **{"delta.enableChangeDataFeed": "false"})
    return root


before_4_2 = tuple(map(int, pyspark.__version__.split(".")[:2])) < (4, 2)
"""Spark then takes the functions of Delta for temporary ones, over which no view can last."""


@pytest.mark.spark
@pytest.mark.skipif(before_4_2, reason="Spark before 4.2 refuses these views")
@pytest.mark.clause("CF-180")
def test_a_view_of_each_feed_hides_its_path(spark: Spark, shop: Path) -> None:
    session = spark.session.newSession()
    for _again in range(2):
        for view in Mirror.open(root=shop).feed_views():
            for statement in view.statements:
                session.sql(statement)
    assert changes_of(session.table("shop.orders_changes")) == [
        (1, "insert", 1),
        (1, "insert", 2),
        (2, "delete", 2),
    ]
    assert changes_of(session.table("shop.wider_changes")) == [(2, "insert", 5)]
    session.sql("drop database shop cascade")


@pytest.mark.spark
@pytest.mark.skipif(not before_4_2, reason="Spark 4.2 and later take these views")
def test_before_spark_4_2_a_lasting_view_is_refused(spark: Spark, shop: Path) -> None:
    session = spark.session.newSession()
    view = Mirror.open(root=shop).feed_views(["shop.orders"])[0]
    database, lasting = view.statements
    session.sql(database)
    with pytest.raises(AnalysisException, match="INVALID_TEMP_OBJ_REFERENCE"):
        session.sql(lasting)
    session.sql("drop database shop cascade")


@pytest.mark.spark
@pytest.mark.clause("CF-180")
def test_a_temporary_view_of_each_feed_hides_its_path(spark: Spark, shop: Path) -> None:
    session = spark.session.newSession()
    for view in Mirror.open(root=shop).feed_views():
        session.sql(view.temporary)
    assert changes_of(session.table("orders_changes")) == [
        (1, "insert", 1),
        (1, "insert", 2),
        (2, "delete", 2),
    ]
    assert changes_of(session.table("wider_changes")) == [(2, "insert", 5)]


def test_the_command_prints_the_statements(shop: Path, run: Run) -> None:
    done = run("feed-views", "--root", str(shop), "--database", "my `changes`")
    path = str(shop / "Tables/shop/orders").replace("'", "\\'")
    view = "create or replace view `my ``changes```.`orders_changes`"
    first, second, _third = done.out.splitlines()
    assert first == "create database if not exists `my ``changes```;"
    assert second == f"{view} as select * from table_changes_by_path('{path}', 0);"
    found = run("feed-views", "shop.wider", "--root", str(shop), "--json").facts()["views"]
    assert [(one["view"], one["first"]) for one in found] == [("shop.wider_changes", 1)]


def test_a_named_table_without_a_feed_is_refused(shop: Path) -> None:
    mirror = Mirror.open(root=shop)
    with pytest.raises(FeedError, match="not recorded"):
        mirror.feed_views(["silent"])
    with pytest.raises(UsageError, match="there is no table other"):
        mirror.feed_views(["other"])
