"""Control on each database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mirrorlake.control.control import Control
from mirrorlake.control.requests import Asked
from mirrorlake.control.secrets import SecretFile
from mirrorlake.control.store.database import Database as Resources
from mirrorlake.model.clock import Clock, WallClock
from tests.conftest import Database
from tests.control.resources import PARENT, POSTGRES, Opening, Scripted


@pytest.fixture
def validator() -> Scripted:
    return Scripted()


@pytest.fixture(
    params=["sqlite", pytest.param("postgresql", marks=[pytest.mark.postgres, pytest.mark.full])]
)
def open_control(
    request: pytest.FixtureRequest, tmp_path: Path, validator: Scripted
) -> Iterator[Opening]:
    """Opens the control of one database, again and again."""
    url = f"sqlite:///{tmp_path}/streams.sqlite"
    if request.param == "postgresql":
        database: Database = request.getfixturevalue("database")
        url = database.url.replace("postgresql://", "postgresql+psycopg://")
    opened: list[Resources] = []

    def opening(clock: Clock | None = None) -> Control:
        opened.append(Resources(url))
        return Control(opened[-1], SecretFile(tmp_path), validator, clock or WallClock())

    yield opening
    for one in opened:
        one.close()


@pytest.fixture
def control(open_control: Opening) -> Control:
    return open_control()


@pytest.fixture
def ready(control: Control) -> Control:
    """With the profiles of a stream."""
    control.profiles.create(PARENT, "source", POSTGRES, Asked())
    control.profiles.create(PARENT, "tables", {"bigqueryProfile": {}}, Asked())
    return control
