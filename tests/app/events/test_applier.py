"""The loop that applies event files, how its tables stand, and what it leaves alone."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa

from mirrorlake import config
from mirrorlake.app.events.applying import EventApplier
from mirrorlake.model.crash_points import no_crash
from tests.apply.events.bucket import event


class Days:
    """A clock of which each wait is a day; it sets `stop` after some."""

    def __init__(self, days: int) -> None:
        self.stop, self._left = threading.Event(), days
        self._moment = datetime(2026, 11, 23, 12, tzinfo=UTC)

    def now(self) -> datetime:
        return self._moment

    def monotonic(self) -> float:
        return self._moment.timestamp()

    def sleep(self, seconds: float) -> None:
        self._moment += timedelta(days=1, seconds=seconds)
        self._left -= 1
        if self._left <= 0:
            self.stop.set()


def put(folder: Path, name: str, *events: Mapping[str, Any]) -> None:
    (folder / "bucket").mkdir(exist_ok=True)
    (folder / "bucket" / name).write_text("".join(f"{json.dumps(one)}\n" for one in events))


def project(folder: Path) -> Path:
    path = folder / "mirrorlake.yaml"
    path.write_text("name: t\nroot: ./lake\nsource: {type: events, url: ./bucket}\n")
    return path


def applier(folder: Path, days: int = 3) -> EventApplier:
    path, clock = project(folder), Days(days)
    return EventApplier(config.load(path), clock, clock.stop, no_crash)


def made_old(folder: Path) -> list[Path]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in files:
        os.utime(path, (0, 0))
    return files


def test_a_table_of_others_in_the_place_of_one_is_left_alone(tmp_path: Path) -> None:
    theirs = tmp_path / "lake/Tables/public/orders"
    theirs.mkdir(parents=True)
    for mode in ("append", "overwrite"):
        deltalake.write_deltalake(theirs, pa.table({"x": [1]}), mode=mode)
    files = made_old(theirs)
    put(tmp_path, "a.jsonl", event(1, {"id": 1}), event(1, {"id": 1}, table="others"))
    report = applier(tmp_path).run()
    assert {str(table): one.error is None for table, one in report.tables.items()} == {
        "public.orders": False,
        "public.others": True,
    }
    assert [path for path in files if path.exists()] == files
