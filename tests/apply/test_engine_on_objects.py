"""The engine keeps its contract where tables lie on objects: by its true tasks, without a JVM."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mirrorlake import root
from mirrorlake.apply.fold import LandedBatch
from mirrorlake.apply.task import batch as batch_task
from mirrorlake.delta.file_cache import cache
from mirrorlake.mirror.engine import Failed, MirrorEngine
from mirrorlake.mirror.faults import TableFault
from mirrorlake.model.change import Marker
from mirrorlake.storage.local import LocalStore
from mirrorlake.storage.mounted import MountedStore
from mirrorlake.storage.urls import open_store
from tests.conformance.apply import ORDERS, ApplyContract, play
from tests.conformance.apply_commits import CommitContract
from tests.conformance.apply_files import CompactionContract
from tests.conformance.apply_tables import TableContract
from tests.conformance.mirrored import Mirrored
from tests.doubles.handmade_engine import HandmadeReader, in_process_engine
from tests.histories import histories
from tests.objects import S3Server
from tests.profiles import tries

_numbers = itertools.count(1)


@pytest.fixture
def store(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MountedStore:
    """A root whose tables lie in a bucket, and a cache of its own."""
    s3.described(monkeypatch)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    cache.cache_clear()
    index = open_store(f"{s3.new_bucket()}/shop", s3.options)
    return MountedStore(LocalStore(tmp_path / "root"), root.MIRRORED, index)


@pytest.fixture
def reader(store: MountedStore) -> HandmadeReader:
    return HandmadeReader(store)


@pytest.fixture
def new_engine(store: MountedStore) -> Callable[[], MirrorEngine]:
    return lambda: in_process_engine(store)


@pytest.mark.long
class TestAllOfTheContract(ApplyContract):
    pass


class TestWhatDependsOnTheStorage(CommitContract, TableContract, CompactionContract):
    engine = ApplyContract.engine
    make = ApplyContract.make
    orders = ApplyContract.orders

    @settings(max_examples=tries(6), suppress_health_check=list(HealthCheck))
    @given(drawn=st.lists(histories(), min_size=1, max_size=3))
    def test_rows_and_feed_of_random_histories_are_those_of_the_model(
        self, make: Callable[..., Mirrored], drawn
    ) -> None:
        tables = [make(shape, f"Tables/t{next(_numbers)}") for shape, _landings in drawn]
        play(tables, [landings for _shape, landings in drawn], compacting=True)


@settings(max_examples=tries(4), suppress_health_check=list(HealthCheck))
@given(drawn=st.lists(histories(), min_size=1, max_size=1))
def test_batches_that_are_spread_are_those_of_the_model(
    store: MountedStore, reader: HandmadeReader, drawn
) -> None:
    engine = in_process_engine(store, spread=3)
    tables = [
        Mirrored(engine, store, reader, shape, f"Tables/t{next(_numbers)}").create()
        for shape, _landings in drawn
    ]
    play(tables, [landings for _shape, landings in drawn])


def test_a_fault_is_not_told_as_a_vector_that_was_not_fetched(
    store: MountedStore,
    reader: HandmadeReader,
    new_engine: Callable[[], MirrorEngine],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(_batch: LandedBatch) -> None:
        raise ValueError("astonishing")

    table = Mirrored(new_engine(), store, reader, ORDERS).create()
    table.apply([(Marker.INSERT, (number, "a", "")) for number in range(9)])
    table.apply([(Marker.DELETE, (1, None, None))])
    (vector,) = tmp_path.rglob("deletion_vector_*.bin")
    vector.unlink()  # as if another executor had written it
    monkeypatch.setattr(batch_task, "fold", fails)
    outcome = table.run(table.step([(Marker.INSERT, (10, "b", ""))]))
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, TableFault)
    assert "batch.py" in outcome.error.what  # where it happened
