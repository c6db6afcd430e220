"""The states of a stream and of a backfill job, with the one table of legal moves.

A stream is moved by a person (`start`, `pause`, `run`) or by what is observed of its capture. Every
move that the table does not have is refused, with both states in the error (ST-279).
"""

from __future__ import annotations

from enum import IntEnum, StrEnum

from mirrorlake.errors import IllegalMove


class StreamState(IntEnum):
    """In the words and numbers of the API (ST-268)."""

    STATE_UNSPECIFIED = 0
    NOT_STARTED = 1  # created; waits for a person
    RUNNING = 2  # its capture runs
    PAUSED = 3  # drained; waits for a person
    MAINTENANCE = 4  # read from others, never entered (ST-269)
    FAILED = 5  # its capture is started again and again, with growing pauses
    FAILED_PERMANENTLY = 6  # what it needs is lost; waits for a recovery run
    STARTING = 7  # is validated, then its capture is started
    DRAINING = 8  # nothing new is read; what was read is still delivered


class StreamMove(StrEnum):
    """What happens to a stream."""

    START = "start"  # a person starts or resumes it
    PAUSE = "pause"  # a person pauses it
    RECOVER = "recover"  # a person runs it again from a position
    VALID = "valid"  # it was validated, and its capture runs
    INVALID = "invalid"  # it was validated, and cannot run
    FAIL = "fail"  # its capture ended; trying again may help
    HEAL = "heal"  # its capture runs again
    LOSE = "lose"  # its capture ended, and trying again cannot help
    DRAINED = "drained"  # its capture ended as it was told to


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
"""State and move to the next state (ST-270 to ST-277)."""

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
"""Where a move leads, for the error that refuses it."""


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
    """Of the backfill job of an object (ST-284 to ST-288)."""

    STATE_UNSPECIFIED = 0
    NOT_STARTED = 1
    PENDING = 2
    ACTIVE = 3
    STOPPED = 4
    FAILED = 5
    COMPLETED = 6
    UNSUPPORTED = 7


class BackfillTrigger(IntEnum):
    """Who asked for a backfill (ST-289)."""

    TRIGGER_UNSPECIFIED = 0
    AUTOMATIC = 1
    MANUAL = 2


class ValidationState(IntEnum):
    """Of one validation (ST-299)."""

    STATE_UNSPECIFIED = 0
    NOT_EXECUTED = 1
    FAILED = 2
    PASSED = 3
    WARNING = 4


class MessageLevel(IntEnum):
    """Of a message of a validation (ST-299)."""

    LEVEL_UNSPECIFIED = 0
    WARNING = 1
    ERROR = 2
