"""The engine without a JVM keeps the contract of every engine: its tasks are the true ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mirrorlake.mirror.engine import MirrorEngine
from mirrorlake.storage.local import LocalStore
from tests.conformance.apply import ApplyContract, play
from tests.conformance.mirrored import Mirrored
from tests.doubles.handmade_engine import HandmadeEngine, HandmadeReader
from tests.histories import histories

_numbers = itertools.count(1)


@pytest.fixture
def reader(store: LocalStore) -> HandmadeReader:
    return HandmadeReader(store)


class TestHandmadeEngine(ApplyContract):
    @pytest.fixture
    def new_engine(self, store: LocalStore) -> Callable[[], MirrorEngine]:
        return lambda: HandmadeEngine(store)

    @pytest.mark.clause("LZ-096", "LZ-097", "LZ-110", "LZ-129", "LZ-130", "LZ-255")
    @settings(suppress_health_check=list(HealthCheck))
    @given(drawn=st.lists(histories(), min_size=1, max_size=3))
    def test_rows_and_feed_of_random_histories_are_those_of_the_model(
        self, make: Callable[..., Mirrored], drawn
    ) -> None:
        tables = [make(shape, f"Tables/t{next(_numbers)}") for shape, _landings in drawn]
        play(tables, [landings for _shape, landings in drawn], compacting=True)
