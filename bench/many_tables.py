"""Many small tables in one root: a folder, a first file and a Delta table for each.

The mirror makes the first table. The others are copies of it, under names and generations of their
own, because making a thousand tables says nothing of applying changes to them.
"""

from __future__ import annotations

import json
import re
import shutil
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from bench import equality
from mirrorlake.app.mirror import Mirror
from mirrorlake.config import Project
from mirrorlake.model.change import MARKER_COLUMN, Marker
from mirrorlake.model.landed import FileName

SCHEMA = "many"
COLUMNS = ("id", "stamp", "note")
GONE = -1
"""The stamp of a row that is deleted."""

_COMMIT = re.compile(r"\d{20}\.json")


@dataclass
class Table:
    """stamps: of each row, by its id, `GONE` for none; landed: when each file became visible, by
    its number."""

    name: str
    stamps: np.ndarray
    landed: dict[int, float] = field(default_factory=dict)

    @property
    def last(self) -> int:
        return max(self.landed)


class ManyTables:
    """Tables of `rows` rows each, below one root."""

    def __init__(self, root: Path, tables: int, rows: int) -> None:
        self.root = root
        self.tables = [Table(f"t{n}", np.zeros(rows, np.int64)) for n in range(tables)]

    def prepare(self, spark: SparkSession) -> None:
        """Every table made, with one file of rows applied."""
        first = self.tables[0]
        self._write(first, np.arange(len(first.stamps)), 0, None)
        with Mirror(Project.of_root(self.root), spark=spark) as mirror:
            mirror.apply_once()
        for table in self.tables[1:]:
            self._copy(first, table)

    def land(self, table: Table, ids: np.ndarray, stamp: int) -> None:
        """Publish a file that sets these rows to `stamp`, which no earlier file has used."""
        self._write(table, ids, stamp, np.full(len(ids), int(Marker.UPSERT)))
        table.stamps[ids] = stamp

    def change(
        self, table: Table, ids: np.ndarray, stamp: int, random: np.random.Generator
    ) -> None:
        """Publish a file that updates, deletes and brings back rows: one in ten is deleted."""
        gone = table.stamps[ids] == GONE
        delete = ~gone & (random.random(len(ids)) < 0.1)
        markers = np.where(delete, int(Marker.DELETE), int(Marker.UPSERT))
        self._write(table, ids, stamp, markers)
        table.stamps[ids] = np.where(delete, GONE, stamp)

    def is_equal(self, tables: Sequence[Table]) -> bool:
        """Whether these tables hold what was landed, row for row, as delta-rs reads them."""
        return all(self._is_equal(table) for table in tables)

    def ages(self, table: Table, after: int = 1) -> list[float]:
        """Seconds from the landing of each file beyond number `after` until its rows were readable;
        until now, of those that are not yet.

        A version is readable when the file of its commit is written.
        """
        now = time.time()
        found = {n: now - landed for n, landed in table.landed.items() if n > after}
        log = self.path(table) / "_delta_log"
        for commit in (file for file in log.iterdir() if _COMMIT.fullmatch(file.name)):
            first, last = _files(commit)
            for number in range(first, last + 1):
                if number in found:
                    found[number] = commit.stat().st_mtime - table.landed[number]
        return list(found.values())

    def path(self, table: Table) -> Path:
        return self.root / "Tables" / SCHEMA / table.name

    def folder(self, table: Table) -> Path:
        return self.root / "Files/LandingZone" / f"{SCHEMA}.schema" / table.name

    def _write(self, table: Table, ids: np.ndarray, stamp: int, markers: np.ndarray | None) -> None:
        folder = self.folder(table)
        if not table.landed:
            folder.mkdir(parents=True)
            (folder / "_metadata.json").write_text('{"keyColumns": ["id"]}')
        number = len(table.landed) + 1
        staged, final = folder / f"_{uuid.uuid4().hex}", folder / str(FileName(number))
        write(staged, ids, stamp, markers)
        table.landed[number] = time.time()
        staged.rename(final)

    def _copy(self, one: Table, other: Table) -> None:
        shutil.copytree(self.folder(one), self.folder(other), copy_function=_linked)
        other.landed = dict(one.landed)
        generation, log = str(uuid.uuid4()), self.path(one) / "_delta_log"
        target = self.path(other)
        shutil.copytree(
            self.path(one),
            target,
            copy_function=_linked,
            ignore=shutil.ignore_patterns("_delta_log", ".*.crc"),
        )
        (target / "_delta_log").mkdir()
        own = _generation(log)
        for file in (f for f in log.iterdir() if f.is_file() and not f.name.startswith(".")):
            text = file.read_text().replace(own, generation)
            text = text.replace(f"{SCHEMA}.schema/{one.name}", f"{SCHEMA}.schema/{other.name}")
            (target / "_delta_log" / file.name).write_text(text)

    def _is_equal(self, table: Table) -> bool:
        rows = equality.delta(self.path(table)).read_all()
        found = rows.select(["id", "stamp"]).sort_by("id")  # Arrow sorts no texts of delta-rs
        (expected,) = np.nonzero(table.stamps != GONE)
        return np.array_equal(found["id"], expected) and np.array_equal(
            found["stamp"], table.stamps[expected]
        )


def write(path: Path, ids: np.ndarray, stamp: int, markers: np.ndarray | None) -> Path:
    """A data file that gives these rows a stamp; without markers it holds first rows."""
    columns = {
        "id": pa.array(ids, pa.int64()),
        "stamp": pa.array(np.full(len(ids), stamp), pa.int64()),
        "note": pa.array([f"note {stamp}"] * len(ids)),
    }
    if markers is not None:
        columns[MARKER_COLUMN] = pa.array(markers, pa.int8())
    pq.write_table(pa.table(columns), path)
    return path


def _files(commit: Path) -> tuple[int, int]:
    """The landed files of a commit; none: (1, 0)."""
    for line in commit.read_text().splitlines():
        said = json.loads(line).get("commitInfo", {}).get("userMetadata")
        if said:
            first, last = json.loads(said)["files"]
            return first, last
    return 1, 0


def _generation(log: Path) -> str:
    found = re.search(r'mirrorlake\.generation":"([^"]+)"', (log / f"{0:020d}.json").read_text())
    assert found is not None
    return found[1]


def _linked(source: str, target: str) -> None:
    Path(target).hardlink_to(source)
