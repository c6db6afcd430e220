"""What the tests of stores share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.doubles.dfs import DataLake
from tests.storage.azure_accounts import Lake


@pytest.fixture(scope="session")
def data_lake() -> Iterator[DataLake]:
    """The one service of the run; each test takes a container of its own."""
    with DataLake() as service:
        yield service


@pytest.fixture
def lake(data_lake: DataLake) -> Lake:
    return Lake(data_lake)
