"""What the tests of the publisher share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mirrorlake.publisher import Publisher
from tests.publisher.mirrored_zone import Zone


@pytest.fixture
def zone() -> Zone:
    return Zone()


@pytest.fixture
def publisher(zone: Zone) -> Iterator[Publisher]:
    with zone.publisher() as publisher:
        yield publisher
