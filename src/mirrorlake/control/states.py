"""The states of a stream and of a backfill job, with the table of legal moves.

A stream is moved by a user (`start`, `pause`, `run`) or by an observation of its capture. Every
other move is refused with an error that names both states (ST-279).
"""

from __future__ import annotations

from enum import IntEnum, StrEnum

from mirrorlake.errors import IllegalMove


class StreamState(IntEnum):
    """The names and numbers of the API (ST-268)."""

    STATE_UNSPECIFIED = 0
    NOT_STARTED = 1  # created; waits for a user
    RUNNING = 2  # its capture runs
    PAUSED = 3  # drained; waits for a user
    MAINTENANCE = 4  # accepted when read, never entered (ST-269)
    FAILED = 5  # its capture is restarted repeatedly, with growing delays
    FAILED_PERMANENTLY = 6  # data that it needs are lost; waits for a recovery run
    STARTING = 7  # is validated, then its capture is started
    DRAINING = 8  # reads nothing new; delivers what was read


class StreamMove(StrEnum):
    """An event that changes the state of a stream."""

    START = "start"  # a user starts or resumes it
    PAUSE = "pause"  # a user pauses it
    RECOVER = "recover"  # a user runs it again from a position
    VALID = "valid"  # its validation succeeded, and its capture runs
    INVALID = "invalid"  # its validation failed
    FAIL = "fail"  # its capture ended with an error; a retry may help
    HEAL = "heal"  # its capture runs again
    LOSE = "lose"  # its capture ended with an error; a retry cannot help
    DRAINED = "drained"  # its capture ended as requested


_S, _M = StreamState, StreamMove

MOVES: dict[tuple[StreamState, StreamMove], StreamState] = {
    (_S.NOT_STARTED, _M.START): _S.STARTING,
    (_S.NOT_STARTED, _M.RECOVER): _S.STARTING,
    (_S.STARTING, _M.VALID): _S.RUNNING,
    (_S.STARTING, _M.INVALID): _S.NOT_STARTED,
    (_S.STARTING, _M.FAIL): _S.FAILED,
    (_S.STARTING, _M.LOSE): _S.FAILED_PERMANENTLY,
    (_S.RUNNING, _M.PAUSE): _S.DRAINING,
    (_S.RUNNING, _M.FAIL): _S.FAILED,
    (_S.RUNNING, _M.LOSE): _S.FAILED_PERMANENTLY,
    (_S.DRAINING, _M.DRAINED): _S.PAUSED,
    (_S.PAUSED, _M.START): _S.STARTING,
    (_S.PAUSED, _M.RECOVER): _S.STARTING,
    (_S.FAILED, _M.HEAL): _S.RUNNING,
    (_S.FAILED, _M.LOSE): _S.FAILED_PERMANENTLY,
    (_S.FAILED, _M.RECOVER): _S.STARTING,
    (_S.FAILED_PERMANENTLY, _M.RECOVER): _S.STARTING,
}
"""The next state for each state and move (ST-270 to ST-277)."""

_AIMS = {
    _M.START: _S.RUNNING,
    _M.RECOVER: _S.RUNNING,
    _M.PAUSE: _S.PAUSED,
    _M.VALID: _S.RUNNING,
    _M.INVALID: _S.NOT_STARTED,
    _M.FAIL: _S.FAILED,
    _M.HEAL: _S.RUNNING,
    _M.LOSE: _S.FAILED_PERMANENTLY,
    _M.DRAINED: _S.PAUSED,
}
"""The target state of a move, for the error that refuses it."""


def moved(state: StreamState, move: StreamMove, stream: str = "") -> StreamState:
    """The state after a move. Raises IllegalMove, which names both states (ST-279)."""
    following = MOVES.get((state, move))
    if following is None:
        wanted = _AIMS[move]
        raise IllegalMove(
            f"a stream that is {state.name} cannot become {wanted.name}",
            where=stream,
            hint=_hint(state, move),
        )
    return following


def _hint(state: StreamState, move: StreamMove) -> str:
    ways = [one.value for one in (_M.START, _M.PAUSE, _M.RECOVER) if (state, one) in MOVES]
    if move in (_M.START, _M.PAUSE, _M.RECOVER) and ways:
        return f"From {state.name} it can {' or '.join(ways)}."
    return f"Wait until it is no longer {state.name}."


class BackfillState(IntEnum):
    """The state of the backfill job of an object (ST-284 to ST-288)."""

    STATE_UNSPECIFIED = 0
    NOT_STARTED = 1
    PENDING = 2
    ACTIVE = 3
    STOPPED = 4
    FAILED = 5
    COMPLETED = 6
    UNSUPPORTED = 7


class BackfillTrigger(IntEnum):
    """Who requested a backfill (ST-289)."""

    TRIGGER_UNSPECIFIED = 0
    AUTOMATIC = 1
    MANUAL = 2


class ValidationState(IntEnum):
    """The state of one validation (ST-299)."""

    STATE_UNSPECIFIED = 0
    NOT_EXECUTED = 1
    FAILED = 2
    PASSED = 3
    WARNING = 4


class MessageLevel(IntEnum):
    """The level of a message of a validation (ST-299)."""

    LEVEL_UNSPECIFIED = 0
    WARNING = 1
    ERROR = 2
