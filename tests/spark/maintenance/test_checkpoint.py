"""Checkpoints are written between commits, so that no batch waits for one."""

from __future__ import annotations

import json
import os
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.delta.log.checkpoint import UnsupportedLog, write
from mirrorlake.delta.log.table_log import TableLog, _parquet_actions
from mirrorlake.errors import TableError
from mirrorlake.mirror.engine import Applied
from mirrorlake.mirror.strategy import StrategySetting
from mirrorlake.model.change import Marker
from mirrorlake.spark.engine import spark_engine
from mirrorlake.spark.maintenance import checkpoint
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.storage.local import LocalStore
from tests.conformance.apply.scenario import ORDERS
from tests.conformance.mirrored import Mirrored
from tests.delta import readers
from tests.spark import reading
from tests.spark.test_apply import SparkReader

pytestmark = pytest.mark.spark

UPSERT = Marker.UPSERT
DELTAS_OWN = 10
"""Commits after which Delta writes a checkpoint by itself, unless it is told otherwise."""


@pytest.fixture
def orders(spark: Spark, store: LocalStore) -> Mirrored:
    reader = SparkReader(spark.session, store)
    return Mirrored(spark_engine(spark, store), store, reader, ORDERS).create()


def checkpoints(orders: Mirrored) -> list[str]:
    log = Path(orders.store.location(orders.path)) / "_delta_log"
    return [file.name[:20] for file in log.glob("*.checkpoint*.parquet")]


@pytest.mark.full
def test_no_commit_writes_a_checkpoint_but_a_request_does(orders: Mirrored) -> None:
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


@pytest.mark.full
def test_a_table_that_is_merged_gets_them_within_commits_and_not_through_insides_of_delta(
    spark: Spark, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(checkpoint.Checkpoints, "write")
    monkeypatch.setattr("mirrorlake.spark.tables.CHECKPOINT_EVERY", 3)
    engine = spark_engine(spark, store, strategy=StrategySetting.MERGE)
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


# -- ours, and what Delta would have written ------------------------------------------------------


def lived(spark: Spark, orders: Mirrored, *, mapped: bool) -> Path:
    """A table to which much has happened."""
    table = Path(orders.store.location(orders.path))
    name = reading.sql_name(table)
    sql = spark.session.sql
    orders.apply([(Marker.INSERT, (number, "a", None)) for number in range(40)])
    for number in range(4):
        orders.apply(
            [(UPSERT, (number % 5, f"\u00e4 {number}", None)), (Marker.DELETE, (30, None, None))]
        )
    if mapped:
        sql(f"alter table {name} set tblproperties ('delta.columnMapping.mode' = 'name')")
        sql(f"alter table {name} add columns (`a.b ,;` string)")
    sql(f"delete from {name} where id = 3")
    sql(f"optimize {name}")
    sql(f"alter table {name} set tblproperties ('x.y' = '\u00fc')")
    return table


def newest_checkpoint(table: Path) -> Path:
    return max((table / "_delta_log").glob("*.checkpoint*.parquet"))


def actions(checkpoint: Path) -> list[str]:
    """In no order, and without what is absent."""
    with checkpoint.open("rb") as file:
        return sorted(json.dumps(row, sort_keys=True) for row in _parquet_actions(file))


@pytest.mark.full
@pytest.mark.parametrize(
    "mapped", [pytest.param(False, marks=pytest.mark.long), True], ids=["", "columns mapped"]
)
def test_ours_holds_what_deltas_holds_also_upon_each_other_and_every_reader_begins_with_it(
    spark: Spark, orders: Mirrored, tmp_path: Path, mapped: bool
) -> None:
    table = lived(spark, orders, mapped=mapped)
    deltas, upon = tmp_path / "deltas", tmp_path / "upon"
    for copy in (deltas, upon):
        shutil.copytree(table, copy)
    orders.engine.checkpoint(orders.path)
    checkpoint._by_delta(spark.session, str(deltas))
    assert newest_checkpoint(table).name == newest_checkpoint(deltas).name
    assert actions(newest_checkpoint(table)) == actions(newest_checkpoint(deltas))

    # On top of one that Delta has written, of half of the log.
    copied = sorted((upon / "_delta_log").glob("*.json"))
    for commit in copied[8:]:
        commit.rename(upon / commit.name)
    checkpoint._by_delta(spark.session, str(upon))
    for commit in copied[8:]:
        (upon / commit.name).rename(commit)
    write(upon)
    assert actions(newest_checkpoint(upon)) == actions(newest_checkpoint(deltas))

    rows = sorted(map(str, reading.rows(spark.session, table)))
    alone = tmp_path / "alone"
    shutil.copytree(table, alone)
    for commit in sorted((alone / "_delta_log").glob("*.json"))[:-1]:
        commit.unlink()
    assert sorted(map(str, reading.rows(spark.session, alone))) == rows
    if not mapped:
        assert sorted(map(str, readers.rows_by_delta_rs(alone))) == rows
    assert sorted(map(str, readers.rows_by_duckdb(alone))) == rows


@pytest.mark.full
def test_vacuum_spares_what_ours_says_was_deleted_lately(spark: Spark, orders: Mirrored) -> None:
    table = lived(spark, orders, mapped=False)
    orders.engine.checkpoint(orders.path)
    for path in table.rglob("*"):
        os.utime(path, (1, 1))  # as if all of it were old
    before = {path.name for path in table.glob("*.parquet")}
    orders.engine.vacuum(orders.path, timedelta(days=7), lambda: None)
    assert {path.name for path in table.glob("*.parquet")} == before


@pytest.mark.full
def test_a_log_that_is_not_known_gets_one_of_deltas(
    spark: Spark, orders: Mirrored, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unfamiliar(_table: Path, **_options: object) -> int:
        raise UnsupportedLog("action rowIds")

    monkeypatch.setattr(checkpoint, "write", unfamiliar)
    orders.apply([(UPSERT, (1, "a", None))])
    orders.engine.checkpoint(orders.path)
    assert checkpoints(orders) == [f"{1:020d}"]


def test_delta_is_asked_once_a_day_to_remove_what_has_expired_of_a_log(
    spark: Spark, orders: Mirrored, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, location = 0.0, orders.store.location(orders.path)
    ours = checkpoint.Checkpoints(spark.session, lambda: now)
    log, looks = checkpoint._delta_log, list[float]()

    def noted(*args: Any) -> Any:
        looks.append(now)
        return log(*args)

    monkeypatch.setattr(checkpoint, "_delta_log", noted)
    for hour in (0, 1, 25, 30):
        now = hour * 3600.0
        orders.apply([(UPSERT, (hour, "a", None))])
        ours.write(location)
    assert looks == [0.0, 25 * 3600.0]


@pytest.mark.full
def test_what_has_expired_of_a_log_goes(spark: Spark, orders: Mirrored) -> None:
    """Delta goes by the times that commits say of themselves, in whole days."""
    location = orders.store.location(orders.path)
    for number in range(3):
        orders.apply([(UPSERT, (number, "a", None))])
    log = Path(location, "_delta_log")
    before = len(list(log.glob("*.json")))
    aged(log, days=60)
    ours = checkpoint.Checkpoints(spark.session)
    ours.write(location)
    assert len(list(log.glob("*.json"))) < before
    assert len(orders.rows()) == 3


def aged(log: Path, days: int) -> None:
    """Let all that the log holds be so old."""
    for commit in log.glob("*.json"):
        lines = [json.loads(line) for line in commit.read_text().splitlines()]
        for line in lines:
            if info := line.get("commitInfo"):
                info["inCommitTimestamp"] -= days * 86_400_000
        commit.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for path in log.iterdir():
        when = path.stat().st_mtime - days * 86_400
        os.utime(path, (when, when))
