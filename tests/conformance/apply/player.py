"""Plays scenarios together: what they do next is one call to the engine, of all their tables."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from mirrorlake.mirror.engine import Applied, MirrorEngine
from mirrorlake.mirror.steps import ApplyFiles, Compact
from mirrorlake.storage.local import LocalStore
from tests.conformance.apply.scenario import (
    Act,
    Adds,
    Compacts,
    Lands,
    Made,
    Played,
    Restarts,
    Scenario,
)
from tests.conformance.mirrored import Mirrored, Reader
from tests.histories import Shape

_numbers = itertools.count(1)

OTHER_GENERATION = "0b7e9c1e-1111-4222-8333-944445555666"


@dataclass(frozen=True)
class Subject:
    """An engine under test: how it is made, the store of its tables, and who reads them."""

    new_engine: Callable[[], MirrorEngine]
    store: LocalStore
    reader: Reader

    def table(self, shape: Shape, path: str = "Tables/orders") -> Mirrored:
        """A table that is not made yet."""
        return Mirrored(self.new_engine(), self.store, self.reader, shape, path)

    def tables(self, *shapes: Shape) -> list[Mirrored]:
        """New tables of one engine."""
        engine = self.new_engine()
        paths = [f"Tables/t{next(_numbers)}" for _ in shapes]
        return [
            Mirrored(engine, self.store, self.reader, shape, path).create()
            for shape, path in zip(shapes, paths, strict=True)
        ]


def play(subject: Subject, scenarios: Sequence[Scenario]) -> dict[str, Played]:
    """Play scenarios together; by name, what became of each. An error ends its own alone."""
    engine = subject.new_engine()
    every = [
        Played(one, replace(subject.table(one.shape, path), engine=engine))
        for number, one in enumerate(scenarios)
        for path in [one.path or f"Tables/played/{number}"]
    ]
    for one in every:
        with _noted(one):
            one.table.create(
                required=one.scenario.required,
                detection=one.scenario.detection,
                soft=one.scenario.soft,
            )
    for number in range(max(len(one.scenario.acts) for one in every)):
        _round(subject, [one for one in every if number < len(one.scenario.acts)], number)
    _look_again(subject, [one for one in every if one.error is None])
    return {one.scenario.name: one for one in every}


def _round(subject: Subject, every: Sequence[Played], number: int) -> None:
    """The next act of each."""
    steps: list[tuple[Played, ApplyFiles]] = []
    compacted: list[Played] = []
    for one in every:
        if one.error is None:
            with _noted(one):
                act = one.scenario.acts[number]
                if isinstance(act, Lands):
                    steps.append((one, _step(one.table, act, soft=one.scenario.soft)))
                elif isinstance(act, Compacts):
                    compacted.append(one)
                else:
                    _do(subject, one.table, act)
    for engine, mine in _by_engine(steps):
        with _noted(*(one for one, _step in mine)):
            outcomes = engine.apply([step for _one, step in mine], lambda: None)
            for (one, step), outcome in zip(mine, outcomes, strict=True):
                one.outcomes.append(outcome)
                if isinstance(outcome, Applied):
                    one.step, one.table.recorded = step, step.last
                    engine.make_durable(step.path, outcome.version)
    if compacted:
        with _noted(*compacted):
            tables = [one.table for one in compacted]
            wanted = [Compact(table.table, table.path) for table in tables]
            done = tables[0].engine.compact(wanted, lambda: None)
            for one, outcome in zip(compacted, done, strict=True):
                one.outcomes.append(outcome)


def _step(table: Mirrored, act: Lands, *, soft: bool) -> ApplyFiles:
    if act.first is not None:
        table = replace(table, recorded=act.first - 1)
    if isinstance(act.files, Mapping):
        return table.named_step(act.files)
    return table.step(*act.files, truncated=act.truncated, **({"soft": soft} | act.step))


def _do(subject: Subject, table: Mirrored, act: Act) -> None:
    match act:
        case Adds(columns):
            table.add_columns(*columns)
        case Made(None):
            table.create(generation=OTHER_GENERATION)
        case Made(shape):
            table.shape, table.recorded = shape, 0
            table.create(replace=True, generation=OTHER_GENERATION)
        case Restarts():
            table.engine = subject.new_engine()


def _look_again(subject: Subject, every: Sequence[Played]) -> None:
    """What another engine knows of the tables, what all engines say of batches that they have seen,
    and what readers find."""
    another = subject.new_engine()
    for one in every:
        with _noted(one):
            one.another, one.progress = another, another.progress(one.table.path)
    steps = [(one, one.step) for one in every if one.step is not None]
    for engine, mine in [*_by_engine(steps), (another, steps)]:
        with _noted(*(one for one, _step in mine)):
            outcomes = engine.apply([step for _one, step in mine], lambda: None)
            for (one, _step), outcome in zip(mine, outcomes, strict=True):
                one.again.append(outcome)
    try:
        found = subject.reader.tables([one.table.path for one in every])
        for one, (rows, feed) in zip(every, found, strict=True):
            one.rows, one.feed = rows, feed
    except Exception:  # noqa: BLE001  one of them cannot be read: which?
        for one in every:
            with _noted(one):
                ((one.rows, one.feed),) = subject.reader.tables([one.table.path])


def _by_engine(
    steps: Sequence[tuple[Played, ApplyFiles]],
) -> Iterator[tuple[MirrorEngine, list[tuple[Played, ApplyFiles]]]]:
    engines = {id(one.table.engine): one.table.engine for one, _step in steps}
    for engine in engines.values():
        yield engine, [(one, step) for one, step in steps if one.table.engine is engine]


@contextmanager
def _noted(*played: Played) -> Iterator[None]:
    """An error is that of these scenarios."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  it is raised by their tests
        for one in played:
            one.error = one.error or error
