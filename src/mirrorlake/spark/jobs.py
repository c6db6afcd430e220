"""Work on the executors: one Spark job for many tasks, to be ended without touching others."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import TypeVar

import structlog
from pyspark.sql import SparkSession

from mirrorlake.spark import task
from mirrorlake.spark.bundles import packed
from mirrorlake.spark.refusals import RAISED, death, lost
from mirrorlake.spark.session import workers

log = structlog.get_logger()

T = TypeVar("T")
R = TypeVar("R")

POOL = "spark.scheduler.pool"
TASKS_DIED = "tasks_died"


class Jobs:
    """Runs tasks in a session, under a tag of their own."""

    def __init__(self, session: SparkSession) -> None:
        self._context = session.sparkContext
        self._tag = f"mirrorlake-{uuid.uuid4().hex[:12]}"

    @property
    def slots(self) -> int:
        """How many tasks run at once."""
        context = self._context._jsc.sc()  # noqa: SLF001  (no public way)
        profile = context.resourceProfileManager().defaultResourceProfile()
        # None while executors are only on their way.
        return context.maxNumConcurrentTasks(profile) or self._context.defaultParallelism

    def threads(self, tasks: int) -> int:
        """How many threads each of so many tasks may use. Executors give a task what is its own;
        in the driver's process all cores are ours."""
        if str(self._context.master).startswith("local"):
            return max(1, self.slots // max(1, tasks))
        return int(self._context.getConf().get("spark.task.cpus") or 1)

    @contextmanager
    def tagged(self) -> Iterator[None]:
        """Jobs of this thread are ours meanwhile."""
        self._context.addJobTag(self._tag)
        # Each thread that runs jobs has a fair share of the tasks, where the scheduler is fair: a
        # job with many tasks does not make one with few wait for all of them.
        self._context.setLocalProperty(POOL, f"mirrorlake-{threading.current_thread().name}")
        try:
            yield
        finally:
            self._context.removeJobTag(self._tag)
            self._context.setLocalProperty(POOL, None)  # type: ignore[arg-type]

    def run(self, specs: Sequence[task.Spec]) -> list[task.TaskResult]:
        """One job, a task per specification or for some small ones; results in their order.

        A task that dies with its process, and dies again whenever Spark tries it again, ends the
        job of all. Then each table has a job of its own, once and one after another, so that none
        dies of a neighbour; the results of a table that dies alone are errors of it.
        """
        try:
            return self.map(task.run, specs, packed(specs, self.slots))
        except RAISED as error:
            reason = death(error)
            if reason is None:
                raise
            return self._apart(specs, reason)

    def _apart(self, specs: Sequence[task.Spec], reason: str) -> list[task.TaskResult]:
        indexes: dict[str, list[int]] = {}
        for index, spec in enumerate(specs):
            indexes.setdefault(spec.table, []).append(index)
        log.warning(TASKS_DIED, tables=len(indexes), reason=reason)
        if len(indexes) == 1:
            return [task.TaskResult(error=lost(spec.table, reason)) for spec in specs]
        found: dict[int, task.TaskResult] = {}
        for some in indexes.values():
            found |= zip(some, self.run([specs[index] for index in some]), strict=True)
        return [found[index] for index in range(len(specs))]

    def map(
        self,
        work: Callable[[T], R],
        items: Sequence[T],
        packing: Sequence[Sequence[int]] | None = None,
    ) -> list[R]:
        """One job, for work of any kind that pickles; results in the order of the items.

        bundles: the items of each task, as their places; a task for each by default.
        """
        if not items:
            return []
        indexes = packing or [[index] for index in range(len(items))]
        with self.tagged():
            specified = [[items[index] for index in some] for some in indexes]
            rdd = self._context.parallelize(specified, len(specified))
            results: list[list[R]] = rdd.map(partial(workers.done, work)).collect()
        found = dict(zip(chain(*indexes), chain(*results), strict=True))
        return [found[index] for index in range(len(items))]

    def cancel(self) -> None:
        """End our own jobs, and no others of the session."""
        self._context.cancelJobsWithTag(self._tag)
