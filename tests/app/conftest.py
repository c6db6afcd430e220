"""Fixtures of mirrors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mirrorlake.storage.local import LocalStore
from tests.app.evolving_database import EvolvingDatabase
from tests.conftest import Database, database_on

SERVERS = ("mended14", "postgres15", "postgres16", "mended17")
OLDER = [pytest.param(name, marks=pytest.mark.long) for name in SERVERS]


@pytest.fixture(params=["postgres18", *OLDER])
def source_database(request: pytest.FixtureRequest) -> Iterator[Database]:
    """A database on the newest version, in the long run on each."""
    yield from database_on(request.getfixturevalue(request.param))


@pytest.fixture
def evolving(source_database: Database, store: LocalStore) -> EvolvingDatabase:
    return EvolvingDatabase(source_database, store)
