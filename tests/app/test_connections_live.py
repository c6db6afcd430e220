"""How many connections, slots and WAL senders of a server the mirror takes, as in
`docs/how-to/protect-the-source.md`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import psycopg
import pytest

from mirrorlake import root
from mirrorlake.capture.backfill.backfills import BackfillSettings
from mirrorlake.capture.backfill.jobs import BackfillJobState, BackfillRecords, BackfillRequest
from mirrorlake.capture.backfill.reading import ChunkLimits
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.landing import publish
from mirrorlake.model.clock import WallClock
from mirrorlake.sources.postgresql.source import PostgresSource
from mirrorlake.storage.local import LocalStore
from tests.capture.landing import landing_capture
from tests.conformance.scene import until
from tests.conftest import Database

pytestmark = pytest.mark.postgres

TABLES = [f"t{number}" for number in range(4)]
ROWS = 40_000
WORKERS = 3
PULSE = 1
TAKEN = """
select (select count(*) from pg_stat_activity
        where datname = current_database() and application_name like 'mirrorlake%'),
       (select count(*) from pg_replication_slots where database = current_database())
"""


class Most:
    """The most that was seen at the same time."""

    def __init__(self, database: Database) -> None:
        self._database, self._done = database, threading.Event()
        self.now = self.connections = self.slots = 0

    def forget(self) -> None:
        self.connections = self.slots = 0

    def look(self) -> None:
        with closing(psycopg.connect(self._database.url, autocommit=True)) as watching:
            while not self._done.is_set():
                ((self.now, slots),) = watching.execute(TAKEN).fetchall()
                self.connections = max(self.connections, self.now)
                self.slots = max(self.slots, slots)
                self._done.wait(0.002)

    @contextmanager
    def looking(self) -> Iterator[None]:
        thread = threading.Thread(target=self.look)
        thread.start()
        try:
            yield
        finally:
            self._done.set()
            thread.join()


def newest(store: LocalStore) -> int:
    """The number of the last file of a table."""
    file = publish.newest_file(store, f"{root.LANDING}/public.schema/t0")
    return file.number if file else 0


def test_the_mirror_takes_no_more_than_is_documented(database: Database, store: LocalStore) -> None:
    for table in TABLES:
        database.execute(
            f"create table {table} (id int primary key, note text)",
            f"insert into {table} select n, repeat('x', 200) from generate_series(1, {ROWS}) n",
        )
    stop, most, records = threading.Event(), Most(database), Records(store, root.LANDING)
    capture = landing_capture(
        PostgresSource(database.settings(part_bytes=1 << 20)),
        store,
        CaptureSettings(load_workers=WORKERS, watch_seconds=0.5),
        WallClock(),
        stop=stop,
        backfill=BackfillSettings(ChunkLimits(2000), look_seconds=0.05),
    )
    with closing(capture), most.looking():
        thread = threading.Thread(target=capture.run)
        thread.start()
        try:
            until(lambda: capture.loop is not None)
            assert 2 + 1 < most.connections <= 2 + 2 * WORKERS + PULSE
            assert most.slots <= 2
            until(lambda: most.now <= 2 + PULSE)
            most.forget()
            loaded = newest(store)
            database.execute("insert into t0 values (0, 'a change')")
            until(lambda: newest(store) > loaded)
            assert 2 <= most.connections <= 2 + PULSE
            assert most.slots == 1
            jobs = BackfillRecords(records)
            for table in TABLES:
                jobs.request(BackfillRequest(f"of-{table}", f"public.{table}"))
            until(lambda: {job.state for job in jobs.jobs()} == {BackfillJobState.COMPLETED})
            assert 2 + 1 < most.connections <= 2 + 2 * 4 + PULSE
            assert most.slots <= 1 + 2
        finally:
            stop.set()
            thread.join()
