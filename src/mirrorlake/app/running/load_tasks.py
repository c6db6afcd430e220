"""The mirror's side of a load whose large tables are read by tasks of its Spark.

A thread looks for what capture asks for (`capture/landing/load_tasks.py`) and runs one Spark job
per part, so many at once as there may be connections. A part whose task dies, or loses its
connection, is tried again under the same snapshot: capture keeps that open until it has all
answers. The tables are found, and the connections made, by the settings of this project: capture
sends no secrets.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import structlog

from mirrorlake import root
from mirrorlake.app.source import prerequisites
from mirrorlake.app.status import ended
from mirrorlake.apply.runner import Runner, TasksDied
from mirrorlake.capture.landing.load_tasks import (
    LoadTasks,
    PartAnswer,
    PartFailure,
    TableTasks,
    description_of,
)
from mirrorlake.capture.landing.stage_part import PartTask, stage_part
from mirrorlake.config import Project
from mirrorlake.config.sources import shared_snapshot
from mirrorlake.errors import MirrorlakeError, SourceUnavailable, SparkUnavailable
from mirrorlake.landing import layout
from mirrorlake.model.clock import WallClock
from mirrorlake.sources.base import SharedSnapshot
from mirrorlake.sources.replaced import VALUES_REPLACED
from mirrorlake.sources.table import SourceTable
from mirrorlake.storage.lease import holder_of
from mirrorlake.storage.store import Store
from mirrorlake.storage.urls import is_url

log = structlog.get_logger()

LOAD_TASKS_TAKEN = "load_tasks_taken"
LOAD_PART_FAILED = "load_part_failed"
LOAD_TASKS_FAILED = "load_tasks_failed"

ATTEMPTS = 4
"""How often a part is tried. Spark tries a task that dies again by itself, on a cluster."""
STOP_SECONDS = 5.0
"""For which a start of Spark may hold up the end."""
LOOK_SECONDS, LOOK_SECONDS_ON_OBJECTS = 1.0, 5.0
"""Between two looks for tasks."""

_MISSING = re.compile(r"(?:ModuleNotFoundError|ImportError): [^\n]*")
_ON_EXECUTORS = (
    "See the log of Spark. Executors need what capture needs, mirrorlake[postgresql]; or set "
    "load.on to capture."
)


@dataclass(eq=False, slots=True)
class _Load:
    """A load that capture waits for. tables: of the source, as they were found last; futures: of
    the parts, by the number of their table; cancelled: tables of which no answers are needed any
    more."""

    tasks: LoadTasks
    runner: Runner
    tables: Sequence[SourceTable] = ()
    futures: dict[int, list[Future[None]]] = field(default_factory=dict)
    cancelled: set[int] = field(default_factory=set)
    is_ended: bool = False

    @property
    def is_busy(self) -> bool:
        return any(not one.done() for some in self.futures.values() for one in some)

    def cancel(self, number: int) -> None:
        self.cancelled.add(number)
        for future in self.futures.get(number, []):
            future.cancel()

    def end(self) -> None:
        self.is_ended = True
        for number in list(self.futures):
            self.cancel(number)
        self.runner.cancel()

    def waits_for(self, number: int) -> bool:
        return not self.is_ended and number not in self.cancelled


class LoadTaskRunner:
    """Runs the tasks of the loads of one mirror. new_runner: makes what runs those of one load;
    called when there are some."""

    def __init__(self, project: Project, store: Store, new_runner: Callable[[], Runner]) -> None:
        self._project, self._store, self._new_runner = project, store, new_runner
        self._records = layout.stream_folder(root.LANDING)
        on_objects = is_url(store.location(self._records))
        self._pause = LOOK_SECONDS_ON_OBJECTS if on_objects else LOOK_SECONDS
        self._loads: dict[str, _Load] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._ended = threading.Event()

    @contextmanager
    def running(self, *, alone: bool) -> Iterator[None]:
        """Run what is asked for in a thread, where the project loads on Spark. alone: leave that to
        another process that applies, while there is one."""
        if not self._project.capture.parts_on_spark:
            yield
            return
        run = partial(self._run, alone=alone)
        thread = threading.Thread(target=run, name="load tasks", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            self._end_loads()
            thread.join(STOP_SECONDS)
            self._end_loads()  # one that has begun meanwhile
            if self._pool is not None:
                self._pool.shutdown(wait=True, cancel_futures=True)

    def _end_loads(self) -> None:
        for load in list(self._loads.values()):
            load.end()

    def _run(self, *, alone: bool) -> None:
        refused = ""
        while not self._ended.wait(self._pause):
            try:
                if not (alone and self._is_applied()):
                    self.look()
            except (OSError, MirrorlakeError) as error:  # of the storage: it is tried again
                if str(error) != refused:
                    log.warning(LOAD_TASKS_FAILED, reason=str(error))
                refused = str(error)

    def _is_applied(self) -> bool:
        return holder_of(self._store, ended.MIRROR, WallClock().now()) is not None

    def look(self) -> None:
        """Begin what is asked for, and end what is not asked for any more."""
        found = {tasks.folder: tasks for tasks in LoadTasks.found(self._store, self._records)}
        for folder in [name for name in self._loads if name not in found]:
            self._loads.pop(folder).end()
        for folder, tasks in found.items():
            asked, load = tasks.asked(), self._loads.get(folder)
            if load is not None:  # also one of which an answer, that came late, has left a folder
                for number in load.futures.keys() - set(asked):
                    load.cancel(number)
            if not asked:
                continue
            load = load or self._new_load(tasks, asked)
            if load is None:
                continue
            for number in asked:
                if number not in load.futures and not self._ended.is_set():
                    load.futures[number] = self._begin(load, number)
            if load.is_busy:
                tasks.take()

    def _new_load(self, tasks: LoadTasks, asked: Sequence[int]) -> _Load | None:
        tasks.take()  # before Spark is started, which takes long
        try:
            load = _Load(tasks, self._new_runner())
        except MirrorlakeError as error:
            self._refuse(tasks, asked[0], PartFailure.TASK, error)
            return None
        self._loads[tasks.folder] = load
        return load

    def _begin(self, load: _Load, number: int) -> list[Future[None]]:
        """Run the parts of a table that are not answered yet."""
        asked = load.tasks.tasks_of(number)
        if asked is None:
            return []
        try:
            table, snapshot = self._table_of(load, asked), self._snapshot_of(asked)
            if table is None or asked.extremes not in {"", snapshot.extremes}:
                self._refuse(load.tasks, number, PartFailure.READING, _altered(asked))
                return []
            parts = _unanswered(load.tasks, number, asked)
            tasks = [self._task(asked, snapshot, table, *part) for part in parts]
        except SourceUnavailable as error:
            self._refuse(load.tasks, number, PartFailure.UNREACHABLE, error)
            return []
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001  (capture must not wait for what never comes)
            self._refuse(load.tasks, number, PartFailure.TASK, error)
            return []
        log.info(LOAD_TASKS_TAKEN, table=asked.table, parts=len(tasks))
        pool = self._threads(load.runner)
        return [pool.submit(self._done, load, number, task) for task in tasks]

    def _threads(self, runner: Runner) -> ThreadPoolExecutor:
        """As many as there may be connections, and one slot stays free for the mirror's batches."""
        if self._pool is None:
            count = min(self._project.capture.spark_connections, max(runner.slots - 1, 1))
            self._pool = ThreadPoolExecutor(count, thread_name_prefix="load")
        return self._pool

    def _table_of(self, load: _Load, asked: TableTasks) -> SourceTable | None:
        """The table as this project selects it; None when it is not the same any more."""
        return _found(load.tables, asked) or _found(self._discovered(load), asked)

    def _discovered(self, load: _Load) -> Sequence[SourceTable]:
        with prerequisites.discovering(self._project, self._store) as source:
            load.tables = source.discover()
        return load.tables

    def _snapshot_of(self, asked: TableTasks) -> SharedSnapshot:
        settings = prerequisites.connection(self._project)
        return shared_snapshot(settings, asked.point, asked.snapshot)

    def _task(
        self,
        asked: TableTasks,
        snapshot: SharedSnapshot,
        table: SourceTable,
        number: int,
        bounds: object,
        is_noted: bool,
    ) -> PartTask:
        return PartTask(
            snapshot,
            snapshot.part(table, bounds),
            number,
            is_noted,
            self._store.location(asked.folder),
            self._store.options(asked.folder),
            asked.stream,
            asked.stream_id,
            asked.metadata,
            asked.file_bytes,
        )

    def _done(self, load: _Load, number: int, task: PartTask) -> None:
        """Read a part, and answer."""
        answer = self._tried(load, number, task)
        if answer is None:
            return
        for column, count in answer.replaced.items():
            table = str(task.part.table.table)
            log.warning(VALUES_REPLACED, table=table, column=column, values=count)
        while load.waits_for(number) and not _is_answered(load, number, task, answer):
            self._ended.wait(self._pause)  # capture waits for it

    def _tried(self, load: _Load, number: int, task: PartTask) -> PartAnswer | None:
        """The answer; None when nobody waits for it."""
        table, answer = str(task.part.table.table), PartAnswer(failure=PartFailure.TASK)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                (answer,) = load.runner.run(stage_part, [task])
            except SparkUnavailable as error:  # executors lack what tasks need
                return PartAnswer(
                    failure=PartFailure.TASK, code=error.code, what=error.what, hint=error.hint
                )
            except Exception as error:  # noqa: BLE001  (whatever Spark says)
                answer = _died(error)
            if not load.waits_for(number):
                return None
            if answer.failure not in {PartFailure.READING, PartFailure.TASK}:
                return answer
            log.warning(
                LOAD_PART_FAILED, table=table, part=task.number, attempt=attempt, reason=answer.what
            )
        return answer

    def _refuse(
        self, tasks: LoadTasks, number: int, failure: PartFailure, error: Exception
    ) -> None:
        """Answer for one part of a table, which is enough to end the load."""
        reason, hint = f"{type(error).__name__}, see its log", _ON_EXECUTORS
        if isinstance(error, MirrorlakeError):
            reason, hint = error.what, error.hint
            log.warning(LOAD_TASKS_FAILED, reason=reason)
        else:
            log.exception(LOAD_TASKS_FAILED)
        asked = tasks.tasks_of(number)
        for part, *_facts in _unanswered(tasks, number, asked)[:1] if asked else ():
            what = f"the mirror cannot read tables for a load: {reason}"
            tasks.answer(number, part, PartAnswer(failure=failure, what=what, hint=hint))


def _found(tables: Sequence[SourceTable], asked: TableTasks) -> SourceTable | None:
    for table in tables:
        if table.identity == asked.identity and description_of(table) == asked.description:
            return table
    return None


def _unanswered(tasks: LoadTasks, number: int, asked: TableTasks) -> list[tuple[int, Any, bool]]:
    answered = {part for table, part in tasks.answered() if table == number}
    return [part for part in asked.parts if part[0] not in answered]


def spark_runner(session: Callable[[], Any]) -> Runner:
    """A runner on a session."""
    found = session()
    from mirrorlake.spark.runner import SparkRunner

    return SparkRunner(found)


def _altered(asked: TableTasks) -> SourceUnavailable:
    return SourceUnavailable(
        f"{asked.table} is not what it was when its load began",
        hint="The load is restarted. If that does not help: capture and the mirror need the same "
        "settings and the same release.",
    )


def _is_answered(load: _Load, number: int, task: PartTask, answer: PartAnswer) -> bool:
    try:
        load.tasks.answer(number, task.number, answer)
    except OSError as error:
        log.warning(LOAD_TASKS_FAILED, reason=str(error))
        return False
    return True


def _died(error: Exception) -> PartAnswer:
    """The text of another error may have values of rows."""
    missing = _MISSING.search(str(error))
    reason = str(error) if isinstance(error, TasksDied) else missing[0] if missing else ""
    what = "a task that reads a part of a table failed at every attempt"
    return PartAnswer(
        failure=PartFailure.TASK, what=f"{what}: {reason}" if reason else what, hint=_ON_EXECUTORS
    )
