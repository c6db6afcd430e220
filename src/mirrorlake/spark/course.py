"""The way of one batch through the waves of `spread`.

Which pieces a wave has follows from the batch, from how many tasks there are and from what earlier
waves handed on, and from nothing else: whoever goes this way with the same answers makes the same
pieces.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pyroaring import BitMap

from mirrorlake.errors import WorkerLost
from mirrorlake.landing.parquet.bounded import Share
from mirrorlake.mirror.engine import Counts
from mirrorlake.model.seams import CrashHook, CrashPoint
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

FINE = 4
"""Shares of landed rows per task: so that they can be given out evenly once it is known how many
of them are left."""

LEAST_SHARE = 4 << 20
"""Bytes of a landed file, about a row group, below which shares do not become finer: to open one
takes as long as to read some."""

WRITING = 3
"""What it takes to write a row and its image, where to read it takes one."""

T = TypeVar("T")


class GivenUp(Exception):
    """It is no batch for pieces; the reason is for the log."""


class Course:
    """One batch on its way."""

    def __init__(self, batch: TaskSpec, folder: str, slots: int, reached: CrashHook) -> None:
        self._batch, self._folder, self._slots, self._reached = batch, folder, slots, reached
        self._bare = replace(batch, files=())  # the list of a table's files is long

    def waves(self) -> Waves[list[TaskResult]]:
        landed = shares(self._batch.landed, self._slots)
        partitioned: list[Dealt] = yield from self._wave(
            [DealSpec(self._bare, self._folder, some, self._slots) for some in landed]
        )
        _check(partitioned)
        landed = [_read(some, one) for some, one in zip(landed, partitioned, strict=True)]
        runs = tuple((one.keys, ends(one)) for one in partitioned)
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
                for some in stretches(landed, partitioned, folded, self._slots)
            ]
        )
        _check_sizes(written, self._batch.row_checks.file_bytes)
        _check_rows(folded, written)
        return [_result(self._batch, landed, partitioned, taken, written)]

    def _wave(self, specs: Sequence[Spec]) -> Waves[list[Any]]:
        """What the pieces of one wave hand on."""
        if not specs:
            return []
        results = yield specs
        for result in results:
            if isinstance(result.error, WorkerLost):
                raise result.error
            if result.error is not None:
                raise GivenUp(result.error.code)
        self._reached(CrashPoint.STAGE_WRITTEN)
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


def _read(run: Sequence[Part], partitioned: Dealt) -> tuple[Part, ...]:
    """What was read, with the rows of its texts."""
    return tuple(
        replace(part, rows=text) for part, text in zip(run, partitioned.texts, strict=True)
    )


def stretches(
    landed: Sequence[Sequence[Part]],
    partitioned: Sequence[Dealt],
    folded: Sequence[Folded],
    count: int,
) -> list[tuple[Stretch, ...]]:
    """All that was dealt out, in groups that take about as long to read and to write: of the rows
    of a batch the last ones are left more often."""
    found, weights = [], []
    for run, (some, one) in enumerate(zip(landed, partitioned, strict=True)):
        begin = 0
        for place, (part, end) in enumerate(zip(some, ends(one), strict=True)):
            left = sum(fold.count[run][place] for fold in folded)
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


def _check(partitioned: Sequence[Dealt]) -> None:
    """Give up on what pieces cannot do."""
    if any(one.partial for one in partitioned):
        raise GivenUp("values that the source did not send")
    if len({one.dealer for one in partitioned}) > 1:
        raise GivenUp("executors with different releases of DuckDB")


def _check_sizes(written: Sequence[Written], most: int) -> None:
    """Give up on a file that the whole might refuse: its shares are smaller than it."""
    sizes: dict[int, int] = {}
    for number, size in (each for one in written for each in one.size):
        sizes[number] = sizes.get(number, 0) + size
    if max(sizes.values(), default=0) > most // 2:
        raise GivenUp("a file near the limit of its size")


def _check_rows(folded: Sequence[Folded], written: Sequence[Written]) -> None:
    """Give up unless exactly those rows were written that the fold had left."""
    left = sum(rows for one in folded for run in one.count for rows in run)
    if left != sum(one.rows for one in written):
        raise GivenUp("pieces that do not fit together")


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
            raise GivenUp("a key with rows in files of several tasks")
        once.append(tuple(some.once[part] for some in taken))
    return once


def _result(
    batch: TaskSpec,
    landed: Sequence[Sequence[Part]],
    partitioned: Sequence[Dealt],
    taken: Sequence[Taken],
    written: Sequence[Written],
) -> TaskResult:
    count, found = sum(one.rows for one in written), sum(one.rows for one in taken)
    updated = sum(one.updated for one in written)
    read = [(0, 0, 0, 0) for _ in batch.landed]
    for some, one in zip(landed, partitioned, strict=True):
        for part, rows in zip(some, one.rows, strict=True):
            a, b, c, d = read[part.number]
            read[part.number] = (a + rows[0], b + rows[1], c + rows[2], d + rows[3])
    return TaskResult(
        tuple(action for some in (taken, written) for one in some for action in one.actions),
        Counts(count - updated, updated, found - updated, sum(one.beyond for one in taken)),
        read=tuple(read),
        again=True,
    )
