"""PostgreSQL passes the suite of every source."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.source import ManagedObjectsContract, SourceContract
from tests.conftest import Database
from tests.sources.postgresql.scene import PostgresScene

pytestmark = pytest.mark.postgres


class TestPostgres(SourceContract, ManagedObjectsContract):
    """On each version that the ordinary run tests."""

    @pytest.fixture
    def scene(self, any_database: Database) -> Iterator[PostgresScene]:
        scene = PostgresScene(any_database)
        yield scene
        scene.close()
