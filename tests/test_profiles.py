"""Which tests `make test-full` leaves to `make test`, which it runs first."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.profiles import same_in_quick

CALLED_ONCE = [HealthCheck.function_scoped_fixture]


def test_a_test_that_is_the_same_in_each_profile_is_left_out(
    request: pytest.FixtureRequest,
) -> None:
    assert same_in_quick(request.node)


@given(example=st.none())
@settings(suppress_health_check=CALLED_ONCE)
def test_a_test_with_more_examples_is_not(request: pytest.FixtureRequest, example: None) -> None:
    assert example is None
    assert not same_in_quick(request.node)


@pytest.mark.full
def test_a_test_that_make_test_does_not_have_is_not(request: pytest.FixtureRequest) -> None:
    assert not same_in_quick(request.node)


def test_a_test_whose_module_asks_for_the_number_of_tries_is_not(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests import profiles

    monkeypatch.setattr(request.module, "profiles", profiles, raising=False)
    assert not same_in_quick(request.node)
