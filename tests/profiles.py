"""How much a run tries: the targets of the Makefile set MIRRORLAKE_TESTS to the name of a profile.

quick is `make test`; rest is what `make test-full` runs after it; default is pytest by itself, long
`make test-long`, fuzz `make fuzz`. With MIRRORLAKE_TESTS_FORMAT=text, PostgreSQL sends captures no
values in binary format.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from _pytest.mark import ParameterSet
from hypothesis import is_hypothesis_test

ACTIVE = os.environ.get("MIRRORLAKE_TESTS", "default")
LONG = ACTIVE == "long"
BINARY = os.environ.get("MIRRORLAKE_TESTS_FORMAT") != "text"
FORMAT = "" if BINARY else "  binary: false\n"
"""A line of the section `source` of a project file."""


def tries(default: int, *, quick: int | None = None, long: int | None = None) -> int:
    """So many examples or seeds: a quarter in the quick run, if `quick` does not say how many.
    long: of the long run, if these are not as many as in the default one."""
    if ACTIVE == "quick":
        return max(default // 4, min(default, 2)) if quick is None else quick
    return long if long is not None and LONG else default


def same_in_quick(item: pytest.Item) -> bool:
    """Whether `make test` runs this test, and as every other profile does: it is not marked full,
    and neither its examples nor anything in its modules depends on the profile."""
    if item.get_closest_marker("full") or not isinstance(item, pytest.Function):
        return False
    if is_hypothesis_test(item.obj) or hasattr(item.cls, "TestCase"):
        return False
    names = {item.module.__name__, getattr(item.obj, "__module__", item.module.__name__)}
    depends = (tries, sys.modules[__name__])
    values = [value for name in names for value in vars(sys.modules[name]).values()]
    return not any(value is one for value in values for one in depends)


def some(values: Sequence[Any], quick: int = 1) -> list[Any]:
    """The values of a parameter. So many of them, evenly spread, are part of `make test`, the
    others of `make test-full` only."""
    chosen = {number * len(values) // quick for number in range(quick)}
    return [value if number in chosen else _full(value) for number, value in enumerate(values)]


def _full(value: Any) -> Any:
    if isinstance(value, ParameterSet):
        return value._replace(marks=[*value.marks, pytest.mark.full])
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.full)
