"""Fixtures of mirrors."""

from __future__ import annotations

import pytest

from mirrorlake.storage.local import LocalStore
from tests.app.evolving_database import EvolvingDatabase
from tests.conftest import Database


@pytest.fixture
def evolving(database: Database, store: LocalStore) -> EvolvingDatabase:
    return EvolvingDatabase(database, store)
