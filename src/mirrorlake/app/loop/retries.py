"""When a table is tried again whose batch did not get into it.

A fault of one table is met neither by ending the run nor by trying again in every cycle: the table
rests, longer each time, and the others go on. A rest is about the files of one batch; as soon as
these are others, or changed, the table is free again (LZ-269).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mirrorlake.errors import TableError
from mirrorlake.landing.scan import Fingerprint
from mirrorlake.mirror.engine import Conflicted, Unknown
from mirrorlake.mirror.steps import ApplyFiles, CleanUp, TablePlan
from mirrorlake.model.clock import Clock
from mirrorlake.model.state import TableState
from mirrorlake.model.table import TableId

UNKNOWN_LIMIT = 5
CONFLICT_LIMIT = 20
"""Deferrals in a row until they are an error. Rivals may come often; answers are not lost often."""

DEFERRAL_SECONDS, DEFERRAL_LONGEST = 0.1, 2.0
FAULT_SECONDS, FAULT_LONGEST = 2.0, 60.0
"""The first rest after a deferral or a fault, and the longest."""

WAITING = "its last commit failed and is retried"


@dataclass(slots=True)
class _Rest:
    """Why and until when a table rests. error: what it shows meanwhile, once it is one."""

    first: int
    files: frozenset[tuple[str, Fingerprint]]
    until: float = 0.0
    conflicts: int = 0
    unanswered: int = 0
    faults: int = 0
    error: TableError | None = None

    def is_about(self, step: ApplyFiles) -> bool:
        """Whether a batch is the one that failed, or has grown from it."""
        return self.first == step.first and self.files <= _files(step)


class Retries:
    """The rests of all tables of one apply loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rests: dict[TableId, _Rest] = {}

    def without_resting(self, planned: Sequence[TablePlan]) -> list[TablePlan]:
        """The plans, without the batches of tables that rest, and with the errors they keep."""
        names = {table.table for table in planned}
        self._rests = {name: rest for name, rest in self._rests.items() if name in names}
        return [self._unless_resting(table) for table in planned]

    def deferred(self, step: ApplyFiles, outcome: Conflicted | Unknown) -> TableError | None:
        """A batch was not committed, or nobody knows. Returns the error once it is one."""
        rest = self._rest(step)
        if isinstance(outcome, Unknown):
            rest.unanswered += 1
        else:
            rest.conflicts += 1
        if rest.unanswered >= UNKNOWN_LIMIT or rest.conflicts >= CONFLICT_LIMIT:
            error = _given_up(step, rest, outcome)
            self.failed(step, error)
            return error
        times = rest.unanswered + rest.conflicts
        self._until(rest, DEFERRAL_SECONDS, DEFERRAL_LONGEST, times)
        return None

    def failed(self, step: ApplyFiles, error: TableError) -> None:
        """A batch met a fault that the plan cannot see: the table rests with this error."""
        rest = self._rest(step)
        rest.faults += 1
        rest.error = error
        self._until(rest, FAULT_SECONDS, FAULT_LONGEST, rest.faults)

    def succeeded(self, table: TableId) -> None:
        self._rests.pop(table, None)

    def pause(self) -> float | None:
        """Seconds until the next deferred batch is due; None when there is none.

        Tables that rest with an error do not count: whoever wants an end has one.
        """
        now = self._clock.monotonic()
        due = [rest.until - now for rest in self._rests.values() if rest.error is None]
        return max(min(due), 0.0) if due else None

    def _unless_resting(self, planned: TablePlan) -> TablePlan:
        rest = self._rests.get(planned.table)
        if rest is None:
            return planned
        steps = [step for step in planned.steps if isinstance(step, ApplyFiles)]
        if not steps or not rest.is_about(steps[0]):
            del self._rests[planned.table]
            return planned
        error = rest.error or planned.error
        if self._clock.monotonic() >= rest.until:
            return replace(planned, error=error)  # an attempt alone is no recovery
        return replace(
            planned,
            state=TableState.FAILED if error else planned.state,
            steps=tuple(step for step in planned.steps if isinstance(step, CleanUp)),
            error=error,
            waiting="" if error else WAITING,
        )

    def _rest(self, step: ApplyFiles) -> _Rest:
        rest = self._rests.get(step.table)
        if rest is None or not rest.is_about(step):
            rest = self._rests[step.table] = _Rest(step.first, _files(step))
        return rest

    def _until(self, rest: _Rest, first: float, longest: float, times: int) -> None:
        rest.until = self._clock.monotonic() + min(first * 2.0 ** min(times - 1, 10), longest)


def _files(step: ApplyFiles) -> frozenset[tuple[str, Fingerprint]]:
    return frozenset((file.path, file.fingerprint) for file in step.files)


def _given_up(step: ApplyFiles, rest: _Rest, outcome: Conflicted | Unknown) -> TableError:
    if isinstance(outcome, Unknown):
        return TableError(
            f"the commit of {step} failed {rest.unanswered} times in a row: {outcome.reason}",
            table=str(step.table),
            hint=f"Check that {step.path}/_delta_log is writable and that the disk has space. "
            "The commit is retried.",
        )
    return TableError(
        f"{rest.conflicts} commits in a row conflicted with those of other writers: "
        f"{outcome.reason}",
        table=str(step.table),
        hint=f"Stop other writers of {step.path}. The commit is retried.",
    )
