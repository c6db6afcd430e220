"""What is published, applied by the reference: the rows that a mirror would have."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mirrorlake.app.loop.apply_loop import ApplyLoop
from mirrorlake.landing import metadata
from mirrorlake.landing.metadata import Metadata
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.mirror.steps import AddColumns, SetKey
from mirrorlake.model.clock import Clock
from mirrorlake.model.crash_points import no_crash
from mirrorlake.model.landed import FileName
from mirrorlake.model.table import Schema
from mirrorlake.publisher import Publisher
from mirrorlake.storage.store import Store
from tests.doubles.clock import SteppedClock
from tests.doubles.memory_store import MemoryStore
from tests.sim.engine import Lake, LakeTable, ModelledEngine

ZONE = "Files/LandingZone"


class GrowingEngine(ModelledEngine):
    """Tables that get columns, and keys, as they come."""

    def add_columns(self, step: AddColumns) -> None:
        table = self.lake.tables[step.path]
        table.schema = Schema.of([*table.schema, *step.columns])
        table.table.rows = [row + (None,) * len(step.columns) for row in table.table.rows]

    def set_key(self, step: SetKey) -> None:
        table = self.lake.tables[step.path]
        table.key = step.key
        table.table.key = tuple(table.schema.names.index(name) for name in step.key)


class Zone:
    """A root, in memory unless another is given, its publishers, and the lake that mirrors it."""

    def __init__(self, store: Any = None) -> None:
        self.clock = SteppedClock()
        self.store = store or MemoryStore(self.clock)
        self.lake = Lake()

    def publisher(self, **options: Any) -> Publisher:
        return Publisher(self.store, clock=self.clock, **options)

    def folder(self, table: str) -> str:
        schema, _, name = table.rpartition(".")
        return f"{ZONE}/{schema}.schema/{name}" if schema else f"{ZONE}/{name}"

    def names(self, table: str) -> list[str]:
        """The data files of a table."""
        files = self.store.list(self.folder(table)).files
        return [file.name for file in files if not file.name.startswith("_")]

    def numbers(self, table: str) -> list[int]:
        return [name.number for text in self.names(table) if (name := FileName.parse(text))]

    def file(self, table: str, number: int = -1) -> pa.Table:
        """A published Parquet file, by default the last one."""
        name = self.names(table)[number - 1 if number > 0 else number]
        with self.store.open(f"{self.folder(table)}/{name}") as handle:
            return pq.read_table(handle)

    def text(self, table: str) -> bytes:
        return self.store.read(f"{self.folder(table)}/{self.names(table)[-1]}")

    def metadata(self, table: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.store.read(f"{self.folder(table)}/_metadata.json"))
        return found

    def described(self, table: str) -> Metadata:
        """The metadata as the mirror reads it."""
        content = self.store.read(f"{self.folder(table)}/_metadata.json")
        return metadata.decode(content, table=table, file="_metadata.json")

    def mirrored(self, table: str) -> LakeTable:
        apply(self.store, self.lake, self.clock)
        return self.lake.tables["Tables/" + table.replace(".", "/")]

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of the mirrored table, in the order of their values."""
        mirrored = self.mirrored(table)
        names = mirrored.schema.names
        rows = [dict(zip(names, row, strict=True)) for row in mirrored.table.rows]
        return sorted(rows, key=lambda row: repr(list(row.values())))


def apply(store: Store, lake: Lake, clock: Clock, *, cleanup_seconds: float = 1e9) -> None:
    """One `apply --once`; every table must be well."""
    clock.sleep(60)  # whoever held the lease is gone
    engine = GrowingEngine(lake, store, Random(0), no_crash, lost_answers=0.0)
    loop = ApplyLoop(store, engine, MirrorSettings(cleanup_seconds=cleanup_seconds), clock)
    loop.open()
    try:
        report = loop.once()
    finally:
        loop.close()
    assert not report.errors, report.errors
