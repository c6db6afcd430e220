"""The engine without a JVM keeps the contract of every engine: its tasks are the true ones."""

from __future__ import annotations

import itertools
import shutil
from contextlib import ExitStack
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mirrorlake.errors import BadValue
from mirrorlake.mirror.compaction import small_files as compaction
from mirrorlake.mirror.engine import Applied, Failed, MirrorEngine
from mirrorlake.model import types
from mirrorlake.model.change import Marker
from mirrorlake.storage.local import LocalStore
from tests.conformance.apply.histories import apply_together
from tests.conformance.apply.player import Subject
from tests.conformance.apply.suite import (
    ApplyContract,
    ByTimeContract,
    CompactionContract,
    SubjectAt,
)
from tests.conformance.mirrored import Mirrored
from tests.delta.lookup_ways import Way, forced
from tests.doubles.handmade_engine import HandmadeReader, by_plain_columns, in_process_engine
from tests.evolving import Life, live, live_many
from tests.histories import Landing, Shape, histories
from tests.profiles import tries
from tests.reference import Change

_numbers = itertools.count(1)
BATCHES = 20_000


@pytest.fixture
def reader(store: LocalStore) -> HandmadeReader:
    return HandmadeReader(store)


def subject_of(folder: Path, **options: Any) -> Subject:
    store = LocalStore(folder / "root")
    return Subject(lambda: in_process_engine(store, **options), store, HandmadeReader(store))


class RandomHistories(ApplyContract, ByTimeContract):
    options: ClassVar[dict[str, Any]] = {}

    @pytest.fixture(scope="class")
    @classmethod
    def subject_at(cls) -> SubjectAt:
        return partial(subject_of, **cls.options)

    @pytest.mark.clause("LZ-096", "LZ-097", "LZ-110", "LZ-129", "LZ-130", "LZ-255")
    @settings(suppress_health_check=list(HealthCheck))
    @given(drawn=st.lists(histories(), min_size=1, max_size=3))
    def test_rows_and_feed_of_random_histories_are_those_of_the_model(
        self, subject: Subject, drawn
    ) -> None:
        tables = subject.tables(*(shape for shape, _landings in drawn))
        apply_together(tables, [landings for _shape, landings in drawn], compacting=True)


class TestInProcessEngine(RandomHistories):
    pass


class TestPartitionedTables(RandomHistories):
    """The same where tables are partitioned, by columns of the key and others. What is said of
    compaction there is said of files of one partition."""

    options: ClassVar[dict[str, Any]] = {"partitions": by_plain_columns}


class TestCompaction(CompactionContract):
    @pytest.fixture(scope="class")
    @classmethod
    def subject_at(cls) -> SubjectAt:
        return subject_of


@pytest.fixture
def joining(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two small files are enough to be joined by the next batch."""
    monkeypatch.setattr(compaction, "FANOUT", 2)


@pytest.fixture
def compacting(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three small files are enough to be joined between batches."""
    monkeypatch.setattr(compaction, "SMALLEST", 3)
    parameters = getattr(request.node, "callspec", None)
    if parameters and parameters.params.get("kind") == "merge":  # no batch takes files along there
        monkeypatch.setattr(compaction, "FANOUT", 3)


KINDS: dict[str, dict[str, Any]] = {
    "alone": {},
    "spread": {"spread": 3},
    "partitioned": {"partitions": by_plain_columns},
    "merge": {"merges": True},
}
"""How the engine is made: for batches in one task, in stages of three tasks, into tables with
partitions, and by the merge strategy."""


def life_of(store: LocalStore, reader: HandmadeReader, shape: Shape, kind: str = "alone") -> Life:
    def new_engine() -> MirrorEngine:
        return in_process_engine(store, **KINDS[kind])

    table = Mirrored(new_engine(), store, reader, shape, f"Tables/t{next(_numbers)}").create()
    return Life(table, shape.table(), new_engine, alters=kind != "merge")


@settings(max_examples=tries(30), suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_step_of_a_table_history_is_that_of_the_model(
    store: LocalStore, reader: HandmadeReader, data: st.DataObject
) -> None:
    live(data, lambda shape: life_of(store, reader, shape), batches=6)


@settings(max_examples=tries(60), suppress_health_check=list(HealthCheck))
@given(data=st.data(), kind=st.sampled_from(["alone", "partitioned", "merge"]))
def test_batches_that_join_small_files_are_those_of_the_model(
    store: LocalStore,
    reader: HandmadeReader,
    joining: None,
    data: st.DataObject,
    kind: str,
) -> None:
    live(data, lambda shape: life_of(store, reader, shape, kind), batches=6)


@pytest.mark.parametrize("kind", KINDS)
def test_small_files_are_joined_between_batches(
    store: LocalStore, reader: HandmadeReader, compacting: None, kind: str
) -> None:
    shape = Shape.of(["id"], id=types.LONG, name=types.STRING, day=types.DATE)
    life = life_of(store, reader, shape, kind)
    for number in range(3):
        life.land(Landing(((Change(Marker.INSERT, (number, "a", date(2026, 1, 1))),),)))
    assert isinstance(life.table.compact(), Applied)
    changes = Change(Marker.UPDATE, (1, "b", None)), Change(Marker.DELETE, (2, None, None))
    life.land(Landing((changes,)))
    life.check()


@pytest.mark.long
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("kind", KINDS)
def test_twenty_thousand_random_batches_are_those_of_the_model(
    store: LocalStore, reader: HandmadeReader, compacting: None, kind: str
) -> None:
    live_many(
        lambda shape: life_of(store, reader, shape, kind),
        lambda: shutil.rmtree(store.root),
        batches=BATCHES,
    )


@settings(max_examples=tries(30), suppress_health_check=list(HealthCheck))
@given(data=st.data(), way=st.sampled_from(Way))
def test_every_lookup_method_gives_the_result_of_the_model(
    store: LocalStore, reader: HandmadeReader, compacting: None, data: st.DataObject, way: Way
) -> None:
    with forced(way):
        live(data, lambda shape: life_of(store, reader, shape), batches=6)


@pytest.mark.long
@pytest.mark.timeout(7_200)
def test_twenty_thousand_random_batches_with_each_lookup_method(
    store: LocalStore, reader: HandmadeReader, compacting: None
) -> None:
    ways = itertools.cycle(Way)
    with ExitStack() as way:

        def begin(shape: Shape) -> Life:
            way.enter_context(forced(next(ways)))
            return life_of(store, reader, shape)

        def end() -> None:
            way.close()
            shutil.rmtree(store.root)

        live_many(begin, end, batches=BATCHES)


@pytest.mark.parametrize("spread", [0, 3], ids=["alone", "spread"])
def test_an_empty_text_in_a_partition_column_is_reported(
    store: LocalStore, reader: HandmadeReader, spread: int
) -> None:
    """Delta would make it NULL, and the table would not be equal to its source."""
    shape = Shape.of(["id"], id=types.LONG, region=types.STRING)
    engine = in_process_engine(store, spread=spread, partitions=lambda _schema: ["region"])
    table = Mirrored(engine, store, reader, shape).create()
    table.apply([(Marker.INSERT, (1, "a"))])
    outcome = table.run(table.step([(Marker.UPSERT, (2, "b")), (Marker.UPSERT, (1, ""))]))
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, BadValue)
    assert (outcome.error.table, outcome.error.column, outcome.error.value) == (
        "orders",
        "region",
        "",
    )
    assert table.rows() == [(1, "a")]
