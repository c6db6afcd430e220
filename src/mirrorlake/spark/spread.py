"""One large batch on many tasks, with the same effect as on one.

    deal    by landed files   read the rows, deal them out by their keys
    fold    by keys           net changes, data files; which keys to look for
    take    by table files    find these keys; images of what was there, deletion vectors
    tell    by keys           images of what is there now

The rows of a key meet in one part, in file and row order, and each file of the table is read by one
task, which writes its deletion vector: nothing of the table is read twice. What a piece cannot do
alone (values that the source did not send; keys with rows in files of several tasks; every error)
is left to the whole: the batch is given up here and done on one task, whose answer is then that of
all. A task that runs twice writes other files; only those that it names in the end are used.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
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
    Part,
    Taken,
    TakeSpec,
    TellSpec,
    Told,
)
from mirrorlake.spark.task import LandedPath, Spec, TaskResult, TaskSpec
from mirrorlake.spark.waves import Waves
from mirrorlake.storage.store import Store

log = structlog.get_logger()

SCRATCH = f"{layout.STATE}/scratch"
"""What tasks hand to each other, in a folder for each batch."""

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
        _check(dealt, self._batch.demands.file_bytes)
        changes = tuple(one.dealt for one in dealt)
        folded: list[Folded] = yield from self._wave(
            [FoldSpec(self._batch, self._folder, changes, part) for part in range(self._slots)]
        )
        taken: list[Taken] = yield from self._wave(self._taking(folded))
        told: list[Told] = yield from self._wave(self._telling(folded, taken))
        return [_result(self._batch, dealt, folded, taken, told)]

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
            for group in balanced(files, self._slots)
        ]

    def _telling(self, folded: Sequence[Folded], taken: Sequence[Taken]) -> list[TellSpec]:
        """The parts with rows, with what was found of their keys. Where nothing was, the data files
        say it all."""
        once = iter(_once(taken))
        found = [next(once, ()) if one.keys else () for one in folded]
        return [
            TellSpec(self._bare, self._folder, one.rows, one.sought, bitmaps)
            for one, bitmaps in zip(folded, found, strict=True)
            if one.count and any(some.rows for some in taken)
        ]


def shares(landed: Sequence[LandedPath], count: int) -> list[tuple[Part, ...]]:
    """Landed files and shares of files, in their order, in at most `count` runs of about the same
    size. Only Parquet is shared out."""
    target = max(1, -(-sum(file.size for file in landed) // count))
    runs: list[list[Part]] = [[]]
    taken = 0.0
    for number, file in enumerate(landed):
        pieces = 1 if file.text else max(1, round(file.size / target))
        for place in range(pieces):
            size = file.size / pieces
            if taken + size / 2 > target * len(runs) and runs[-1] and len(runs) < count:
                runs.append([])
            runs[-1].append(Part(number, file, Share(place, pieces)))
            taken += size
    return [tuple(run) for run in runs]


def balanced(files: Sequence[Mapping[str, Any]], count: int) -> list[tuple[Mapping[str, Any], ...]]:
    """Files in at most `count` groups, none empty: the largest first, each to the lightest."""
    groups: list[list[Mapping[str, Any]]] = [[] for _ in range(min(count, len(files)))]
    weight = [0] * len(groups)
    for file in sorted(files, key=lambda add: -int(add["size"])):
        lightest = weight.index(min(weight))
        groups[lightest].append(file)
        weight[lightest] += int(file["size"])
    return [tuple(group) for group in groups]


def _check(dealt: Sequence[Dealt], most: int) -> None:
    """Give up on what pieces cannot do, or would do otherwise than the whole."""
    if any(one.partial for one in dealt):
        raise _GivenUp("values that the source did not send")
    if len({one.dealer for one in dealt}) > 1:
        raise _GivenUp("executors with different releases of DuckDB")
    sizes: dict[int, int] = {}
    for number, size in (each for one in dealt for each in one.size):
        sizes[number] = sizes.get(number, 0) + size
    if max(sizes.values()) > most // 2:  # the limit is for what is read, and this is what came out
        raise _GivenUp("a file near the limit of its size")


def _once(taken: Sequence[Taken]) -> list[tuple[bytes, ...]]:
    """For each part that looked for keys the bitmaps of those that had one row in the table."""
    parts = range(len(taken[0].once) if taken else 0)
    for part in parts:
        found = [one.once[part] for one in taken] + [one.several[part] for one in taken]
        bitmaps = [BitMap.deserialize(one) for one in found]
        if len(BitMap.union(*bitmaps)) != sum(map(len, bitmaps)):
            raise _GivenUp("a key with rows in files of several tasks")
    return [tuple(one.once[part] for one in taken) for part in parts]


def _result(
    batch: TaskSpec,
    dealt: Sequence[Dealt],
    folded: Sequence[Folded],
    taken: Sequence[Taken],
    told: Sequence[Told],
) -> TaskResult:
    count, found = sum(one.count for one in folded), sum(one.rows for one in taken)
    updated = sum(one.updated for one in told)
    read = [(0, 0, 0, 0) for _ in batch.landed]
    for number, rows in (each for one in dealt for each in one.rows):
        a, b, c, d = read[number]
        read[number] = (a + rows[0], b + rows[1], c + rows[2], d + rows[3])
    return TaskResult(
        tuple(action for some in (folded, taken, told) for one in some for action in one.actions),
        Counts(count - updated, updated, found - updated, sum(one.beyond for one in taken)),
        read=tuple(read),
    )
