"""Landing zones that somebody else fills, for tests of the whole apply."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mirrorlake.app.loop.apply_loop import ApplyLoop
from mirrorlake.app.loop.report import ApplyReport
from mirrorlake.mirror.engine import MirrorEngine
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.model.clock import Clock, WallClock
from mirrorlake.model.crash_points import CrashHook, no_crash
from mirrorlake.root import escaped
from mirrorlake.spark.engine import spark_engine
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.storage.local import LocalStore
from tests.delta.handmade import HandmadeTable
from tests.doubles.handmade_engine import in_process_engine

MARKER = "__rowMarker__"


class Zone:
    """A root with table folders, and a mirror on it, on Spark or else without a JVM."""

    def __init__(
        self, root: Path, spark: Spark | None = None, settings: MirrorSettings | None = None
    ) -> None:
        self.root, self.spark = root, spark
        self.settings = settings or MirrorSettings()

    @property
    def store(self) -> LocalStore:
        return LocalStore(self.root)

    def folder(self, table: str) -> Path:
        return self.root / "Files/LandingZone/s.schema" / table

    def table(self, name: str, *keys: str) -> None:
        self.folder(name).mkdir(parents=True)
        metadata = self.folder(name) / "_metadata.json"
        metadata.write_text(json.dumps({"keyColumns": list(keys)}))

    def land(self, name: str, number: int, columns: dict[str, Any]) -> Path:
        path = self.folder(name) / f"{number:020d}.parquet"
        pq.write_table(pa.table(columns), path)
        return path

    def loop(self, clock: Clock | None = None, reached: CrashHook = no_crash) -> ApplyLoop:
        store = self.store
        engine: MirrorEngine = in_process_engine(store, reached)
        if self.spark is not None:
            engine = spark_engine(self.spark, store, reached)
        return ApplyLoop(store, engine, self.settings, clock or WallClock(), reached=reached)

    def apply(self, action: Callable[[ApplyLoop], None] = lambda _loop: None) -> ApplyReport:
        """One `apply --once`; `act` is done while the lease is held."""
        loop = self.loop()
        loop.open()
        try:
            action(loop)
            return loop.once()
        finally:
            loop.close()

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        if self.spark is None:
            return sorted(HandmadeTable(self.root / "Tables/s" / escaped(name)).rows(), key=repr)
        path = str(self.root / "Tables/s" / escaped(name))
        found = self.spark.session.read.format("delta").load(path).collect()
        return sorted((tuple(row) for row in found), key=repr)
