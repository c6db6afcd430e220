"""Capture's side of a load whose large tables are read by tasks of the mirror's Spark."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future

from mirrorlake.capture.landing.load_tasks import (
    LoadTasks,
    PartAnswer,
    PartFailure,
    TableTasks,
)
from mirrorlake.errors import (
    AlteredWhileLoaded,
    PrerequisiteMissing,
    SourceUnavailable,
    SparkUnavailable,
    TableError,
)

PATIENCE = 300.0
"""Seconds for which nobody may work on the tasks. Spark may have to be started before."""

LOOK_SECONDS = 0.5
"""Between two looks for answers, each of which is a request on an object store."""


class RemoteParts:
    """The parts of one load. Not for several threads.

    is_there: asks the source something, for which it raises SourceUnavailable if it is gone.
    """

    def __init__(
        self,
        tasks: LoadTasks,
        is_there: Callable[[], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tasks, self._is_there, self._clock = tasks, is_there, clock
        self._waiting: dict[tuple[int, int], tuple[Future[int], Callable[[PartAnswer], None]]] = {}
        self._tables: dict[int, str] = {}
        self._looked, self._heard, self._taken = float("-inf"), clock(), ""

    def submit(
        self, asked: TableTasks, note: Callable[[int, PartAnswer], None]
    ) -> Sequence[Future[int]]:
        """Ask for the parts of a table. note: called with the number of each part that was read,
        and its answer, before its future has its number of rows."""
        number = len(self._tables)
        self._tables[number] = asked.table
        found: list[Future[int]] = []
        for part, *_facts in asked.parts:
            future: Future[int] = Future()
            self._waiting[number, part] = future, _noting(note, part)
            found.append(future)
        self._tasks.ask(number, asked)
        return found

    def look(self) -> None:
        """Take the answers that have come. Raises SparkUnavailable when nobody works on them."""
        if not self._waiting or self._clock() - self._looked < LOOK_SECONDS:
            return
        self._drop_cancelled()
        for key in list(self._tasks.answered()):
            if key in self._waiting:
                future, note = self._waiting.pop(key)
                answer = self._tasks.answer_of(*key)
                self._heard = self._clock()
                if answer.failure in {None, PartFailure.MOVED}:
                    note(answer)
                    future.set_result(answer.rows)
                else:
                    future.set_exception(self._error(key[0], answer))
        self._listen()
        self._looked = self._clock()

    def end(self) -> None:
        self._waiting.clear()
        self._tasks.end()

    def _drop_cancelled(self) -> None:
        """Of a table that has failed no part is needed any more."""
        dropped = {key for key, (future, _note) in self._waiting.items() if future.cancelled()}
        for number in {number for number, _part in dropped}:
            self._tasks.withdraw(number)
        for key in dropped:
            del self._waiting[key]

    def _listen(self) -> None:
        taken = self._tasks.taken()
        if taken != self._taken or not self._waiting:
            self._taken, self._heard = taken, self._clock()
        if self._clock() - self._heard > PATIENCE:
            raise SparkUnavailable(
                f"no mirror has worked on the parts of the load for {PATIENCE:.0f} s",
                where="load.on: spark",
                hint="Run `mirrorlake run`, or `mirrorlake apply` beside `mirrorlake capture`, "
                "with the same settings; or set load.on to capture.",
            )

    def _error(self, number: int, answer: PartAnswer) -> Exception:
        match answer.failure:
            case PartFailure.TABLE:
                kind = _table_errors().get(answer.code, TableError)
                return kind(answer.what, table=self._tables[number], hint=answer.hint)
            case PartFailure.READING if answer.code == AlteredWhileLoaded.code:
                where = self._tables[number]
                return AlteredWhileLoaded(answer.what, where=where, hint=answer.hint)
            case PartFailure.READING:
                return SourceUnavailable(answer.what, hint=answer.hint)
            case PartFailure.UNREACHABLE:
                try:
                    self._is_there()
                except SourceUnavailable as error:
                    return error
                return PrerequisiteMissing(answer.what, where="load.on: spark", hint=answer.hint)
            case _:
                return SparkUnavailable(answer.what, where="load.on: spark", hint=answer.hint)


def _noting(note: Callable[[int, PartAnswer], None], part: int) -> Callable[[PartAnswer], None]:
    return lambda answer: note(part, answer)


def _table_errors() -> Mapping[str, type[TableError]]:
    """By code, of the errors of tables."""
    found, left = {TableError.code: TableError}, [TableError]
    while left:
        for kind in left.pop().__subclasses__():
            found.setdefault(kind.code, kind)
            left.append(kind)
    return found
