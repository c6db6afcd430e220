"""How old changes are when they become readable in Delta, seen by a process outside of the mirror.

It waits for the next commit file of each table and reads the moments that the new rows carry.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

LOOK_SECONDS = 0.01
COLUMN, CHANGE = "sent_at", "_change_type"


@dataclass(frozen=True, slots=True)
class Ages:
    """Seconds of all new rows: p50, p99, the largest; and p50 of the first and the last third."""

    p50: float
    p99: float
    max: float
    first_third: float
    last_third: float

    @classmethod
    def of(cls, seen: Sequence[float], ages: Sequence[np.ndarray]) -> Ages:
        """seen: when each commit was, ages: of its rows."""
        every = np.sort(np.concatenate(ages))
        begin, end = min(seen), max(seen)
        third = (end - begin) / 3
        pairs = list(zip(seen, ages, strict=True))
        first = np.concatenate([a for s, a in pairs if s <= begin + third])
        last = np.concatenate([a for s, a in pairs if s >= end - third])
        p50, p99 = (float(every[math.ceil(share * len(every)) - 1]) for share in (0.5, 0.99))
        return cls(p50, p99, float(every[-1]), float(np.median(first)), float(np.median(last)))

    @property
    def growth(self) -> float:
        return self.last_third / self.first_third


class AgeReader:
    """The process. Begins with the commits after those that are there when it starts."""

    def __init__(self, tables: Sequence[Path]) -> None:
        context = multiprocessing.get_context("spawn")
        self._ours, theirs = context.Pipe()
        self._process = context.Process(target=_watch, args=(tables, theirs), daemon=True)
        self._process.start()
        self._ours.recv()

    def result(self) -> Ages:
        """Stop looking. Changes that are not readable by now do not count."""
        self._ours.send(None)
        seen, ages = self._ours.recv()
        self._process.join()
        return Ages.of(seen, ages)


def _watch(tables: Sequence[Path], pipe: Connection) -> None:
    following = {table: newest(table) + 1 for table in tables}
    seen: list[float] = []
    ages: list[np.ndarray] = []
    pipe.send(None)
    while not pipe.poll(LOOK_SECONDS):
        for table in tables:
            commit = table / "_delta_log" / f"{following[table]:020d}.json"
            if not commit.exists():
                continue
            moment = time.time()
            following[table] += 1
            for sent in _new(table, commit):
                micros = sent.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()
                seen.append(moment)
                ages.append(moment - micros / 1e6)
    pipe.recv()
    pipe.send((seen, ages))


def newest(table: Path) -> int:
    """The newest version of a table."""
    return max(int(found.stem) for found in (table / "_delta_log").glob("*.json"))


def _new(table: Path, commit: Path) -> Iterator[pa.ChunkedArray]:
    """The moments of the rows that a commit has changed: by its change files, or where it has none
    by its data files, whose rows are all new then."""
    actions = [json.loads(line) for line in commit.read_bytes().splitlines()]
    changed = [action["cdc"]["path"] for action in actions if "cdc" in action]
    added = [action["add"]["path"] for action in actions if action.get("add", {}).get("dataChange")]
    for path in changed:
        rows = pq.read_table(table / path, columns=[COLUMN, CHANGE])
        yield rows.filter(pc.is_in(rows[CHANGE], pa.array(["insert", "update_postimage"])))[COLUMN]
    for path in () if changed else added:
        yield pq.read_table(table / path, columns=[COLUMN])[COLUMN]
