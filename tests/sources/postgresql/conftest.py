"""What the tests of PostgreSQL share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import Database
from tests.sources.postgresql.captured import Captured


@pytest.fixture
def captured(database: Database) -> Iterator[Captured]:
    """A database of PostgreSQL 18 to be captured."""
    captured = Captured(database, database.settings())
    yield captured
    captured.close()


@pytest.fixture
def any_captured(any_database: Database) -> Iterator[Captured]:
    """The same on each version that the ordinary run tests."""
    captured = Captured(any_database, any_database.settings())
    yield captured
    captured.close()
