"""Fixtures of mirrors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mirrorlake.storage.local import LocalStore
from tests.app.evolving_database import EvolvingDatabase
from tests.conftest import Database, database_on

OLDER = [pytest.param(version, marks=pytest.mark.long) for version in (14, 15, 16, 17)]


@pytest.fixture(params=[18, *OLDER])
def source_database(request: pytest.FixtureRequest) -> Iterator[Database]:
    """A database on the newest version, in the long run on each."""
    yield from database_on(request.getfixturevalue(f"postgres{request.param}"))


@pytest.fixture
def evolving(source_database: Database, store: LocalStore) -> EvolvingDatabase:
    return EvolvingDatabase(source_database, store)
