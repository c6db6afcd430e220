"""The state machine of a stream: every legal move, and no other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.control.states import (
    MOVES,
    BackfillState,
    BackfillTrigger,
    MessageLevel,
    StreamMove,
    StreamState,
    ValidationState,
    moved,
)
from mirrorlake.errors import IllegalMove

S, M = StreamState, StreamMove
PEOPLE = (M.START, M.PAUSE, M.RECOVER)


@pytest.mark.clause("ST-267", "ST-268")
def test_the_states_have_the_numbers_of_the_api() -> None:
    assert {state.name: state.value for state in StreamState} == {
        "STATE_UNSPECIFIED": 0,
        "NOT_STARTED": 1,
        "RUNNING": 2,
        "PAUSED": 3,
        "MAINTENANCE": 4,
        "FAILED": 5,
        "FAILED_PERMANENTLY": 6,
        "STARTING": 7,
        "DRAINING": 8,
    }


@pytest.mark.clause("ST-284", "ST-289", "ST-299")
def test_backfills_and_validations_have_the_numbers_of_the_api() -> None:
    assert [one.name for one in BackfillState] == [
        "STATE_UNSPECIFIED",
        "NOT_STARTED",
        "PENDING",
        "ACTIVE",
        "STOPPED",
        "FAILED",
        "COMPLETED",
        "UNSUPPORTED",
    ]
    assert [one.value for one in BackfillState] == list(range(8))
    assert (BackfillTrigger.AUTOMATIC, BackfillTrigger.MANUAL) == (1, 2)
    assert [(one.name, one.value) for one in ValidationState][1:] == [
        ("NOT_EXECUTED", 1),
        ("FAILED", 2),
        ("PASSED", 3),
        ("WARNING", 4),
    ]
    assert (MessageLevel.WARNING, MessageLevel.ERROR) == (1, 2)


@pytest.mark.parametrize(
    ("way", "end"),
    [
        pytest.param([M.START, M.VALID], S.RUNNING, marks=pytest.mark.clause("ST-271", "ST-272")),
        pytest.param([M.START, M.INVALID], S.NOT_STARTED, marks=pytest.mark.clause("ST-272")),
        pytest.param(
            [M.START, M.VALID, M.PAUSE, M.DRAINED], S.PAUSED, marks=pytest.mark.clause("ST-273")
        ),
        pytest.param(
            [M.START, M.VALID, M.PAUSE, M.DRAINED, M.START, M.VALID],
            S.RUNNING,
            marks=pytest.mark.clause("ST-275"),
        ),
        pytest.param([M.START, M.VALID, M.FAIL, M.HEAL], S.RUNNING),
        pytest.param([M.START, M.VALID, M.LOSE, M.RECOVER, M.VALID], S.RUNNING),
    ],
)
def test_a_stream_goes_the_ways_of_the_specification(way: list[StreamMove], end: S) -> None:
    state = S.NOT_STARTED
    for move in way:
        state = moved(state, move)
    assert state is end


@pytest.mark.clause("ST-277")
def test_only_a_recovery_run_leaves_failed_permanently() -> None:
    assert [m for m in M if (S.FAILED_PERMANENTLY, m) in MOVES] == [M.RECOVER]


@pytest.mark.clause("ST-279")
@given(st.sampled_from(S), st.sampled_from(M))
def test_every_other_move_is_refused_with_both_states(state: S, move: M) -> None:
    if (state, move) in MOVES:
        assert moved(state, move) is MOVES[state, move]
        return
    with pytest.raises(IllegalMove) as refused:
        moved(state, move, "s")
    named = {one.name for one in S if one.name in str(refused.value).split("(")[0]}
    assert state.name in named
    assert named - {state.name} or state in (S.NOT_STARTED, S.RUNNING, S.PAUSED, S.FAILED, state)


@pytest.mark.clause("ST-269")
def test_maintenance_is_never_entered() -> None:
    assert S.MAINTENANCE not in MOVES.values()
    assert S.STATE_UNSPECIFIED not in MOVES.values()


@given(st.lists(st.sampled_from(M), max_size=30))
def test_whatever_happens_a_person_or_time_can_bring_it_back_to_running(moves: list[M]) -> None:
    state = S.NOT_STARTED
    for move in moves:
        state = MOVES.get((state, move), state)
    seen, waiting = {state}, [state]
    while waiting:
        here = waiting.pop()
        for (source, _move), target in MOVES.items():
            if source is here and target not in seen:
                seen.add(target)
                waiting.append(target)
    assert S.RUNNING in seen
