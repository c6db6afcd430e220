"""The direct strategy: what becomes of batches whose tasks die with their process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mirrorlake.apply import input_splits
from mirrorlake.apply.in_process.runner import InProcessRunner
from mirrorlake.apply.runner import TasksDied
from mirrorlake.apply.task.landed_rows import LandedPath
from mirrorlake.errors import WorkerLost
from mirrorlake.landing.text.format import TextFormat
from mirrorlake.mirror.engine import Applied, Failed
from mirrorlake.model.change import Marker
from mirrorlake.storage.local import LocalStore
from tests.apply.stages.batches import ORDERS
from tests.conformance.mirrored import Mirrored
from tests.doubles.handmade_engine import HandmadeReader, in_process_engine
from tests.profiles import tries

INSERT = Marker.INSERT


class Deadly(InProcessRunner):
    """A job ends when a table of its tasks is deadly. jobs: the tables of each."""

    def __init__(self, deadly: set[str]) -> None:
        super().__init__(2)
        self.deadly = deadly
        self.jobs: list[list[str]] = []

    def run(self, work: Any, items: Sequence[Any], packing: Any = None) -> list[Any]:
        self.jobs.append([item.table for item in items])
        if self.deadly.intersection(self.jobs[-1]):
            raise TasksDied("they crashed")
        return super().run(work, items, packing)


@pytest.mark.clause("LZ-267")
@settings(max_examples=tries(20), suppress_health_check=list(HealthCheck))
@given(
    names=st.lists(st.sampled_from("abcde"), min_size=1, max_size=5, unique=True),
    deadly=st.sets(st.sampled_from("abcde")),
)
def test_only_a_table_whose_tasks_die_alone_gets_an_error(
    store: LocalStore, names: list[str], deadly: set[str]
) -> None:
    store.delete_folder("Tables")
    store.delete_folder("zone")
    runner = Deadly(deadly)
    engine = in_process_engine(store, runner=runner)
    tables = [
        Mirrored(engine, store, HandmadeReader(store), ORDERS, f"Tables/{name}").create()
        for name in names
    ]
    steps = [table.step([(INSERT, (1, "a", None))]) for table in tables]
    outcomes = engine.apply(steps, lambda: None)
    for name, table, outcome in zip(names, tables, outcomes, strict=True):
        if name in deadly:
            assert isinstance(outcome, Failed)
            assert isinstance(outcome.error, WorkerLost)
            assert outcome.error.table == name
            assert table.rows() == []
        else:
            assert isinstance(outcome, Applied)
            assert table.rows() == [(1, "a", None)]
    first, *others = [job for job in runner.jobs if job]
    assert sorted(first) == sorted(names)
    died_together = len(names) > 1 and deadly.intersection(names)
    assert sorted(others) == sorted([name] for name in (names if died_together else []))


def test_a_text_whose_survey_kills_its_task_is_read_by_one_task() -> None:
    runner = Deadly({"any"})
    runner.run = _dies  # type: ignore[method-assign]
    landed = [LandedPath("1.csv", "/1.csv", 4 * input_splits.MIN_BYTES, TextFormat())]
    assert input_splits.split_inserts(runner, landed, is_load=True) is None


def _dies(*_arguments: Any) -> list[Any]:
    raise TasksDied("they crashed")
