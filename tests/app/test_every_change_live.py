"""A mirror lives through each change of a source, on every version of PostgreSQL."""

from __future__ import annotations

import itertools

import pytest
from _pytest.mark import ParameterSet

from tests.app.conftest import ALL
from tests.app.every_change import CHANGES, check, live
from tests.app.evolving_database import EvolvingDatabase

pytestmark = [pytest.mark.postgres, pytest.mark.full]

WAYS = ("in the same transaction", "in others", "in others, in place")
"""Where rows are written. In place: columns are renamed, widened and dropped by column mapping."""


def lives() -> list[ParameterSet]:
    """Each change on each version in each way; outside of the long run on two of them, in turn."""
    found = []
    for number, what in enumerate(CHANGES):
        in_turn = {(ALL[number % 5], WAYS[0]), (ALL[(number + 2) % 5], WAYS[1 + number % 2])}
        for life in itertools.product(ALL, WAYS):
            marks = () if life in in_turn else pytest.mark.long
            found.append(pytest.param(*life, what, marks=marks))
    return found


@pytest.mark.parametrize(("source_database", "way", "what"), lives(), indirect=["source_database"])
def test_a_mirror_lives_through_a_change_with_crashes(
    evolving: EvolvingDatabase, way: str, what: str
) -> None:
    evolving.renames = evolving.widens = evolving.drops = way == WAYS[2]
    live(evolving, CHANGES[what], at_once=way == WAYS[0])
    check(evolving, CHANGES[what])
