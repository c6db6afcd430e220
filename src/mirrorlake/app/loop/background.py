"""Work that goes on beside the cycles: large batches, large compactions, checkpoints.

Invariant: a table has one batch or one compaction under way at most, and while it has, nothing
else is done with it. All that follows from the work is noted by the cycle that finds it done.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

import structlog

from mirrorlake.mirror.steps import TablePlan
from mirrorlake.model.clock import Clock
from mirrorlake.model.table import TableId

log = structlog.get_logger()

WORK_TAKES_LONG = "work_takes_long"
LONG_SECONDS = 600.0
"""For which work is not spoken of: a batch takes minutes at most, and the files of a large table
that nobody needs any more may take some more to remove."""
POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Executors:
    """Where work goes on beside the cycles. Only `submit` and `shutdown` are used, and of what is
    submitted only `done` and `result`.

    large: for batches and compactions, as many at once as leave room for a cycle, which is its
    width; maintenance: for what is never in a hurry.
    """

    large: Executor
    maintenance: Executor
    width: int = 1

    @classmethod
    def threads(cls, cores: int) -> Executors:
        """For an engine that runs so many tasks at once: one stays free for the quiet tables."""
        width = max(cores - 1, 1)
        return cls(
            ThreadPoolExecutor(width, thread_name_prefix="large"),
            ThreadPoolExecutor(1, thread_name_prefix="maintenance"),
            width,
        )

    def close(self) -> None:
        """Begin nothing more, and wait for what is under way."""
        for executor in (self.large, self.maintenance):
            executor.shutdown(wait=True, cancel_futures=True)


class Kind(StrEnum):
    """What is under way: batches of a round; one that may not end well, and for which no round
    waits; files of a table that are written anew; or work that is in no hurry."""

    BATCH = "batch"
    ALONE = "batch alone"
    COMPACTION = "compaction"
    MAINTENANCE = "maintenance"


@dataclass(frozen=True, slots=True)
class BackgroundJob:
    """plans: of the tables on which it works; collect: called with the result once it is there, and
    says whether a table got on; begun: monotonic, in seconds; is_logged: whether it was said that
    it takes long."""

    kind: Kind
    plans: Sequence[TablePlan]
    future: Future[Any]
    collect: Callable[[Any], bool]
    begun: float
    is_logged: bool = False


_AT_LEISURE = {Kind.ALONE, Kind.MAINTENANCE}


class BackgroundJobs:
    """What is under way. Not for several threads: the work is, these notes are not."""

    def __init__(
        self, executors: Callable[[], Executors], clock: Clock, stop: threading.Event
    ) -> None:
        self._make_executors, self._clock, self._stop = executors, clock, stop
        self._background: list[BackgroundJob] = []

    def __bool__(self) -> bool:
        return bool(self._background)

    @cached_property
    def _executors(self) -> Executors:
        """Made for the first work: how many tasks run at once is known when Spark runs."""
        return self._make_executors()

    @property
    def under_way(self) -> dict[TableId, TablePlan]:
        """The plans of the tables on which a job works: nothing else may be done with them."""
        return {plan.table: plan for job in self._background for plan in job.plans}

    @property
    def is_applying(self) -> bool:
        """Whether a batch is under way."""
        return any(job.kind is Kind.BATCH for job in self._background)

    @property
    def may_compact(self) -> bool:
        """Whether a compaction would not wait for others, with all batches of its table."""
        under_way = sum(job.kind is Kind.COMPACTION for job in self._background)
        return under_way < self._executors.width

    @property
    def may_maintain(self) -> bool:
        """Whether work that is in no hurry would hold its table not much longer than it takes.

        Checkpoints come before it: they are short, and of a thousand tables some are always under
        way.
        """
        return not any(job.plans and job.kind in _AT_LEISURE for job in self._background)

    @property
    def is_any_done(self) -> bool:
        """Whether something is to be noted."""
        return any(job.future.done() for job in self._background)

    def begin(
        self,
        kind: Kind,
        work: Callable[[], Any],
        plans: Sequence[TablePlan] = (),
        collect: Callable[[Any], bool] = lambda _result: False,
    ) -> None:
        """Begin work on tables that have nothing under way. collect: as `BackgroundJob` has it; by
        default nothing has to be noted."""
        assert not self.under_way.keys() & {plan.table for plan in plans}
        executor = self._executors.maintenance if kind in _AT_LEISURE else self._executors.large
        begun = self._clock.monotonic()
        self._background.append(BackgroundJob(kind, plans, executor.submit(work), collect, begun))

    def collect(self) -> bool:
        """Note what is done, and what takes long. Returns whether a table got on; raises what ended
        a work."""
        done = [job for job in self._background if job.future.done()]
        self._background = [self._logged(job) for job in self._background if job not in done]
        got_on = [job.collect(job.future.result()) for job in done]
        return any(got_on)

    def _logged(self, job: BackgroundJob) -> BackgroundJob:
        """The same; of one that takes long it is said, once, and its tables show it: a storage that
        answers no more gives no error, and what would use the executor after it never begins."""
        if job.is_logged or self._clock.monotonic() - job.begun < LONG_SECONDS:
            return job
        tables = [str(plan.table) for plan in job.plans]
        log.warning(WORK_TAKES_LONG, work=str(job.kind), tables=tables, seconds=LONG_SECONDS)
        waiting = f"its {job.kind} has been running for more than {LONG_SECONDS:.0f} s"
        plans = [replace(p, waiting="" if p.error else waiting) for p in job.plans]
        return replace(job, plans=plans, is_logged=True)

    def wait(self, seconds: float = float("inf")) -> bool:
        """Until something is done, so long at most; not at all when nothing is under way.

        Returns whether something is done.
        """
        until = self._clock.monotonic() + seconds
        while self._background and not self._stop.is_set():
            if self.is_any_done:
                return True
            if self._clock.monotonic() >= until:
                break
            self._clock.sleep(POLL_SECONDS)
        return False

    def close(self) -> None:
        """Wait for what is under way, and begin nothing more. What is left is done again."""
        if "_executors" in vars(self):
            self._executors.close()
