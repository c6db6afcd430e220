"""What others do to a table of ours: noticed, never overwritten, never applied twice."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.apply.committer import BatchCommit
from mirrorlake.apply.engine import Engine
from mirrorlake.errors import ForeignTable, UnsupportedTable
from mirrorlake.mirror.engine import (
    AlreadyApplied,
    Applied,
    Conflicted,
    Failed,
    Outcome,
    Unknown,
)
from mirrorlake.mirror.steps import CreateTable
from mirrorlake.model import types
from mirrorlake.model.change import Marker
from mirrorlake.model.table import Column
from mirrorlake.spark import committer as spark_committer
from mirrorlake.spark.committer import SparkCommitter
from mirrorlake.spark.engine import spark_engine
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.storage.local import LocalStore
from tests.conformance.mirrored import Mirrored
from tests.delta.log.test_spark import delta_log
from tests.histories import Shape, counted
from tests.profiles import some
from tests.spark import reading
from tests.spark.test_apply import SparkReader

pytestmark = pytest.mark.spark

INSERT, UPDATE = Marker.INSERT, Marker.UPDATE
SHAPE = Shape.of(
    ["id"], id=types.LONG, name=types.STRING, amount=types.decimal(12, 2), at=types.TIMESTAMP
)
NOW = datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=UTC)
STATEMENTS = {
    "optimize": "optimize {t}",
    "property": "alter table {t} set tblproperties ('a.b' = 'c')",
    "delete": "delete from {t} where id = 2",
}
KINDS = ("Inserted", "Updated", "Deleted")
RESTORE = "restore table {t} to version as of 1"


def row(number: int, name: str) -> tuple:
    return (number, name, Decimal("1.10"), NOW)


@pytest.fixture
def engine(spark: Spark, store: LocalStore) -> Engine:
    return spark_engine(spark, store)


@pytest.fixture
def table(spark: Spark, engine: Engine, store: LocalStore) -> Mirrored:
    """A table of two files, at version 2."""
    found = Mirrored(engine, store, SparkReader(spark.session, store), SHAPE).create()
    found.apply([(INSERT, row(1, "a")), (INSERT, row(2, "b"))])
    found.apply([(INSERT, row(3, "c"))])
    return found


@pytest.fixture
def by_hand(spark: Spark, store: LocalStore, table: Mirrored) -> Callable[[str], None]:
    """Runs a statement on the table."""
    name = reading.sql_name(store.location(table.path))
    return lambda statement: spark.session.sql(statement.format(t=name)).collect()


@pytest.mark.full
@pytest.mark.parametrize("statement", some(list(STATEMENTS.values())), ids=STATEMENTS)
def test_a_commit_between_reading_and_committing_is_a_conflict(
    table: Mirrored, by_hand: Callable[[str], None], statement: str
) -> None:
    outcome = table.run(table.step([(UPDATE, row(1, "new"))]), lambda: by_hand(statement))
    assert isinstance(outcome, Conflicted)


@pytest.mark.full
@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS)
def test_a_commit_inside_the_transaction_is_a_conflict(
    table: Mirrored,
    by_hand: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    statement: str,
) -> None:
    prepare = spark_committer._Delta.described

    def interrupted(*args: Any) -> Any:
        by_hand(statement)
        return prepare(*args)

    monkeypatch.setattr(spark_committer._Delta, "described", interrupted)
    outcome = table.run(table.step([(UPDATE, row(1, "new"))]))
    assert isinstance(outcome, Conflicted)


def test_two_batches_that_change_no_row_conflict_by_their_application(
    spark: Spark, store: LocalStore, table: Mirrored, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare, step = spark_committer._Delta.described, table.step([])

    def interrupted(*args: Any) -> Any:
        monkeypatch.setattr(spark_committer._Delta, "described", prepare)
        spark_engine(spark, store).apply([step], lambda: None)
        return prepare(*args)

    monkeypatch.setattr(spark_committer._Delta, "described", interrupted)
    assert isinstance(table.run(step), Conflicted)


@pytest.mark.full
def test_the_batch_is_right_after_a_conflict(
    table: Mirrored, by_hand: Callable[[str], None]
) -> None:
    step = table.step([(UPDATE, row(1, "new")), (UPDATE, row(2, "new"))])
    for statement in ("optimize", "property", "delete"):
        table.run(step, lambda statement=statement: by_hand(STATEMENTS[statement]))
    assert isinstance(table.run(step), Applied)
    assert counted(table.rows()) == counted([row(1, "new"), row(2, "new"), row(3, "c")])


# -- the end of the log as our last commit left it ------------------------------------------------


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each transaction began on what was known, without a look at the log."""
    begin, seen = spark_committer._Delta.transaction, list[bool]()

    def noted(self: Any, *args: Any, known: bool = False) -> Any:
        seen.append(known)
        return begin(self, *args, known=known)

    monkeypatch.setattr(spark_committer._Delta, "transaction", noted)
    return seen


def newest(store: LocalStore, table: Mirrored) -> Path:
    return max(Path(store.location(table.path), "_delta_log").glob("*.json"))


@pytest.mark.full
def test_a_batch_after_our_own_needs_no_look_at_the_log(table: Mirrored, known: list[bool]) -> None:
    table.apply([(UPDATE, row(1, "new"))])
    table.apply([(UPDATE, row(2, "new"))])
    assert known == [True, True]
    assert counted(table.rows()) == counted([row(1, "new"), row(2, "new"), row(3, "c")])


@pytest.mark.full
def test_a_commit_of_another_process_is_never_overlooked(
    store: LocalStore, table: Mirrored, known: list[bool]
) -> None:
    step, last = table.step([(UPDATE, row(1, "new"))]), newest(store, table)
    theirs = last.with_name(f"{int(last.stem) + 1:020d}.json")
    info = {"timestamp": 1, "inCommitTimestamp": 2**42, "operation": "x"}
    said = json.dumps({"commitInfo": {**info, "operationParameters": {}}})
    outcome = table.run(step, lambda: theirs.write_text(said))
    assert isinstance(outcome, Conflicted)
    assert known == [False]
    assert isinstance(table.run(step), Applied)
    assert counted(table.rows()) == counted([row(1, "new"), row(2, "b"), row(3, "c")])


def test_a_newest_commit_that_is_another_file_is_looked_at(
    store: LocalStore, table: Mirrored, known: list[bool]
) -> None:
    last = newest(store, table)
    copy = shutil.copy(last, last.with_suffix(".copy"))
    Path(copy).rename(last)
    table.apply([(UPDATE, row(1, "new"))])
    assert known == [False]


@pytest.mark.full
def test_each_commit_has_its_own_metrics(spark: Spark, store: LocalStore, table: Mirrored) -> None:
    changes = [(UPDATE, row(1, "new")), (UPDATE, row(2, "new")), (INSERT, row(4, "d"))]
    for each in (changes, [(UPDATE, row(3, "new"))], [(Marker.DELETE, row(4, "d"))]):
        table.apply(each)
    name = reading.sql_name(store.location(table.path))
    history = spark.session.sql(f"describe history {name} limit 3").collect()
    told = [
        tuple(int(entry.operationMetrics[f"numTargetRows{what}"]) for what in KINDS)
        for entry in history
    ]
    assert told == [(0, 0, 1), (0, 1, 0), (1, 2, 0)]


@pytest.mark.full
def test_a_restore_after_our_last_batch_is_noticed_and_nothing_is_applied(
    spark: Spark, store: LocalStore, table: Mirrored, by_hand: Callable[[str], None]
) -> None:
    by_hand(RESTORE)
    assert table.engine.progress(table.path).restored == 3
    assert isinstance(table.run(table.step([(INSERT, row(4, "d"))])), Conflicted)
    delta_log(spark.session, Path(store.location(table.path))).checkpoint()
    assert spark_engine(spark, store).progress(table.path).restored == 3


@pytest.mark.clause("CF-154")
def test_nothing_is_applied_to_a_table_that_would_forget_its_number(
    table: Mirrored, by_hand: Callable[[str], None]
) -> None:
    name = "delta.setTransactionRetentionDuration"
    by_hand(f"alter table {{t}} set tblproperties ('{name}' = 'interval 30 days')")
    assert table.engine.progress(table.path).unsupported
    assert isinstance(table.run(table.step([(INSERT, row(4, "d"))])), Conflicted)


@pytest.mark.full
def test_changes_find_their_rows_behind_a_checkpoint_of_delta(
    spark: Spark, store: LocalStore, table: Mirrored
) -> None:
    delta_log(spark.session, Path(store.location(table.path))).checkpoint()
    table.engine = spark_engine(spark, store)
    table.apply([(UPDATE, row(1, "new"))])
    assert counted(table.rows()) == counted([row(1, "new"), row(2, "b"), row(3, "c")])


@pytest.mark.full
def test_rows_of_a_column_that_somebody_added_are_null(
    table: Mirrored, by_hand: Callable[[str], None]
) -> None:
    by_hand("alter table {t} add columns (more bigint)")
    table.apply([(UPDATE, row(1, "new"))])
    assert (*row(1, "new"), None) in table.rows()


# -- a log that cannot be followed ------------------------------------------------------------


def test_a_table_whose_log_has_a_gap_fails_alone(
    spark: Spark, store: LocalStore, table: Mirrored
) -> None:
    other = Mirrored(table.engine, store, table.reader, SHAPE, "Tables/other").create()
    Path(store.location(table.path), "_delta_log", f"{1:020d}.json").unlink()
    steps = [table.step([(INSERT, row(4, "d"))]), other.step([(INSERT, row(1, "a"))])]
    failed, applied = spark_engine(spark, store).apply(steps, lambda: None)
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, ForeignTable)
    assert isinstance(applied, Applied)


def test_a_table_that_vanishes_is_an_error_of_its_own(store: LocalStore, table: Mirrored) -> None:
    shutil.rmtree(store.location(table.path))
    with pytest.raises(ForeignTable):
        table.engine.progress(table.path)


def test_what_delta_refuses_is_an_error_of_the_table(engine: Engine, table: Mirrored) -> None:
    twice = Shape.of([], id=types.LONG, ID=types.LONG)
    step = CreateTable(table.table, "Tables/x", "x", twice.schema, (), "g")
    with pytest.raises(UnsupportedTable, match="Delta rejected the write"):
        engine.create(step)


@pytest.mark.full
def test_a_column_that_delta_refuses_is_an_error_of_the_table(table: Mirrored) -> None:
    with pytest.raises(UnsupportedTable, match="Delta rejected the write"):
        table.add_columns(Column("_change_type", types.LONG))


# -- lost answers -----------------------------------------------------------------------------


class LostAnswer(SparkCommitter):
    """Its answers do not arrive; with is_lost, its commits neither."""

    is_lost = False

    def commit(self, commit: BatchCommit) -> Outcome:
        if not self.is_lost:
            super().commit(commit)
        return Unknown("no answer")


def test_a_commit_without_an_answer_is_read_back(
    spark: Spark, store: LocalStore, table: Mirrored
) -> None:
    table.engine = spark_engine(spark, store, committer=LostAnswer(spark.session))
    assert table.run(table.step([(INSERT, row(4, "d"))])) == AlreadyApplied(3)


def test_a_commit_that_did_not_happen_stays_unknown(
    spark: Spark, store: LocalStore, table: Mirrored
) -> None:
    committer = LostAnswer(spark.session)
    committer.is_lost = True
    table.engine = engine = spark_engine(spark, store, committer=committer)
    assert isinstance(table.run(table.step([(INSERT, row(4, "d"))])), Unknown)
    assert engine.progress(table.path).recorded == 2
