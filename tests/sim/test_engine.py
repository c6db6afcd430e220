"""The modelled engine keeps the contract of timestamp mode that every engine keeps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from mirrorlake.model.crash_points import no_crash
from mirrorlake.storage.local import LocalStore
from tests.conformance.apply.by_time import BY_TIME
from tests.conformance.apply.player import Subject
from tests.conformance.apply.suite import ByTimeContract, ScenarioContract, SubjectAt
from tests.conformance.mirrored import Feeds
from tests.reference import Row
from tests.sim.engine import Lake, ModelledEngine


class LakeReader:
    """Reads the tables of a modelled lake."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    def rows(self, path: str) -> list[Row]:
        return self._lake.tables[path].table.rows

    def feed(self, path: str) -> Feeds:
        return {number: feed for number, feed in enumerate(self._lake.tables[path].feed, 1) if feed}

    def tables(self, paths: Sequence[str]) -> list[tuple[list[Row], Feeds]]:
        return [(self.rows(path), self.feed(path)) for path in paths]

    def commit(self, path: str, version: int) -> dict[str, Any]:
        (batch,) = [b for b in self._lake.tables[path].named if b.version == version]
        said = {"files": [batch.number, batch.number], "names": list(batch.names)}
        return {"userMetadata": json.dumps(said)}


class TestModelledEngine(ScenarioContract, ByTimeContract):
    scenarios = BY_TIME

    @pytest.fixture(scope="class")
    @classmethod
    def subject_at(cls) -> SubjectAt:
        def at(folder: Path) -> Subject:
            lake, store = Lake(), LocalStore(folder / "root")
            return Subject(
                lambda: ModelledEngine(lake, store, Random(0), no_crash, lost_answers=0.0),
                store,
                LakeReader(lake),
            )

        return at
