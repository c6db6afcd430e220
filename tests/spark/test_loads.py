"""A load on Spark: rows go from landed files into data files, and from no task to another."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from mirrorlake.apply import input_splits
from mirrorlake.capture.landing.files.load_files import LoadFiles
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.landing.text.format import TextFormat
from mirrorlake.model import types
from mirrorlake.model.change import Marker
from mirrorlake.model.position import Lsn, Position
from mirrorlake.spark.engine import spark_engine
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.storage.local import LocalStore
from tests.conformance.mirrored import Mirrored
from tests.histories import DECIMAL, VALUES, Shape
from tests.reference import plain
from tests.spark.test_apply import SparkReader

pytestmark = [pytest.mark.spark, pytest.mark.full]

SHAPE = Shape.of(["id"], id=types.LONG, v=types.STRING)
FILES, ROWS = 5, 2_000
"""Landed files, and rows in each."""
PART = 40_000
"""Bytes of text that a task reads."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What Spark has noted of a stage that ran."""

    tasks: int
    read: int
    written: int
    """Bytes that went from one task to another."""

    @property
    def is_shuffled(self) -> bool:
        return bool(self.read or self.written)


@pytest.fixture
def orders(spark: Spark, store: LocalStore) -> Mirrored:
    reader = SparkReader(spark.session, store)
    return Mirrored(spark_engine(spark, store), store, reader, SHAPE).create()


def stages(spark: Spark, action: Callable[[], object]) -> list[Stage]:
    """The stages of all jobs that the session runs meanwhile, Delta's own among them."""
    context = spark.session.sparkContext._jsc.sc()
    before = set(_jobs(context))
    action()
    jobs = {number: job for number, job in _jobs(context).items() if number not in before}
    numbers = [number for job in jobs.values() for number in _each(job.stageIds())]
    found = [context.statusStore().lastStageAttempt(number) for number in numbers]
    return [
        Stage(one.numCompleteTasks(), one.shuffleReadBytes(), one.shuffleWriteBytes())
        for one in found
    ]


def _jobs(context: Any) -> dict[int, Any]:
    context.listenerBus().waitUntilEmpty()  # the store is told of what happens by and by
    return {job.jobId(): job for job in _each(context.statusStore().jobsList(None))}


def _each(found: Any) -> list[Any]:
    """The members of a Scala sequence."""
    return [found.apply(index) for index in range(found.size())]


def rows_of(file: int) -> list[tuple[int, str]]:
    return [(n, f"text {n}") for n in range(file * ROWS, (file + 1) * ROWS)]


def all_rows() -> Counter[tuple[int, str]]:
    return Counter(row for file in range(FILES) for row in rows_of(file))


def data_files(orders: Mirrored) -> int:
    return len(TableLog(orders.store.location(orders.path)).snapshot().files)


def test_what_spark_notes_of_a_shuffle_is_seen(spark: Spark) -> None:
    """Or else the tests below would show nothing."""
    context = spark.session.sparkContext
    found = stages(spark, lambda: context.parallelize(range(9), 3).repartition(2).collect())
    assert len(found) == 2
    assert all(stage.is_shuffled for stage in found)


def test_a_load_of_several_files_is_one_stage_without_a_shuffle(
    spark: Spark, orders: Mirrored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_splits, "MIN_GROUP_BYTES", 0)
    files = [[(Marker.INSERT, row) for row in rows_of(file)] for file in range(FILES)]
    step = orders.step(*files, is_load=True)
    found = stages(spark, lambda: orders.run(step))
    assert not any(stage.is_shuffled for stage in found)
    (load,) = found
    assert load.tasks > 1
    assert Counter(orders.rows()) == all_rows()


def test_a_large_text_of_a_load_is_cut_into_parts_without_a_shuffle(
    spark: Spark, orders: Mirrored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_splits, "MIN_BYTES", PART)
    monkeypatch.setattr(input_splits, "MAX_BYTES", PART)
    lines = (f"{n},{v}" for file in range(FILES) for n, v in rows_of(file))
    step = orders.step("\n".join(["id,v", *lines, ""]).encode(), is_load=True)
    step = replace(step, files=(replace(step.files[0], text=TextFormat()),))
    found = stages(spark, lambda: orders.run(step))
    assert not any(stage.is_shuffled for stage in found)
    survey, load = found
    assert min(survey.tasks, load.tasks) > 1
    assert data_files(orders) == load.tasks
    assert Counter(orders.rows()) == all_rows()


def test_a_file_that_is_written_as_a_data_file_is_taken_as_it_is(
    spark: Spark, store: LocalStore
) -> None:
    """Spark reads it as any other: values of every type, its statistics, and the feed."""
    kinds = {name: types.DataType.parse(name) for name in VALUES if name != "decimal"}
    shape = Shape.of(["id"], id=types.LONG, d=DECIMAL, large=types.STRING, **kinds)
    seen = [VALUES["decimal"], *(VALUES[name] for name in kinds)]
    rows = [
        (n, seen[0][n % len(seen[0])], _random(n), *(one[n % len(one)] for one in seen[1:]))
        for n in range(12)
    ]
    reader = SparkReader(spark.session, store)
    table = Mirrored(spark_engine(spark, store), store, reader, shape, "Tables/taken").create()
    files = LoadFiles(store, shape.schema, Position(Lsn(1), 0), "stream", "default")
    files.write("zone/_staged", shape.arrow(rows).to_batches())
    content = store.read("zone/_staged")
    applied = table.apply(content, is_load=True, appends=True)
    (add,) = TableLog(store.location(table.path)).snapshot().files.values()
    assert store.read(f"{table.path}/{add['path']}") == content
    expected = Counter(plain(row) for row in rows)
    assert Counter(plain(row) for row in table.rows()) == expected
    assert table.feed(applied.version) == Counter(("insert", plain(row)) for row in rows)
    table.apply([(Marker.UPDATE, (3, *rows[4][1:])), (Marker.DELETE, (5, *rows[5][1:]))])
    left = [*rows[:3], (3, *rows[4][1:]), rows[4], *rows[6:]]
    assert Counter(plain(row) for row in table.rows()) == Counter(plain(row) for row in left)


def _random(seed: int) -> str:
    """A text that does not become smaller."""
    return random.Random(seed).randbytes(500_000).hex()
