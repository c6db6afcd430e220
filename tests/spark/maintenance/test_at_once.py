"""Batches, compaction, checkpoints, vacuum and readers of one table at the same time."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from structlog.testing import capture_logs

from mirrorlake import subscribe
from mirrorlake.app.loop.apply_loop import ApplyLoop
from mirrorlake.app.maintenance import file_maintenance, vacuum
from mirrorlake.mirror.compaction import small_files
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.model.change import Marker
from mirrorlake.model.clock import WallClock
from mirrorlake.spark.engine import spark_engine
from mirrorlake.spark.errors import RAISED
from mirrorlake.spark.session.spark_session import Spark
from tests.app.zones import MARKER, Zone
from tests.delta.readers import rows_by_duckdb
from tests.spark import reading

pytestmark = pytest.mark.spark

KEYS = 5_000
"""So many that no batch changes most of them, however many changes wait for it: all rows of a file
would be gone before there are enough files to be compacted."""

SECONDS = float(os.environ.get("MIRRORLAKE_SOAK_SECONDS", "30"))
"""`make soak` sets an hour."""

PAUSE = min(SECONDS / 1200, 0.5)
CATCH_UP = 180.0
"""Seconds for what is landed to be applied and read."""

MAINTAINED = {vacuum.TABLE_VACUUMED, file_maintenance.FILES_COMPACTED, "checkpoint_written"}
AWAITED = SECONDS + 600
"""Seconds for the mirror to have done each of these once, on a machine that is slow."""


class Accounts:
    """A table of accounts between which amounts are moved: every version has the sum 0. Beside them
    one row after another is inserted and deleted."""

    def __init__(self, root: Path) -> None:
        self.zone, self.path = Zone(root), root / "Tables/s/accounts"
        self.zone.table("accounts", "id")
        self.balance = dict.fromkeys(range(KEYS), 0)
        self._number = itertools.count(1)
        self._land([(key, 0, Marker.INSERT) for key in self.balance])

    def move(self) -> None:
        number = next(self._number)
        one, other = number % KEYS, (number * 7 + 1) % KEYS
        if one != other:
            self.balance[one] += number
            self.balance[other] -= number
        guest = KEYS + number
        changes = [(key, self.balance[key], Marker.UPSERT) for key in {one, other}]
        self.balance[guest] = 0
        changes.append((guest, 0, Marker.INSERT))
        if self.balance.pop(guest - 1, None) is not None and guest - 1 >= KEYS:
            changes.append((guest - 1, 0, Marker.DELETE))
        self._land(changes, number)

    def _land(self, changes: list[tuple[int, int, Marker]], number: int | None = None) -> None:
        ids, amounts, markers = zip(*changes, strict=True)
        columns = {"id": ids, "amount": amounts, MARKER: [int(one) for one in markers]}
        number = next(self._number) if number is None else number
        aside = self.zone.root / "aside.parquet"
        pq.write_table(pa.table(columns), aside)
        aside.replace(self.zone.folder("accounts") / f"{number:020d}.parquet")

    @property
    def rows(self) -> Counter[tuple[int, int]]:
        return Counter(self.balance.items())


class Follower:
    """The rows of the table, from its change feed alone."""

    def __init__(self, path: Path) -> None:
        self._path, self.rows = path, Counter[tuple[int, int]]()

    def run(self, ended: threading.Event) -> int:
        commits = 0
        with subscribe("follower", self._path, start="beginning") as changes:
            for delivery in changes.follow(ended.wait, 0.2):
                rows = self.rows.copy()
                for row in delivery.rows.to_pylist():
                    is_new = row["_change_type"] in {"insert", "update_postimage", "snapshot"}
                    rows[row["id"], row["amount"]] += 1 if is_new else -1
                assert min(rows.values()) >= 0
                check(list(rows.elements()))
                self.rows = +rows
                commits += 1
        return commits


def check(rows: list[tuple[Any, ...]]) -> None:
    """Rows are those of one version."""
    assert sum(amount for _id, amount in rows) == 0
    assert KEYS <= len(rows) <= KEYS + 1


def events(logs: list[Any]) -> set[str]:
    return {str(entry["event"]) for entry in list(logs)}


def polled(read: Callable[[], list[tuple[Any, ...]]], ended: threading.Event) -> int:
    """Read until the end. A file that was vacuumed meanwhile is an error, and never fewer rows.
    Returns how often the rows were read."""
    done = 0
    while not ended.wait(0.2):
        try:
            rows = read()
        except (*RAISED, duckdb.Error):
            continue
        check(rows)
        done += 1
    return done


@pytest.mark.full
@pytest.mark.timeout(AWAITED + 1_200)
@pytest.mark.clause("CF-095", "CF-156", "CF-187")
def test_every_reader_sees_whole_versions_while_files_are_replaced_and_removed(
    tmp_path: Path, spark: Spark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_files, "SMALLEST", 4)
    monkeypatch.setattr(file_maintenance, "CHECKPOINT_EVERY", 10)
    monkeypatch.setattr(vacuum, "INTERVAL", timedelta(seconds=2))
    monkeypatch.setattr(vacuum, "EVERY", 1.0)
    accounts, ended, followed = Accounts(tmp_path), threading.Event(), threading.Event()
    store, session = accounts.zone.store, spark.session
    settings = MirrorSettings(vacuum=timedelta(seconds=3))
    engine = spark_engine(spark, store)
    loop = ApplyLoop(store, engine, settings, WallClock(ended), stop=ended)
    follower = Follower(accounts.path)
    with capture_logs() as logs, ThreadPoolExecutor(5) as pool:
        loop.open()
        try:
            loop.once()
            mirror = pool.submit(loop.run)
            readers = [
                pool.submit(follower.run, followed),
                pool.submit(polled, lambda: reading.rows(session, accounts.path), ended),
                pool.submit(polled, lambda: rows_by_duckdb(accounts.path), ended),
            ]
            began = time.monotonic()
            while (passed := time.monotonic() - began) < AWAITED:
                if any(one.done() for one in (mirror, *readers)):
                    break
                if passed >= SECONDS and events(logs) >= MAINTAINED:
                    break
                accounts.move()
                time.sleep(PAUSE)
            until = time.monotonic() + CATCH_UP
            while follower.rows != accounts.rows and time.monotonic() < until:
                if any(one.done() for one in (mirror, *readers)):
                    break
                time.sleep(0.2)
        finally:
            ended.set()
            followed.set()
        mirror.result()
        loop.close()
        assert all(one.result() > 1 for one in readers)
    assert Counter(reading.rows(session, accounts.path)) == accounts.rows == follower.rows
    assert events(logs) >= MAINTAINED
