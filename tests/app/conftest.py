"""Fixtures of mirrors."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from mirrorlake.storage.local import LocalStore
from tests.app.evolving_database import EvolvingDatabase
from tests.conftest import Database, database_on

SERVERS = ("mended14", "postgres15", "postgres16", "mended17")
OLDER = [pytest.param(name, marks=pytest.mark.long) for name in SERVERS]
ALL = ("postgres18", *SERVERS)


def in_turn(*values: Sequence[Any]) -> list[ParameterSet]:
    """The values of parameters behind `source_database`, each with each: each combination on one
    version, all in turn, and in the long run on every one."""
    found = []
    for number, row in enumerate(itertools.product(*values)):
        for at, server in enumerate(ALL):
            marks = () if number % len(ALL) == at else pytest.mark.long
            found.append(pytest.param(server, *row, marks=marks))
    return found


@pytest.fixture(params=["postgres18", *OLDER])
def source_database(request: pytest.FixtureRequest) -> Iterator[Database]:
    """A database on the newest version, in the long run on each."""
    yield from database_on(request.getfixturevalue(request.param))


@pytest.fixture(
    params=["postgres18", *(pytest.param(name, marks=pytest.mark.full) for name in SERVERS)]
)
def each_database(request: pytest.FixtureRequest) -> Iterator[Database]:
    """A database on the newest version, and outside of `make test` on each."""
    yield from database_on(request.getfixturevalue(request.param))


@pytest.fixture
def evolving(source_database: Database, store: LocalStore) -> EvolvingDatabase:
    return EvolvingDatabase(source_database, store)
