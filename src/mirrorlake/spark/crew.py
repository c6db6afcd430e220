"""Tasks of one job that go through all waves of a batch together.

A wave that is a job of its own begins when the driver has heard of the end of the one before, and
to begin takes about as long as to fold half a million keys. The members of a crew see it for
themselves: each goes the same course, does the pieces that fall to it, leaves what they hand on in
the scratch folder, and goes on when all the others have.

Nobody has to be there. A member that does not see the others at the beginning (there are not as
many free slots, or the storage shows new files late), or whose own piece was much shorter than
that of another, goes, and with it the others. What a crew has done is done: the driver goes the
same course with it, and has the rest done in jobs. So a slot waits for another for a bounded time
only, and a task that Spark runs again goes on where the one before it was.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mirrorlake.model.seams import no_crash
from mirrorlake.spark import task
from mirrorlake.spark.course import Course, GivenUp
from mirrorlake.spark.crew_board import Board
from mirrorlake.spark.pieces import DealSpec, Dealt, Folded, FoldSpec, Taken, TakeSpec
from mirrorlake.spark.waves import Waves

ROLL_CALL = 2.0
"""Seconds in which all members of a crew must have come. Idle executors begin their tasks within a
tenth of one."""

PATIENCE = 2.0
"""Seconds for which a member waits at least for the others when its own piece is done, and for as
long as that took: pieces of a wave take about as long as each other, or the slots of those that
are done are better used by others."""

HANDED: Mapping[type[task.Spec], type[Any]] = {DealSpec: Dealt, FoldSpec: Folded, TakeSpec: Taken}
"""What others wait for, by kind of piece. The last wave is not among them."""

Done = Mapping[tuple[int, int], task.TaskResult]
"""Results by the wave and the place in it."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a member did. waited: whether it waited for others in vain."""

    done: Done
    waited: bool


@dataclass(frozen=True, slots=True)
class MemberSpec(task.Piece):
    """One of `count` tasks that go together."""

    place: int
    count: int

    def work(self) -> Report:
        board = Board(Path(self.folder))
        done: dict[tuple[int, int], task.TaskResult] = {}
        try:
            waited = not self._go(board, done)
        except Exception:
            with suppress(OSError):
                board.leave()
            raise
        return Report(done, waited)

    def _go(self, board: Board, done: dict[tuple[int, int], task.TaskResult]) -> bool:
        """Go the course as far as the crew goes. Returns whether all came for whom it waited."""
        board.put(f"here-{self.place}", {})
        if not board.wait([f"here-{place}" for place in range(self.count)], ROLL_CALL):
            return False
        waves = Course(self.batch, self.folder, self.count, no_crash).waves()
        try:
            specs = next(waves)
            for wave in itertools.count():
                specs = waves.send(self._wave(board, wave, specs, done))
        except _Alone:
            return False
        except (StopIteration, GivenUp, _Ended):
            pass
        finally:
            waves.close()
        return True

    def _wave(
        self,
        board: Board,
        wave: int,
        specs: Sequence[task.Spec],
        done: dict[tuple[int, int], task.TaskResult],
    ) -> list[task.TaskResult]:
        """Do what is ours of a wave, and wait for the others. Raises _Ended, _Alone."""
        handed = HANDED.get(type(specs[0]))
        names, began = [f"{wave}-{place}" for place in range(len(specs))], time.monotonic()
        for place in range(self.place, len(specs), self.count):
            before = board.read(names[place], handed) if handed else None
            result = before or task.run(specs[place])
            done[wave, place] = result
            if result.error is not None:
                board.leave()
                raise _Ended
            if handed and not before:
                board.put(names[place], asdict(result.handed))
        if not handed:
            raise _Ended
        if not board.wait(names, max(PATIENCE, time.monotonic() - began)):
            raise _Alone
        results = list[task.TaskResult]()
        for place, name in enumerate(names):
            found = done.get((wave, place)) or board.read(name, handed)
            if found is None:  # it was there, and a storage may do as it likes
                board.leave()
                raise _Alone
            results.append(found)
        return results


def members(batch: task.TaskSpec, folder: str, count: int) -> list[MemberSpec]:
    """The tasks of a crew."""
    return [MemberSpec(batch, folder, place, count) for place in range(count)]


def resumed(waves: Waves[list[task.TaskResult]], done: Done) -> Waves[list[task.TaskResult]]:
    """The same waves, of which some pieces have been done."""
    results: list[task.TaskResult] | None = None
    try:
        for wave in itertools.count():
            specs = next(waves) if results is None else waves.send(results)
            left = [place for place in range(len(specs)) if (wave, place) not in done]
            made: list[task.TaskResult] = (yield [specs[place] for place in left]) if left else []
            now = dict(zip(left, made, strict=True))
            results = [now.get(n) or done[wave, n] for n in range(len(specs))]
    except StopIteration as end:
        return list(end.value)
    finally:
        waves.close()
    raise AssertionError


class _Ended(Exception):
    """There is nothing more to do here."""


class _Alone(Exception):
    """The others do not go on."""
