"""The one process that reads all damaged input of a run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fuzz.apart import Apart


@pytest.fixture(scope="session")
def apart() -> Iterator[Apart]:
    process = Apart()
    yield process
    process.close()
