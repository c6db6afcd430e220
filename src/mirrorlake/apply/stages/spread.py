"""Decides which batches are applied in stages, and runs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import structlog

from mirrorlake.apply.runner import Runner
from mirrorlake.apply.stages.division import GivenUp
from mirrorlake.apply.stages.plan import StagePlan
from mirrorlake.apply.task.batch import BatchResult, BatchTask
from mirrorlake.apply.task.landed_rows import LandedPath
from mirrorlake.mirror.steps import ApplyFiles
from mirrorlake.model.crash_points import CrashHook

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Exchange:
    """Maximum batch whose keys are all read and folded by each task, which takes as long as the two
    stages whose tasks send each other the keys of a larger one."""

    rows: int = 1_500_000
    files: int = 4  # landed files, each of which is opened by each task

    def suits(self, landed: Sequence[LandedPath], rows: int) -> bool:
        """Whether tasks should send each other the keys. A text is read whole for its keys."""
        large = rows > self.rows or len(landed) > self.files
        return large or any(file.text for file in landed)


@dataclass(frozen=True, slots=True)
class SpreadSettings:
    """Minimum size of a batch that is applied in stages: for smaller ones the additional jobs take
    longer than they save."""

    rows: int = 250_000
    size: int = 128 << 20  # bytes, uncompressed
    rest: int = 16  # number of batches of a table in one task after one that was given up
    always: bool = False  # spread every batch that can be, whatever its size
    tasks: int | None = None  # tasks per stage; by default the number of slots
    exchange: Exchange = field(default_factory=Exchange)


class Spread:
    """Spreads batches over the tasks of a runner."""

    def __init__(
        self, runner: Runner, reached: CrashHook, settings: SpreadSettings | None = None
    ) -> None:
        self._runner, self._reached = runner, reached
        self._settings = settings or SpreadSettings()
        self._resting: dict[str, int] = {}

    def suits(self, step: ApplyFiles, steps: Sequence[ApplyFiles], slots: int) -> bool:
        """Whether a batch is large, and all of `steps` would wait for it while slots are free."""
        if not _can_be_spread(step) or self._settings.always:
            return _can_be_spread(step)
        large = (
            step.estimate.rows >= self._settings.rows or step.estimate.size >= self._settings.size
        )
        slowest = step.estimate.rows * slots > sum(other.estimate.rows for other in steps)
        return large and slowest and not self._is_resting(str(step.table))

    def run(self, batch: BatchTask, rows: int) -> BatchResult | None:
        """Apply a batch of about `rows` rows in stages; None if it has to be applied in one task.
        Raises TasksDied: one task would not succeed either."""
        batch = replace(batch, rows=replace(batch.rows, threads=1))
        tasks = self._settings.tasks or self._runner.slots
        exchange = self._settings.exchange.suits(batch.landed, rows)
        try:
            return StagePlan(batch, self._runner, tasks, self._reached, exchange=exchange).run()
        except GivenUp as reason:
            log.info("spread_given_up", table=batch.table, reason=str(reason))
            self._resting[batch.table] = self._settings.rest
            return None

    def _is_resting(self, table: str) -> bool:
        """Whether a recent batch of the table was given up: the next ones are probably similar."""
        left = self._resting.get(table, 0)
        self._resting[table] = max(0, left - 1)
        return left > 0


def _can_be_spread(step: ApplyFiles) -> bool:
    """Stages do not support loads, truncations, soft deletes, batches that skip equal rows, or
    tables without keys."""
    has_none = step.truncated or step.skip_equal or step.soft
    return bool(step.key) and not (step.is_load or has_none)
