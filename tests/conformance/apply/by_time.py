"""Timestamp mode: batches are counted, and the names of their files recorded."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

from mirrorlake.landing.metadata import BY_TIME as TIMESTAMP_MODE
from mirrorlake.mirror.engine import AlreadyApplied, Conflicted
from mirrorlake.model import types
from tests.conformance.apply.scenario import Lands, Played, Scenario, upsert
from tests.histories import Shape
from tests.reference import Row

SHAPE = Shape.of(["id"], id=types.LONG, note=types.STRING)
ODD = "注文 2026'\"`%\n.parquet"

A, B = {"a.parquet": [upsert(1, "x")]}, {"b.parquet": [upsert(2, "x")]}


def by_time(
    name: str, clauses: list[str], *batches: Lands, rows: list[Row], then: Callable[[Played], None]
) -> Scenario:
    return Scenario(
        name, clauses, SHAPE, batches, rows, detection=TIMESTAMP_MODE, version=None, then=then
    )


def has_batches(*names: tuple[str, ...]) -> Callable[[Played], None]:
    """These are told, by every engine, and beyond each number."""
    return partial(_has_batches, names)


def _has_batches(names: tuple[tuple[str, ...], ...], played: Played) -> None:
    assert played.progress.detection == TIMESTAMP_MODE
    every = list(enumerate(names, start=1))
    for engine in (played.table.engine, played.another):
        for after in range(len(names) + 1):
            told = engine.named_batches(played.table.path, after)
            assert [(batch.number, batch.names) for batch in told] == every[after:]
    (*_, last) = played.another.named_batches(played.table.path, 0)
    assert last.version == played.progress.version


def says_which_files_it_holds(played: Played) -> None:
    said = played.table.reader.commit(played.table.path, played.applied.version)["userMetadata"]
    said = json.loads(said)
    assert (said["files"], said["names"]) == ([1, 1], ["b.parquet", "a.parquet"])


BY_TIME = [
    by_time(
        "rows, number and names are one commit",
        ["LZ-258"],
        Lands({"z.parquet": [upsert(1, "a")], ODD: [upsert(1, "b")]}),
        rows=[(1, "b")],
        then=has_batches(("z.parquet", ODD)),
    ),
    by_time(
        "batches are told beyond a number",
        [],
        *(Lands({f"{n}.parquet": [upsert(n, "x")]}) for n in (1, 2, 3)),
        rows=[(n, "x") for n in (1, 2, 3)],
        then=has_batches(*((f"{n}.parquet",) for n in (1, 2, 3))),
    ),
    *(
        by_time(
            f"a counted batch that leaves {what} is refused",
            [],
            Lands(A),
            Lands(B, first=first, outcome=outcome),
            rows=[(1, "x")],
            then=has_batches(("a.parquet",)),
        )
        for what, first, outcome in (
            ("no number out, but repeats one", 1, AlreadyApplied),
            ("a number out", 3, Conflicted),
        )
    ),
    by_time(
        "the commit says the names of its files",
        ["LZ-258"],
        Lands({"b.parquet": [upsert(1, "x")], "a.parquet": [upsert(2, "x")]}),
        rows=[(1, "x"), (2, "x")],
        then=says_which_files_it_holds,
    ),
]
