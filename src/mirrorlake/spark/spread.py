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
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import structlog
from pyroaring import BitMap

from mirrorlake.errors import WorkerLost
from mirrorlake.landing import layout
from mirrorlake.landing.bounded import Share
from mirrorlake.mirror.engine import Counts
from mirrorlake.mirror.steps import ApplyFiles
from mirrorlake.model.seams import Point, Probe
from mirrorlake.spark.pieces import (
    DealSpec,
    Dealt,
    Folded,
    FoldSpec,
    Found,
    Part,
    Stretch,
    Taken,
    TakeSpec,
    WriteSpec,
    Written,
)
from mirrorlake.spark.task import LandedPath, Spec, TaskResult, TaskSpec
from mirrorlake.spark.waves import Waves
from mirrorlake.storage.store import Store

log = structlog.get_logger()

SCRATCH = f"{layout.STATE}/scratch"
"""What tasks hand to each other, in a folder for each batch."""

FINE = 4
"""Shares of landed rows per task: so that they can be given out evenly once it is known how many
of them are left."""

LEAST_SHARE = 4 << 20
"""Bytes of a landed file, about a row group, below which shares do not become finer: to open one
takes as long as to read some."""

WRITING = 3
"""What it takes to write a row and its image, where to read it takes one."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SpreadSettings:
    """From when on a batch is spread: below, the further jobs take longer than they save."""

    rows: int = 250_000
    size: int = 128 << 20  # bytes, uncompressed
    rest: int = 16  # large batches of a table on one task, after one that had to be given up


class _GivenUp(Exception):
    """It is no batch for this; the reason is for the log."""


class Spread:
    """Spreads batches over the slots of a session."""

    def __init__(self, store: Store, probe: Probe, settings: SpreadSettings | None = None) -> None:
        self._store, self._probe, self._settings = store, probe, settings or SpreadSettings()
        self._is_swept = False
        self._resting: dict[str, int] = {}

    def suits(self, step: ApplyFiles, steps: Sequence[ApplyFiles], slots: int) -> bool:
        """Whether a batch is large, and would keep all of `steps` waiting while slots are free."""
        large = step.rows >= self._settings.rows or step.size >= self._settings.size
        slowest = step.rows * slots > sum(one.rows for one in steps)
        return has_pieces(step) and large and slowest and not self._rests(str(step.table))

    def waves(self, batch: TaskSpec, slots: int) -> Waves[list[TaskResult] | None]:
        """The batch in pieces. Makes its results, or None when it has to be done in one."""
        if not self._is_swept:  # what another process has left behind; it has no lease any more
            self._store.delete_folder(SCRATCH)
            self._is_swept = True
        folder = f"{SCRATCH}/{uuid.uuid4()}"
        self._store.make_folder(folder)
        work = _Work(replace(batch, threads=1), self._store.location(folder), slots, self._probe)
        try:
            return (yield from work.waves())
        except _GivenUp as reason:
            log.info("spread_given_up", table=batch.table, reason=str(reason))
            self._resting[batch.table] = self._settings.rest
            return None
        except WorkerLost as error:  # what died in pieces is no better off as a whole
            return [TaskResult(error=error)]
        finally:
            self._store.delete_folder(folder)

    def _rests(self, table: str) -> bool:
        """Whether a batch of the table was given up lately: the next ones are like it."""
        left = self._resting.get(table, 0)
        self._resting[table] = max(0, left - 1)
        return left > 0


def has_pieces(step: ApplyFiles) -> bool:
    """Whether a batch can be spread at all: a load has its own way, a truncation has none."""
    return bool(step.key) and not step.is_load and not step.truncated


class _Work:
    """One batch on its way."""

    def __init__(self, batch: TaskSpec, folder: str, slots: int, probe: Probe) -> None:
        self._batch, self._folder, self._slots, self._probe = batch, folder, slots, probe
        self._bare = replace(batch, files=())  # the list of a table's files is long

    def waves(self) -> Waves[list[TaskResult]]:
        dealt: list[Dealt] = yield from self._wave(
            [
                DealSpec(self._bare, self._folder, some, self._slots)
                for some in shares(self._batch.landed, self._slots)
            ]
        )
        _check(dealt)
        runs = tuple((one.keys, ends(one)) for one in dealt)
        folded: list[Folded] = yield from self._wave(
            [FoldSpec(self._batch, self._folder, runs, part) for part in range(self._slots)]
        )
        taken: list[Taken] = yield from self._wave(self._taking(folded))
        found = tuple(
            Found(one.left, one.sought, once)
            for one, once in zip(folded, _once(folded, taken), strict=True)
        )
        images = any(one.rows for one in taken)
        written: list[Written] = yield from self._wave(
            [
                WriteSpec(self._bare, self._folder, some, found, images)
                for some in stretches(dealt, folded, self._slots)
            ]
        )
        _check_sizes(written, self._batch.demands.file_bytes)
        return [_result(self._batch, dealt, taken, written)]

    def _wave(self, specs: Sequence[Spec]) -> Waves[list[Any]]:
        """What the pieces of one wave hand on."""
        if not specs:
            return []
        results = yield specs
        for result in results:
            if isinstance(result.error, WorkerLost):
                raise result.error
            if result.error is not None:
                raise _GivenUp(result.error.code)
        self._probe(Point.PIECES_WRITTEN)
        return [result.handed for result in results]

    def _taking(self, folded: Sequence[Folded]) -> list[TakeSpec]:
        """The files that may hold one of the keys, in groups of about the same size."""
        wanted = sorted({place for one in folded for place in one.candidates})
        keys = tuple(one.keys for one in folded if one.keys)
        files = [self._batch.files[place] for place in wanted]
        return [
            TakeSpec(self._bare, self._folder, group, keys)
            for group in balanced(files, [int(add["size"]) for add in files], self._slots)
        ]


def shares(landed: Sequence[LandedPath], count: int) -> list[tuple[Part, ...]]:
    """Landed files and shares of files, in their order, in at most `count` runs of about the same
    size. Only Parquet is shared out."""
    target = max(1, -(-sum(file.size for file in landed) // count))
    runs: list[list[Part]] = [[]]
    taken = 0.0
    for number, file in enumerate(landed):
        even, fine = round(file.size / target), round(FINE * file.size / target)
        pieces = 1 if file.text else max(1, even, min(fine, file.size // LEAST_SHARE))
        for place in range(pieces):
            size = file.size / pieces
            if taken + size / 2 > target * len(runs) and runs[-1] and len(runs) < count:
                runs.append([])
            runs[-1].append(Part(number, file, Share(place, pieces)))
            taken += size
    return [tuple(run) for run in runs]


def stretches(
    dealt: Sequence[Dealt], folded: Sequence[Folded], count: int
) -> list[tuple[Stretch, ...]]:
    """All that was dealt out, in groups that take about as long to read and to write: of the rows
    of a batch the last ones are left more often."""
    found, weights = [], []
    for run, one in enumerate(dealt):
        begin = 0
        for place, (part, end) in enumerate(zip(one.landed, ends(one), strict=True)):
            left = sum(some.count[run][place] for some in folded)
            found.append(Stretch(run, begin, end, part))
            weights.append(end - begin + WRITING * left)
            begin = end
    groups = balanced(found, weights, count)
    return [tuple(sorted(group, key=_place)) for group in groups]


def _place(one: Stretch) -> tuple[int, int, int]:
    return one.run, one.begin, one.end


def ends(run: Dealt) -> tuple[int, ...]:
    """The numbers in a run before which what it is read from ends."""
    return tuple(itertools.accumulate(sum(rows) for rows in run.rows))


def balanced(items: Sequence[T], weights: Sequence[int], count: int) -> list[tuple[T, ...]]:
    """Items in at most `count` groups, none empty: the heaviest first, each to the lightest."""
    groups: list[list[T]] = [[] for _ in range(min(count, len(items)))]
    weight = [0] * len(groups)
    for place in sorted(range(len(items)), key=lambda place: -weights[place]):
        lightest = weight.index(min(weight))
        groups[lightest].append(items[place])
        weight[lightest] += weights[place] + 1
    return [tuple(group) for group in groups]


def _check(dealt: Sequence[Dealt]) -> None:
    """Give up on what pieces cannot do."""
    if any(one.partial for one in dealt):
        raise _GivenUp("values that the source did not send")
    if len({one.dealer for one in dealt}) > 1:
        raise _GivenUp("executors with different releases of DuckDB")


def _check_sizes(written: Sequence[Written], most: int) -> None:
    """Give up on a file that the whole might refuse: its shares are smaller than it."""
    sizes: dict[int, int] = {}
    for number, size in (each for one in written for each in one.size):
        sizes[number] = sizes.get(number, 0) + size
    if max(sizes.values(), default=0) > most // 2:
        raise _GivenUp("a file near the limit of its size")


def _once(folded: Sequence[Folded], taken: Sequence[Taken]) -> list[tuple[bytes, ...]]:
    """For each part of the keys the bitmaps of those that had one row in the table."""
    once: list[tuple[bytes, ...]] = []
    looked = itertools.count()  # what was taken tells only of parts that looked for something
    for one in folded:
        if not one.keys or not taken:
            once.append(())
            continue
        part = next(looked)
        found = [some.once[part] for some in taken] + [some.several[part] for some in taken]
        bitmaps = [BitMap.deserialize(some) for some in found]
        if len(BitMap.union(*bitmaps)) != sum(map(len, bitmaps)):
            raise _GivenUp("a key with rows in files of several tasks")
        once.append(tuple(some.once[part] for some in taken))
    return once


def _result(
    batch: TaskSpec, dealt: Sequence[Dealt], taken: Sequence[Taken], written: Sequence[Written]
) -> TaskResult:
    count, found = sum(one.rows for one in written), sum(one.rows for one in taken)
    updated = sum(one.updated for one in written)
    read = [(0, 0, 0, 0) for _ in batch.landed]
    for one in dealt:
        for part, rows in zip(one.landed, one.rows, strict=True):
            a, b, c, d = read[part.number]
            read[part.number] = (a + rows[0], b + rows[1], c + rows[2], d + rows[3])
    return TaskResult(
        tuple(action for some in (taken, written) for one in some for action in one.actions),
        Counts(count - updated, updated, found - updated, sum(one.beyond for one in taken)),
        read=tuple(read),
        again=True,
    )
