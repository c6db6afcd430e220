"""The engine keeps its contract where tables lie on objects: by its true tasks, without a JVM."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mirrorlake import root
from mirrorlake.apply.fold import LandedBatch
from mirrorlake.apply.task import batch as batch_task
from mirrorlake.delta.file_cache import cache
from mirrorlake.mirror.engine import Failed
from mirrorlake.mirror.faults import TableFault
from mirrorlake.model.change import Marker
from mirrorlake.storage.local import LocalStore
from mirrorlake.storage.mounted import MountedStore
from mirrorlake.storage.urls import open_store
from tests.conformance.apply.histories import apply_together
from tests.conformance.apply.player import Subject
from tests.conformance.apply.scenario import ORDERS
from tests.conformance.apply.suite import ApplyContract, CompactionContract, SubjectAt
from tests.doubles.handmade_engine import HandmadeReader, in_process_engine
from tests.histories import histories
from tests.objects import S3Server
from tests.profiles import tries


@pytest.fixture(scope="class")
def subject_at(s3: S3Server) -> Iterator[SubjectAt]:
    """Roots whose tables lie in a bucket, and a cache of its own."""

    def at(folder: Path) -> Subject:
        patch.setattr(tempfile, "tempdir", str(folder))
        cache.cache_clear()
        index = open_store(f"{s3.new_bucket()}/shop", s3.options)
        store = MountedStore(LocalStore(folder / "root"), root.MIRRORED, index)
        return Subject(lambda: in_process_engine(store), store, HandmadeReader(store))

    with pytest.MonkeyPatch.context() as patch:
        s3.described(patch)
        yield at


@pytest.fixture
def subject(subject_at: SubjectAt, tmp_path: Path) -> Subject:
    return subject_at(tmp_path)


class TestEngineOnObjects(ApplyContract):
    quick = 16

    @settings(max_examples=tries(6), suppress_health_check=list(HealthCheck))
    @given(drawn=st.lists(histories(), min_size=1, max_size=3))
    def test_rows_and_feed_of_random_histories_are_those_of_the_model(
        self, subject: Subject, drawn
    ) -> None:
        tables = subject.tables(*(shape for shape, _landings in drawn))
        apply_together(tables, [landings for _shape, landings in drawn], compacting=True)


class TestCompactionOnObjects(CompactionContract):
    pass


@settings(max_examples=tries(4), suppress_health_check=list(HealthCheck))
@given(drawn=histories())
def test_batches_that_are_spread_are_those_of_the_model(subject: Subject, drawn) -> None:
    shape, landings = drawn
    engine = in_process_engine(subject.store, spread=3)
    (table,) = replace(subject, new_engine=lambda: engine).tables(shape)
    apply_together([table], [landings])


def test_an_internal_error_is_not_reported_as_a_missing_vector(
    subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_batch: LandedBatch) -> None:
        raise ValueError("astonishing")

    table = subject.table(ORDERS).create()
    table.apply([(Marker.INSERT, (number, "a", "")) for number in range(9)])
    table.apply([(Marker.DELETE, (1, None, None))])
    (vector,) = tmp_path.rglob("deletion_vector_*.bin")
    vector.unlink()  # as if another executor had written it
    monkeypatch.setattr(batch_task, "fold", fails)
    outcome = table.run(table.step([(Marker.INSERT, (10, "b", ""))]))
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, TableFault)
    assert "batch.py" in outcome.error.what  # where it happened
