"""Others write a table in the midst of a batch or a compaction: no row is lost, none doubled."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from mirrorlake.apply.stages.spread import Exchange, SpreadSettings
from mirrorlake.apply.strategy import OpenBatch
from mirrorlake.mirror.compaction import small_files as compaction
from mirrorlake.mirror.engine import AlreadyApplied, Applied, Conflicted, Outcome
from mirrorlake.mirror.steps import ApplyFiles
from mirrorlake.mirror.strategy import StrategySetting
from mirrorlake.model.change import Marker
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.spark import committer as spark_committer
from mirrorlake.spark.engine import spark_engine
from mirrorlake.spark.merge import statements
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.storage.local import LocalStore
from tests.conformance.mirrored import Mirrored
from tests.histories import counted
from tests.reference import Change, Row
from tests.spark import reading
from tests.spark.test_apply import SparkReader
from tests.spark.test_foreign import NOW, SHAPE, STATEMENTS, row
from tests.spark.test_readers import replayed

pytestmark = pytest.mark.spark

INSERT, UPDATE, UPSERT = Marker.INSERT, Marker.UPDATE, Marker.UPSERT
INSERTED = f"insert into {{t}} values (4, 'theirs', 1.10, timestamp'{NOW.isoformat()}')"
STATEMENTS = {
    "insert": INSERTED,
    **STATEMENTS,
    "update": "update {t} set name = 'theirs' where id = 3",
}
BATCHES = {
    "append": [Change(INSERT, row(4, "d"))],
    "changes": [
        Change(UPDATE, row(1, "new")),
        Change(UPSERT, row(4, "d")),
        Change(INSERT, row(5, "e")),
    ],
}
HELD = [row(1, "a"), row(2, "b"), row(3, "c")]
"""What the table holds before anybody else writes it."""

AFTER = {
    "insert": [*HELD, row(4, "theirs")],
    "delete": [HELD[0], HELD[2]],
    "update": [*HELD[:2], row(3, "theirs")],
}
"""And after those statements that change rows."""

LEFT = [HELD[0], row(3, "theirs"), row(4, "theirs")]
"""And after all of them."""

PATIENCE = 120.0
"""Seconds until a transaction of Delta's should have begun."""


class Table:
    """A table of two files, others who write it, and how often a batch of it was spread."""

    def __init__(self, spark: Spark, store: LocalStore, way: str = "direct") -> None:
        self.spark, self.points = spark, list[CrashPoint]()
        setting = StrategySetting.MERGE if way == "merge" else StrategySetting.AUTO
        spread = (
            SpreadSettings(always=True, exchange=Exchange(rows=-1)) if way == "spread" else None
        )
        engine = spark_engine(
            spark, store, self.points.append, strategy=setting, compaction=False, spread=spread
        )
        reader = SparkReader(spark.session, store)
        self.ours = Mirrored(engine, store, reader, SHAPE).create()
        self.ours.apply([(INSERT, one) for one in HELD[:2]])
        self.ours.apply([(INSERT, one) for one in HELD[2:]])
        self.points.clear()

    def step(self, batch: list[Change]) -> ApplyFiles:
        return self.ours.step([(change.marker, change.row) for change in batch])

    def by_hand(self, statement: str) -> None:
        name = reading.sql_name(self.ours.store.location(self.ours.path))
        self.spark.session.sql(statement.format(t=name)).collect()

    def all_by_hand(self) -> list[Callable[[], None]]:
        """Each of the statements as an act of its own."""
        return [partial(self.by_hand, statement) for statement in STATEMENTS.values()]

    def by_another_mirror(self, step: ApplyFiles) -> None:
        engine = spark_engine(self.spark, self.ours.store)
        assert isinstance(replace(self.ours, engine=engine).run(step), Applied)

    def holds(self, held: list[Row], batch: list[Change], applied: Outcome) -> None:
        """Rows and feed are those of a batch on these rows, and everybody's add up."""
        assert isinstance(applied, Applied)
        expected = SHAPE.table()
        expected.rows = list(held)
        feed = expected.apply(batch)
        rows, feeds = counted(self.ours.rows()), self.ours.reader.feed(self.ours.path)
        assert rows == counted(expected.rows)
        assert feeds.get(applied.version, {}) == feed
        assert replayed(feeds) == rows


def interrupt(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, acts: Iterable[Callable[[], None]]
) -> None:
    """Let others act, once each, just before a function of ours is called."""
    true, left = getattr(owner, name), list(acts)

    def interrupted(*args: Any) -> Any:
        if left:
            left.pop(0)()
        return true(*args)

    monkeypatch.setattr(owner, name, interrupted)


# -- between what a batch has read and its commit -----------------------------------------------


@pytest.mark.long
def test_commits_before_the_transaction_of_a_merge_are_conflicts_until_there_are_none(
    spark: Spark, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, batch = Table(spark, store, "merge"), BATCHES["changes"]
    step = table.step(batch)
    interrupt(monkeypatch, statements.MergeSource, "rows", table.all_by_hand())
    for _statement in STATEMENTS:
        assert isinstance(table.ours.run(step), Conflicted)
    table.holds(LEFT, batch, table.ours.run(step))


@pytest.mark.full
def test_commits_before_that_of_a_spread_batch_are_conflicts_until_there_are_none(
    spark: Spark, store: LocalStore
) -> None:
    table, batch = Table(spark, store, "spread"), BATCHES["changes"]
    step = table.step(batch)
    for action in table.all_by_hand():
        assert isinstance(table.ours.run(step, action), Conflicted)
    table.holds(LEFT, batch, table.ours.run(step))
    assert table.points.count(CrashPoint.STAGE_WRITTEN) == 2 * (len(STATEMENTS) + 1)


@pytest.mark.full
def test_commits_inside_the_transaction_of_a_spread_batch_are_conflicts_until_there_are_none(
    spark: Spark, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, batch = Table(spark, store, "spread"), BATCHES["changes"]
    step = table.step(batch)
    interrupt(monkeypatch, spark_committer._Delta, "described", table.all_by_hand())
    for _statement in STATEMENTS:
        assert isinstance(table.ours.run(step), Conflicted)
    table.holds(LEFT, batch, table.ours.run(step))


@pytest.mark.full
@pytest.mark.parametrize("way", ["merge", "spread"])
def test_a_batch_that_another_mirror_applies_first_is_applied_once(
    spark: Spark, store: LocalStore, way: str
) -> None:
    table, batch = Table(spark, store, way), BATCHES["changes"]
    step = table.step(batch)
    outcome = table.ours.run(step, lambda: table.by_another_mirror(step))
    assert isinstance(outcome, Conflicted)
    assert table.ours.run(step) == AlreadyApplied(3)
    table.holds(HELD, batch, Applied(3))


# -- inside a MERGE or an append of Delta's own -------------------------------------------------


class Interrupted:
    """Lets somebody act inside Delta's own transaction, once its fence has been passed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, table: Table) -> None:
        self.table, self.true = table, statements._fence
        index = table.ours.store.location(table.ours.path)
        self.begun, self.done = Path(f"{index}.begun"), Path(f"{index}.done")
        monkeypatch.setattr(statements, "_fence", self.fence)

    def fence(
        self, batch: OpenBatch
    ) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        true, begun, done = self.true(batch), self.begun, self.done

        def waiting(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for found in true(batches):
                begun.touch()
                while not done.exists():
                    time.sleep(0.01)
                yield found

        return waiting

    def run(self, step: ApplyFiles, action: Callable[[], None]) -> Outcome:
        """The outcome of a batch in whose transaction this is done."""
        self.begun.unlink(missing_ok=True)
        self.done.unlink(missing_ok=True)
        with ThreadPoolExecutor(1) as pool:
            acted = pool.submit(self._act, action)
            outcome = self.table.ours.run(step)
            acted.result()
        return outcome

    def _act(self, action: Callable[[], None]) -> None:
        end = time.monotonic() + PATIENCE
        try:
            while not self.begun.exists():
                assert time.monotonic() < end, "the transaction did not begin"
                time.sleep(0.01)
            action()
        finally:
            self.done.touch()


@pytest.mark.long
def test_commits_inside_a_merge_are_conflicts_until_there_are_none(
    spark: Spark, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, batch = Table(spark, store, "merge"), BATCHES["changes"]
    step, interrupted = table.step(batch), Interrupted(monkeypatch, table)
    for action in table.all_by_hand():
        assert isinstance(interrupted.run(step, action), Conflicted)
    table.holds(LEFT, batch, table.ours.run(step))


@pytest.mark.full
@pytest.mark.parametrize("name", ["property", "optimize", "delete"])
def test_an_append_is_whole_beside_what_others_commit_inside_its_transaction(
    spark: Spark, store: LocalStore, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It reads nothing, so that Delta commits it after most of them."""
    table, batch = Table(spark, store, "merge"), BATCHES["append"]
    step, interrupted = table.step(batch), Interrupted(monkeypatch, table)
    outcome = interrupted.run(step, lambda: table.by_hand(STATEMENTS[name]))
    if name == "property":
        assert isinstance(outcome, Conflicted)
        outcome = table.ours.run(step)
    table.holds(AFTER.get(name, HELD), batch, outcome)
    assert table.ours.engine.progress(table.ours.path).recorded == 3


@pytest.mark.full
@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
def test_a_batch_that_another_mirror_applies_inside_its_transaction_is_applied_once(
    spark: Spark, store: LocalStore, monkeypatch: pytest.MonkeyPatch, batch: list[Change]
) -> None:
    table = Table(spark, store, "merge")
    step, interrupted = table.step(batch), Interrupted(monkeypatch, table)
    outcome = interrupted.run(step, lambda: table.by_another_mirror(step))
    assert isinstance(outcome, Conflicted)
    assert table.ours.run(step) == AlreadyApplied(3)
    table.holds(HELD, batch, Applied(3))


# -- inside a compaction of ours ----------------------------------------------------------------


def compacting(
    monkeypatch: pytest.MonkeyPatch, spark: Spark, store: LocalStore, statement: str
) -> Table:
    """A table in whose next transaction somebody else runs a statement first."""
    monkeypatch.setattr(compaction, "SMALLEST", 2)
    table = Table(spark, store)
    interrupt(monkeypatch, spark_committer._Delta, "actions", [partial(table.by_hand, statement)])
    return table


@pytest.mark.full
@pytest.mark.parametrize("name", ["optimize", "delete", "update"])
def test_a_compaction_gives_way_to_a_writer_that_changes_its_files_inside_its_transaction(
    spark: Spark, store: LocalStore, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    table, batch = compacting(monkeypatch, spark, store, STATEMENTS[name]), BATCHES["changes"]
    assert table.ours.compact() == Conflicted("ConcurrentDeleteDeleteException")
    assert (table.ours.compact() is None) == (name == "optimize")
    table.holds(AFTER.get(name, HELD), batch, table.ours.run(table.step(batch)))


@pytest.mark.full
def test_a_compaction_commits_after_a_writer_that_leaves_its_files_inside_its_transaction(
    spark: Spark, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, batch = compacting(monkeypatch, spark, store, INSERTED), BATCHES["changes"]
    assert table.ours.compact() == Applied(4)
    table.holds(AFTER["insert"], batch, table.ours.run(table.step(batch)))
