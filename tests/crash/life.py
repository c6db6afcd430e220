"""The life of a mirror without a JVM, on a folder or a bucket.

Three tables are loaded. Ten days later there are changes, a key, a folder that was deleted, and all
that is due by then.
"""

from __future__ import annotations

import io
import json
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mirrorlake import root
from mirrorlake.app.loop.apply_loop import ApplyLoop
from mirrorlake.app.status import status_files
from mirrorlake.apply.in_process.tables import LogTables
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.landing import layout
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.model.crash_points import CrashPoint, no_crash
from mirrorlake.storage.store import Store
from mirrorlake.storage.urls import is_url, open_store
from tests.app.zones import MARKER
from tests.crash.entry import kill_at
from tests.crash.forked import forked
from tests.doubles.clock import SteppedClock
from tests.doubles.handmade_engine import HandmadeReader, in_process_engine

LATER, LATEST = 10, 20
"""Days after the load: beyond the retention of the cleanup folder, of dropped tables and of old
data files."""
SECONDS, STEP = 120, 20
"""For which a mirror lives, so that it drops the table of a deleted folder; between two cycles."""
TABLES = {
    "t": [(1, "new"), (2, "old"), (3, "old")],
    "other": [(1, "old"), (3, "old"), (4, "new")],
}
"""The rows at the end; the third table is gone."""


def live(location: str, days: str, point: str = "") -> None:
    """A mirror runs for two minutes, so many days after now; killed at a point."""
    store, clock = open_store(location), SteppedClock(datetime.now(UTC) + timedelta(int(days)))
    reached = kill_at(point) if point else no_crash
    engine = in_process_engine(store, reached, tables=LogTables(store, reached=reached))
    settings = MirrorSettings(cleanup_seconds=0)
    loop = ApplyLoop(store, engine, settings, clock, reached=reached)
    loop.open()
    assert not loop.once().errors
    for _cycle in range(SECONDS // STEP):
        clock.advance(STEP)
        loop.cycle(None)
    for path in engine.paths():
        engine.checkpoint(path)
    loop.close()


@dataclass(frozen=True)
class Life:
    """What lies at a location, which is a folder or a URL."""

    location: str

    @property
    def store(self) -> Store:
        return open_store(self.location)

    def begin(self) -> None:
        """Load three tables, of which the first has no key."""
        for name in ("t", "other", "gone"):
            self.describe(name, *(["id"] if name != "t" else []))
            for number in (1, 2, 3):
                self.land(name, number, {"id": [number], "v": ["old"], MARKER: [0]})
        live(self.location, "0")
        if not is_url(self.location):  # so old that a vacuum may remove them
            for path in Path(self.location, root.TABLES).rglob("*.*"):
                os.utime(path, (0, 0))

    def change(self) -> None:
        """Give the first table a key, change rows of both, and delete the folder of the third."""
        self.describe("t", "id")
        self.land("t", 4, {"id": [1], "v": ["new"], MARKER: [4]})
        self.land("other", 4, {"id": [2, 4], "v": [None, "new"], MARKER: [2, 0]})
        self.store.delete_folder(self.folder("gone"))

    def live(self, days: int) -> None:
        live(self.location, str(days))

    def killed(self, days: int, point: CrashPoint, passage: int = 1) -> None:
        ended = forked(live, self.location, str(days), f"{point}#{passage}")
        assert ended.code == -signal.SIGKILL, ended

    def folder(self, name: str) -> str:
        return f"{root.LANDING}/s.schema/{name}"

    def describe(self, name: str, *key: str) -> None:
        metadata = json.dumps({"keyColumns": key}).encode()
        self.store.replace(f"{self.folder(name)}/{layout.METADATA}", metadata)

    def land(self, name: str, number: int, columns: Mapping[str, Any]) -> None:
        content = io.BytesIO()
        pq.write_table(pa.table(columns), content)
        self.store.create(f"{self.folder(name)}/{number:020d}.parquet", content.getvalue())

    def assert_whole(self) -> None:
        """Each change was applied once, and all that was due is done and told."""
        store, reader = self.store, HandmadeReader(self.store)
        for name, rows in TABLES.items():
            path = f"Tables/s/{name}"
            log = TableLog.below(store, path)
            assert sorted(reader.rows(path)) == rows
            recorded = [
                action["txn"]["version"]
                for version in log.versions()
                for action in log.actions(version)
                if "txn" in action
            ]
            assert (recorded[-1], recorded.count(4)) == (4, 1)
            self._assert_clean(name)
        assert not store.list("Tables/s/gone").files
        lease = max(file.name for file in store.list(f"{root.LEASES}/mirror").files)
        assert json.loads(store.read(f"{root.LEASES}/mirror/{lease}"))["released"]
        assert json.loads(store.read(status_files.REPLICATOR))["status"] == "Stopped"
        told = json.loads(store.read(status_files.TABLES))["tables"]
        assert {table["sourceTableName"] for table in told} == TABLES.keys()

    def _assert_clean(self, name: str) -> None:
        """The last file is left; the one before lies aside, and those before that are removed."""
        aside = f"{self.folder(name)}/{layout.CLEANUP}"
        listed = [file.name for file in self.store.list(self.folder(name)).files]
        assert [one for one in listed if one.endswith("parquet")] == [f"{4:020d}.parquet"]
        left = {file.name for file in self.store.list(aside).files} - {layout.CLEANUP_INFO}
        assert left == {f"{3:020d}.parquet"}
        noted = json.loads(self.store.read(f"{aside}/{layout.CLEANUP_INFO}"))["files"]
        assert {file["name"] for file in noted} == left
