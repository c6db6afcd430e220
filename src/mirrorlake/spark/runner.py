"""Runs tasks as Spark jobs, which can be cancelled without affecting other jobs of the session."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from pyspark import SparkConf
from pyspark.sql import SparkSession

from mirrorlake.apply.runner import TasksDied
from mirrorlake.spark.errors import RAISED, death
from mirrorlake.spark.session import workers

T = TypeVar("T")
R = TypeVar("R")
S = TypeVar("S")

Versions = Mapping[str, str] | None
"""The versions that executors must have; None if they run this Python."""

POOL = "spark.scheduler.pool"

ELASTIC_SLOTS = 16
"""Maximum number of tasks of a job when executors are allocated dynamically and fewer exist. Spark
allocates executors because of waiting tasks."""


class SparkRunner:
    """A `Runner` on a session. Its jobs have their own tag; rows between tasks use Spark's shuffle
    and broadcast, so that tasks share nothing but storage."""

    def __init__(self, session: SparkSession) -> None:
        self._context, self._needed = session.sparkContext, workers.required_versions(session)
        self._elastic = elastic_slots(self._context.getConf())
        self._tag = f"mirrorlake-{uuid.uuid4().hex[:12]}"

    @property
    def slots(self) -> int:
        context = self._context._jsc.sc()  # noqa: SLF001  (no public way)
        profile = context.resourceProfileManager().defaultResourceProfile()
        # None while executors are still starting.
        now = context.maxNumConcurrentTasks(profile) or self._context.defaultParallelism
        return max(now, self._elastic)

    def threads(self, tasks: int) -> int:
        """On executors, a task uses its own cores; in local mode, all cores of the machine are
        ours."""
        if str(self._context.master).startswith("local"):
            return max(1, self.slots // max(1, tasks))
        return int(self._context.getConf().get("spark.task.cpus") or 1)

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

    def broadcast(self, work: Callable[[T, S], R], items: Sequence[T], shared: S) -> list[R]:
        sent = self._context.broadcast(shared)
        try:
            return self.run(partial(_with_broadcast, work, sent), items)
        finally:
            sent.destroy()

    def shuffle(
        self,
        split: Callable[[T], tuple[S, Sequence[bytes]]],
        items: Sequence[T],
        merge: Callable[[int, Sequence[bytes]], R],
        partitions: int,
    ) -> tuple[list[S], list[R]]:
        with self.tagged():
            numbered = self._context.parallelize(list(enumerate(items)), len(items))
            # One more partition, for the results of `split`.
            blocks = numbered.flatMap(partial(_split, split, partitions, self._needed)).partitionBy(
                partitions + 1, _itself
            )
            merged = blocks.mapPartitionsWithIndex(
                partial(_merge, merge, partitions, self._needed)
            ).collect()
        *results, report = [result for _partition, result in sorted(merged, key=_first)]
        return report, results

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


def _with_broadcast(work: Callable[[T, S], R], sent: Any, item: T) -> R:
    return work(item, sent.value)


Block = tuple[int, tuple[int, Any]]
"""The partition for which a block is meant, and the block's number and content."""


def _split(
    split: Callable[[T], tuple[S, Sequence[bytes]]],
    partitions: int,
    needed: Versions,
    numbered: tuple[int, T],
) -> Iterator[Block]:
    number, item = numbered
    ((report, blocks),) = workers.done(split, [item], needed)
    yield partitions, (number, report)
    for partition, block in enumerate(blocks):
        yield partition, (number, block)


def _merge(
    merge: Callable[[int, Sequence[bytes]], R],
    partitions: int,
    needed: Versions,
    partition: int,
    blocks: Iterable[Block],
) -> Iterator[tuple[int, Any]]:
    contents = [content for _number, content in sorted((b for _to, b in blocks), key=_first)]
    if partition == partitions:
        yield partition, contents
    else:
        (merged,) = workers.done(partial(merge, partition), [contents], needed)
        yield partition, merged


def _itself(partition: int) -> int:
    return partition


def _first(pair: tuple[int, Any]) -> int:
    return pair[0]
