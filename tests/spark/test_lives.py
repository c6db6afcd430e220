"""Lives of a table on the real Spark and Delta, by each way, are those of the model."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from mirrorlake.mirror.compaction import small_files as compaction
from mirrorlake.mirror.engine import MirrorEngine
from mirrorlake.mirror.strategy import StrategySetting
from mirrorlake.spark.engine import spark_engine
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.storage.local import LocalStore
from tests.conformance.mirrored import Mirrored
from tests.evolving import Life, live, live_many
from tests.histories import Shape
from tests.spark.test_apply import SparkReader

pytestmark = [pytest.mark.spark, pytest.mark.full]

BATCHES = {StrategySetting.DIRECT: 1_000, StrategySetting.MERGE: 100}
"""By `merge` a batch takes some seconds, by `direct` less than one."""

_numbers = itertools.count(1)

NewLife = Callable[[StrategySetting], Callable[[Shape], Life]]


@pytest.fixture
def new_life(spark: Spark, store: LocalStore) -> NewLife:
    """Makes what begins lives whose batches all go by one way."""
    reader = SparkReader(spark.session, store)

    def by(setting: StrategySetting) -> Callable[[Shape], Life]:
        def new_engine() -> MirrorEngine:
            return spark_engine(spark, store, strategy=setting)

        def begin(shape: Shape) -> Life:
            path = f"Tables/t{next(_numbers)}"
            table = Mirrored(new_engine(), store, reader, shape, path).create()
            return Life(table, shape.table(), new_engine, alters=setting is StrategySetting.DIRECT)

        return begin

    return by


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two small files are enough to be joined, by the next batch or between batches."""
    monkeypatch.setattr(compaction, "FANOUT", 2)
    monkeypatch.setattr(compaction, "SMALLEST", 2)


@settings(
    max_examples=2,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
    database=None,
)
@given(data=st.data())
def test_every_step_of_a_short_life_by_merge_is_that_of_the_model(
    new_life: NewLife, data: st.DataObject
) -> None:
    live(data, new_life(StrategySetting.MERGE), batches=3)


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("setting", BATCHES)
def test_hundreds_of_random_batches_are_those_of_the_model(
    new_life: NewLife, store: LocalStore, soon: None, setting: StrategySetting
) -> None:
    live_many(new_life(setting), lambda: shutil.rmtree(store.root), batches=BATCHES[setting])
