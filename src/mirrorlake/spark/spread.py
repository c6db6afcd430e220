"""One large batch on many tasks, with the same effect as on one.

    deal     by landed files   read the keys, and deal them out
    fold     by keys           net changes: which rows are left, which keys to look for
    take     by table files    find these keys; images of what was there, deletion vectors
    write    by landed files   read the rows; data files of those that are left, and their images

The changes of a key meet in one part, in file and row order, and each file of the table is read by
one task, which writes its deletion vector: nothing of the table is read twice, and no row goes from
task to task. What a piece cannot do alone (values that the source did not send; keys with rows in
files of several tasks; every error) is left to the whole: the batch is given up here and done on
one task, whose answer is then that of all. A task that runs twice writes other files; only those
that it names in the end are used.

Each wave is a job, or all of them are one: see `crew`.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

import structlog

from mirrorlake import root
from mirrorlake.errors import WorkerLost
from mirrorlake.mirror.steps import ApplyFiles
from mirrorlake.model.seams import CrashHook
from mirrorlake.spark import crew
from mirrorlake.spark.course import Course, GivenUp, shares
from mirrorlake.spark.task import TaskResult, TaskSpec
from mirrorlake.spark.waves import Waves
from mirrorlake.storage.store import Store

log = structlog.get_logger()

SCRATCH = f"{root.STATE}/scratch"
"""What tasks hand to each other, in a folder for each batch."""


@dataclass(frozen=True, slots=True)
class SpreadSettings:
    """From when on a batch is spread: below, the further jobs take longer than they save."""

    rows: int = 250_000
    size: int = 128 << 20  # bytes, uncompressed
    rest: int = 16  # large batches of a table on one task, after one that had to be given up
    crew_rows: int = 500_000  # per task; with more there is room for others between the waves
    crew_size: int = 256 << 20  # bytes per task, uncompressed


class Spread:
    """Spreads batches over the slots of a session."""

    def __init__(
        self, store: Store, reached: CrashHook, settings: SpreadSettings | None = None
    ) -> None:
        self._store, self._reached, self._settings = store, reached, settings or SpreadSettings()
        self._is_swept = False
        self._resting: dict[str, int] = {}
        self._crew_rests = 0
        self._crew_at_work = threading.Lock()

    def suits(self, step: ApplyFiles, steps: Sequence[ApplyFiles], slots: int) -> bool:
        """Whether a batch is large, and would keep all of `steps` waiting while slots are free."""
        large = step.rows >= self._settings.rows or step.size >= self._settings.size
        slowest = step.rows * slots > sum(one.rows for one in steps)
        return has_pieces(step) and large and slowest and not self._rests(str(step.table))

    def is_for_crew(self, step: ApplyFiles, steps: Sequence[ApplyFiles], slots: int) -> bool:
        """Whether the tasks of a batch may keep their slots for all waves: nobody begins with it,
        and others do not wait for long."""
        most = self._settings
        rested, self._crew_rests = self._crew_rests == 0, max(0, self._crew_rests - 1)
        short = step.rows <= most.crew_rows * slots and step.size <= most.crew_size * slots
        return rested and short and len(steps) == 1

    def waves(
        self, batch: TaskSpec, slots: int, *, as_crew: bool = False
    ) -> Waves[list[TaskResult] | None]:
        """The batch in pieces. Makes its results, or None when it has to be done in one."""
        if not self._is_swept:  # what another process has left behind; it has no lease any more
            self._store.delete_folder(SCRATCH)
            self._is_swept = True
        folder = f"{SCRATCH}/{uuid.uuid4()}"
        self._store.make_folder(folder)
        batch, place = replace(batch, threads=1), self._store.location(folder)
        course = Course(batch, place, slots, self._reached)
        try:
            done = (yield from self._crew(batch, place, slots)) if as_crew else {}
            return (yield from crew.resumed(course.waves(), done))
        except GivenUp as reason:
            log.info("spread_given_up", table=batch.table, reason=str(reason))
            self._resting[batch.table] = self._settings.rest
            return None
        except WorkerLost as error:  # what died in pieces is no better off as a whole
            return [TaskResult(error=error)]
        finally:
            self._store.delete_folder(folder)

    def _crew(self, batch: TaskSpec, place: str, slots: int) -> Waves[crew.Done]:
        """What a crew did of a batch. Nothing where a member would have nothing to begin with, or
        while there is another crew: each would wait for slots that the other has."""
        even = len(shares(batch.landed, slots)) == slots
        if not even or not self._crew_at_work.acquire(blocking=False):
            return {}
        try:
            results = yield crew.members(batch, place, slots)
        finally:
            self._crew_at_work.release()
        errors = [result.error for result in results if result.error is not None]
        for error in errors:
            if isinstance(error, WorkerLost):
                raise error
        reports = [result.handed for result in results if result.error is None]
        done = {at: result for report in reports for at, result in report.done.items()}
        in_vain = any(one.waited for one in reports) and not any(one.error for one in done.values())
        if errors or in_vain:
            codes = sorted({error.code for error in errors})
            log.info("crew_incomplete", table=batch.table, tasks=slots, errors=codes)
            self._crew_rests = self._settings.rest
        return done

    def _rests(self, table: str) -> bool:
        """Whether a batch of the table was given up lately: the next ones are like it."""
        left = self._resting.get(table, 0)
        self._resting[table] = max(0, left - 1)
        return left > 0


def has_pieces(step: ApplyFiles) -> bool:
    """Whether a batch can be spread at all: a load has its own way, a truncation has none."""
    return bool(step.key) and not step.is_load and not step.truncated
