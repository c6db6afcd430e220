"""The modelled engine keeps the contract of timestamp mode that every engine keeps."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from mirrorlake.mirror.engine import MirrorEngine
from mirrorlake.model.crash_points import no_crash
from mirrorlake.storage.local import LocalStore
from tests.conformance.apply_by_time import ByTimeContract
from tests.reference import Row
from tests.sim.engine import Lake, ModelledEngine


class LakeReader:
    """Reads the tables of a modelled lake."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    def rows(self, path: str) -> list[Row]:
        return self._lake.tables[path].table.rows

    def feed(self, path: str) -> dict[int, Counter[tuple[str, Row]]]:
        return {number: feed for number, feed in enumerate(self._lake.tables[path].feed, 1) if feed}

    def commit(self, path: str, version: int) -> dict[str, Any]:
        (batch,) = [b for b in self._lake.tables[path].named if b.version == version]
        said = {"files": [batch.number, batch.number], "names": list(batch.names)}
        return {"userMetadata": json.dumps(said)}


class TestModelledEngine(ByTimeContract):
    @pytest.fixture
    def lake(self) -> Lake:
        return Lake()

    @pytest.fixture
    def reader(self, lake: Lake) -> LakeReader:
        return LakeReader(lake)

    @pytest.fixture
    def new_engine(self, lake: Lake, store: LocalStore) -> Callable[[], MirrorEngine]:
        return lambda: ModelledEngine(lake, store, Random(0), no_crash, lost_answers=0.0)
