"""A database in memory passes the suite of every source, whatever its log and its snapshots are."""

from __future__ import annotations

from typing import Any

import pytest

from mirrorlake.model.clock import WallClock
from mirrorlake.sources.memory.database import MemoryDatabase, Numbers
from mirrorlake.sources.memory.settings import MemorySettings
from tests.conformance.source import ManagedObjectsContract, SourceContract
from tests.doubles.gtid import Sets
from tests.sources.memory.scene import MemoryScene

IN_PARTS: dict[str, Any] = {"parts": lambda: 3, "rows": lambda left: (left + 1) // 2}


class TestNumbersWithASlot(SourceContract, ManagedObjectsContract):
    """As PostgreSQL: a total order, and a server that remembers its reader."""

    @pytest.fixture
    def scene(self) -> MemoryScene:
        database = MemoryDatabase(WallClock(), Numbers(iter([(0, 5), (2, 1)] * 9_999).__next__))
        return MemoryScene(MemorySettings(database, **IN_PARTS))


class TestNumbersWithoutASlot(SourceContract):
    """As Oracle: a total order, and nothing made in the server."""

    @pytest.fixture
    def scene(self) -> MemoryScene:
        return MemoryScene(MemorySettings(MemoryDatabase(WallClock()), slot=None))


class TestSets(SourceContract):
    """As MySQL: sets of transactions by server, and nothing made in the server."""

    @pytest.fixture
    def scene(self) -> MemoryScene:
        database = MemoryDatabase(WallClock(), Sets())
        return MemoryScene(MemorySettings(database, slot=None, **IN_PARTS))


class TestPartsReadAtDifferentPoints(SourceContract):
    """A server that gives no consistent view of a whole table."""

    @pytest.fixture
    def scene(self) -> MemoryScene:
        database = MemoryDatabase(WallClock(), Sets())
        return MemoryScene(MemorySettings(database, slot=None, is_consistent=False, **IN_PARTS))
