"""Runs tasks as Spark jobs, which can be cancelled without affecting other jobs of the session."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from pyspark import SparkConf
from pyspark.sql import SparkSession

from mirrorlake.apply.runner import StageResult, TasksDied
from mirrorlake.spark.errors import RAISED, death
from mirrorlake.spark.session import workers
from mirrorlake.spark.session.internals import MISSING, report_missing

T = TypeVar("T")
R = TypeVar("R")

Versions = Mapping[str, str] | None
"""The versions that executors must have; None if they run this Python."""

POOL = "spark.scheduler.pool"

REPORTS = 0
"""The task of each stage of a chain that passes on the reports of earlier stages."""

ELASTIC_SLOTS = 16
"""Maximum number of tasks of a job when executors are allocated dynamically and fewer exist. Spark
allocates executors because of waiting tasks."""


class SparkRunner:
    """A `Runner` on a session. Its jobs have their own tag; a chain is one job, whose blocks use
    Spark's shuffle, so that tasks share nothing but storage."""

    def __init__(self, session: SparkSession) -> None:
        self._context, self._needed = session.sparkContext, workers.required_versions(session)
        conf = self._context.getConf()  # a copy of all settings, which takes 10 ms
        self._elastic = elastic_slots(conf)
        self._cores_of_a_task = int(conf.get("spark.task.cpus") or 1)
        self._tag = f"mirrorlake-{uuid.uuid4().hex[:12]}"

    @property
    def slots(self) -> int:
        # None while executors are still starting.
        now = self._slots_now() or self._context.defaultParallelism
        return max(now, self._elastic)

    def _slots_now(self) -> int | None:
        try:
            context = self._context._jsc.sc()  # noqa: SLF001  (no public way)
            profile = context.resourceProfileManager().defaultResourceProfile()
            return int(context.maxNumConcurrentTasks(profile))
        except MISSING as error:
            report_missing("SparkContext.maxNumConcurrentTasks", "defaultParallelism", error)
            return None

    def threads(self, tasks: int) -> int:
        """On executors, a task uses its own cores; in local mode, all cores of the machine are
        ours."""
        if str(self._context.master).startswith("local"):
            return max(1, self.slots // max(1, tasks))
        return self._cores_of_a_task

    @contextmanager
    def tagged(self) -> Iterator[None]:
        """Tags the jobs of this thread as ours. Raises TasksDied, and SparkUnavailable for an
        executor that lacks what tasks need."""
        self._context.addJobTag(self._tag)
        # With the fair scheduler, each thread that runs jobs gets a fair share of the slots: a job
        # with few tasks does not wait for all tasks of a large one.
        self._context.setLocalProperty(POOL, f"mirrorlake-{threading.current_thread().name}")
        try:
            yield
        except RAISED as error:
            if refusal := workers.refusal(error):
                raise refusal from error
            if reason := death(error):
                raise TasksDied(reason) from error
            raise
        finally:
            self._context.removeJobTag(self._tag)
            self._context.setLocalProperty(POOL, None)  # type: ignore[arg-type]

    def run(
        self,
        work: Callable[[T], R],
        items: Sequence[T],
        packing: Sequence[Sequence[int]] | None = None,
    ) -> list[R]:
        if not items:
            return []
        indexes = packing or [[index] for index in range(len(items))]
        tasks = [[items[index] for index in some] for some in indexes]
        with self.tagged():
            rdd = self._context.parallelize(tasks, len(tasks))
            results: list[list[R]] = rdd.map(partial(_done, work, self._needed)).collect()
        found = dict(zip(chain(*indexes), chain(*results), strict=True))
        return [found[index] for index in range(len(items))]

    def chain(
        self,
        first: Callable[[T], StageResult],
        items: Sequence[T],
        later: Sequence[Callable[[int, Sequence[Any]], StageResult]],
        tasks: int,
    ) -> list[list[Any]]:
        with self.tagged():
            sent = self._context.parallelize(list(enumerate(items)), len(items)).flatMap(
                partial(_first, first, self._needed)
            )
            for stage, work in enumerate(later, start=1):
                sent = sent.partitionBy(tasks, _itself).mapPartitionsWithIndex(
                    partial(_later, stage, work, self._needed)
                )
            found = [message for _to, message in sent.collect()]
        return [
            [one.content for one in sorted(found, key=_sender) if one.stage == stage]
            for stage in range(len(later) + 1)
        ]

    def cancel(self) -> None:
        """Cancel our own jobs, but no others of the session."""
        self._context.cancelJobsWithTag(self._tag)


def elastic_slots(conf: SparkConf) -> int:
    """How many tasks may be planned with dynamic allocation of executors; 0 without it."""
    if conf.get("spark.dynamicAllocation.enabled", "false") != "true":
        return 0
    most = int(conf.get("spark.dynamicAllocation.maxExecutors", str(ELASTIC_SLOTS)))
    cores = int(conf.get("spark.executor.cores", "1")) // int(conf.get("spark.task.cpus", "1"))
    return min(most * max(1, cores), ELASTIC_SLOTS)


def _done(work: Callable[[T], R], needed: Versions, items: Sequence[T]) -> list[R]:
    return workers.done(work, items, needed)


@dataclass(frozen=True, slots=True)
class _Message:
    """What a task of a chain sends: its report, or a block for the next stage. stage, sender: the
    number of the task's stage, and its number there."""

    stage: int
    sender: int
    content: Any
    is_report: bool


def _first(
    work: Callable[[T], StageResult], needed: Versions, numbered: tuple[int, T]
) -> Iterator[tuple[int, _Message]]:
    number, item = numbered
    (result,) = workers.done(work, [item], needed)
    yield from _sent(0, number, result)


def _later(
    stage: int,
    work: Callable[[int, Sequence[Any]], StageResult],
    needed: Versions,
    number: int,
    received: Iterable[tuple[int, _Message]],
) -> Iterator[tuple[int, _Message]]:
    messages = sorted((message for _to, message in received), key=_sender)
    blocks = [message.content for message in messages if not message.is_report]
    (result,) = workers.done(partial(work, number), [blocks], needed)
    yield from ((REPORTS, message) for message in messages if message.is_report)
    yield from _sent(stage, number, result)


def _sent(stage: int, sender: int, result: StageResult) -> Iterator[tuple[int, _Message]]:
    report, blocks = result
    yield REPORTS, _Message(stage, sender, report, is_report=True)
    for task, block in enumerate(blocks):
        yield task, _Message(stage, sender, block, is_report=False)


def _itself(task: int) -> int:
    return task


def _sender(message: _Message) -> int:
    return message.sender
