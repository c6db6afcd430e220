"""When a batch goes in stages, and what becomes of one that cannot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import structlog

from mirrorlake.apply.runner import Runner
from mirrorlake.apply.stages.plan import GivenUp, StagePlan
from mirrorlake.apply.task.batch import BatchResult, BatchTask
from mirrorlake.mirror.steps import ApplyFiles
from mirrorlake.model.crash_points import CrashHook

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class SpreadSettings:
    """From when on a batch goes in stages: below, the further jobs take longer than they save."""

    rows: int = 250_000
    size: int = 128 << 20  # bytes, uncompressed
    rest: int = 16  # large batches of a table in one task, after one that had to be given up
    always: bool = False  # every batch that can, whatever its size and its neighbours
    tasks: int | None = None  # of each stage; by default as many as run at once


class Spread:
    """Spreads batches over the tasks of a runner."""

    def __init__(
        self, runner: Runner, reached: CrashHook, settings: SpreadSettings | None = None
    ) -> None:
        self._runner, self._reached = runner, reached
        self._settings = settings or SpreadSettings()
        self._resting: dict[str, int] = {}

    def suits(self, step: ApplyFiles, steps: Sequence[ApplyFiles], slots: int) -> bool:
        """Whether a batch is large, and would keep all of `steps` waiting while slots are free."""
        if not _can_be_spread(step) or self._settings.always:
            return _can_be_spread(step)
        large = (
            step.estimate.rows >= self._settings.rows or step.estimate.size >= self._settings.size
        )
        slowest = step.estimate.rows * slots > sum(one.estimate.rows for one in steps)
        return large and slowest and not self._rests(str(step.table))

    def run(self, batch: BatchTask) -> BatchResult | None:
        """The batch in stages; None when it has to be done in one task. Raises TasksDied: what died
        in stages is no better off in one task."""
        batch = replace(batch, rows=replace(batch.rows, threads=1))
        tasks = self._settings.tasks or self._runner.slots
        try:
            return StagePlan(batch, self._runner, tasks, self._reached).run()
        except GivenUp as reason:
            log.info("spread_given_up", table=batch.table, reason=str(reason))
            self._resting[batch.table] = self._settings.rest
            return None

    def _rests(self, table: str) -> bool:
        """Whether a batch of the table was given up lately: the next ones are like it."""
        left = self._resting.get(table, 0)
        self._resting[table] = max(0, left - 1)
        return left > 0


def _can_be_spread(step: ApplyFiles) -> bool:
    """A load has its own way, a truncation and a backfill have none."""
    return bool(step.key) and not (step.is_load or step.truncated or step.backfill)
