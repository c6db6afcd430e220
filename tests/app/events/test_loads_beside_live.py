"""Large tables of a live source are loaded beside their changes into event files: the tables that
are made of these are those of the database."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from mirrorlake import config, root
from mirrorlake.app.mirror import Mirror
from mirrorlake.app.own_root import of_root
from mirrorlake.app.reset import plan_reset
from mirrorlake.capture.backfill import requests
from mirrorlake.capture.backfill.backfills import BackfillSettings
from mirrorlake.capture.backfill.jobs import BackfillJob, BackfillRecords
from mirrorlake.capture.backfill.reading import ChunkLimits
from mirrorlake.capture.capture import Capture
from mirrorlake.capture.events.settings import EventsSettings
from mirrorlake.capture.events.sink import EventsSink
from mirrorlake.capture.landing.sink import LandingSink
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.capture.sink import Sink
from mirrorlake.model.clock import WallClock
from mirrorlake.model.crash_points import CrashHook, CrashPoint
from mirrorlake.sources.postgresql.source import PostgresSource
from mirrorlake.sources.table import SourceTable
from mirrorlake.storage.local import LocalStore
from tests.app.evolving_database import Dying, EvolvingDatabase
from tests.apply.events.drawn_files import rows_of
from tests.conftest import Database
from tests.doubles.memory_store import Crash
from tests.events.values import decoded
from tests.profiles import some

pytestmark = pytest.mark.postgres

TABLES = (
    "create table apples (id int primary key, note text, long text)",
    "alter table apples alter column long set storage external",
    "insert into apples select g, 'old', repeat(md5(g::text), 99) from generate_series(1, 20) g",
    "create table pears (name text primary key)",
    "insert into pears values ('a'), ('b')",
    "analyze",
)
CHANGES = """
    update apples set note = 'new' where id in (3, 6, 18); update apples set id = 105 where id = 5;
    insert into apples values (21, 'new', 'short'); delete from apples where id in (4, 6, 17);
    update apples set id = 2 - id where id in (1, 2); insert into pears values ('c')
"""
MORE = """
    update apples set note = 'more' where id in (7, 19); delete from apples where id in (8, 20);
    insert into apples values (4, 'again', 'short'); delete from pears where name = 'a'
"""
SMALL = BackfillSettings(ChunkLimits(rows=5))
APPLES = "public.apples"


class Counting(PostgresSource):
    """Counts how often values are read that were not sent."""

    rereads = 0

    def reread(self, table: SourceTable, keys: pa.Table) -> pa.Table:
        Counting.rereads += 1
        return super().reread(table, keys)


@dataclass
class Beside:
    """A database, a stream of it into event files, and a consumer of these."""

    evolving: EvolvingDatabase
    folder: Path
    settings: CaptureSettings = CaptureSettings(  # noqa: RUF009  (it is frozen)
        load_workers=1, one_thread=True, roll_seconds=0.0, load_beside=1
    )
    guard_seconds: int = 1800  # of the consumer
    writes: bool = True

    @property
    def records(self) -> Records:
        return Records(self.evolving.store, root.LANDING)

    @property
    def bucket(self) -> Path:
        return self.folder / "bucket"

    def capture(self, dying: CrashHook | None = None, *, lands: bool = False) -> bool:
        """One process that takes everything. Returns whether it died. lands: into a landing zone
        as well."""
        try:
            with self.capturing(dying, lands=lands) as capture:
                capture.once()
        except Crash:
            return True
        return False

    @contextmanager
    def capturing(
        self, dying: CrashHook | None = None, *, lands: bool = False
    ) -> Iterator[Capture]:
        reached = dying or Dying()
        name = self.evolving.made
        source = Counting(self.evolving.database.settings(slot=name, publication=name))
        records = Records(self.evolving.store, root.LANDING, reached=reached)
        events = EventsSettings("apples", self.bucket)
        store, clock = LocalStore(self.bucket), WallClock()
        sinks: list[Sink] = []
        if lands:
            sinks.append(LandingSink(source, records, self.settings, reached))
        if self.writes:
            sinks.append(EventsSink(source, records, self.settings, events, store, clock, reached))
        capture = Capture(
            source,
            records,
            sinks,
            self.settings,
            clock,
            reached=reached,
            holder="c",
            backfill=SMALL,
        )
        with closing(capture):
            capture.open()
            yield capture

    def jobs(self) -> list[BackfillJob]:
        return BackfillRecords(self.records).jobs()

    def events(self) -> list[dict[str, Any]]:
        files = sorted(self.bucket.rglob("*.avro"))
        return [event for file in files for event in decoded(file.read_bytes())]

    def read(self, table: str = "apples") -> list[Any]:
        """The keys of the events of rows that were read."""
        mine = [e for e in self.events() if e["source_metadata"]["table"] == table]
        return [
            next(iter(event["payload"].values()))
            for event in mine
            if event["read_method"] == "postgresql-backfill"
        ]

    def check(self, *tables: str) -> None:
        """No event comes twice, and the tables that are made of them are those of the database."""
        ids = Counter(event["uuid"] for event in self.events())
        assert set(ids.values()) == {1}
        assert not self.evolving.stopped()
        reads = self.folder / "reads.yaml"
        reads.write_text(
            "name: reads\nroot: ./lake\nsource:\n  type: events\n  url: ./bucket\n"
            f"  guard_seconds: {self.guard_seconds}\n"
        )
        assert not Mirror(config.load(reads)).apply_once().errors
        for table in tables or ("apples", "pears"):
            with psycopg.connect(self.evolving.database.url) as connection:
                expected = Counter(connection.execute(f"select * from {table}").fetchall())
            path = self.folder / "lake/Tables/public" / table
            found = Counter(
                tuple(row.values())[: len(next(iter(expected)))] for row in rows_of(path)
            )
            assert found == expected, table


@pytest.fixture
def beside(database: Database, store: LocalStore, tmp_path: Path) -> Beside:
    evolving = EvolvingDatabase(database, store)
    evolving.run(*TABLES)
    return Beside(evolving, tmp_path)


@pytest.mark.crash
@pytest.mark.clause("ST-222", "ST-235", "ST-290")
@pytest.mark.parametrize(
    ("point", "passage"),
    some(
        [
            (CrashPoint.BACKFILL_RECORDED, 3),
            (CrashPoint.BACKFILL_REQUIRED, 1),
            (CrashPoint.LOADS_RECORDED, 1),
            (CrashPoint.LOAD_MANIFEST, 1),
            (CrashPoint.LOAD_PUBLISHED, 1),
            (CrashPoint.BACKFILL_BEGUN, 1),
            (CrashPoint.EVENTS_ASSIGNED, 3),
            (CrashPoint.EVENTS_WRITTEN_ONE, 3),
            (None, 1),
        ]
    ),
)
def test_a_load_that_is_killed_goes_on_behind_its_last_chunk(
    beside: Beside, point: CrashPoint | None, passage: int
) -> None:
    assert beside.capture(Dying(point, passage)) is (point is not None)
    before = beside.read()
    beside.evolving.run(CHANGES)
    beside.capture()
    beside.evolving.run(MORE)
    beside.capture()
    again = Counter(beside.read()) - Counter({*beside.read()})
    assert len(again) <= (5 if before else 0)
    beside.check()


@pytest.mark.clause("ST-215", "ST-218")
def test_rows_that_are_changed_while_they_are_read_lose_without_any_guard(beside: Beside) -> None:
    """They were read from the snapshot of the first chunk."""
    beside.guard_seconds = 0
    changes = (
        "update apples set note = 'later' where id > 7; delete from apples where id > 17; "
        "update apples set id = id + 40 where id in (9, 14)"
    )

    def changing(point: CrashPoint) -> None:
        nonlocal changes
        if point is CrashPoint.BACKFILL_RECORDED and changes:
            beside.evolving.run(changes)
            changes = ""

    beside.capture(changing)
    beside.check()


@pytest.mark.full
@pytest.mark.parametrize("first", ["event files", "landing zone"])
def test_a_destination_that_is_added_meanwhile_gets_all_rows(beside: Beside, first: str) -> None:
    """What was read for the first one is read again."""
    beside.writes = first == "event files"
    assert beside.capture(Dying(CrashPoint.BACKFILL_RECORDED, 3), lands=first == "landing zone")
    beside.evolving.run(CHANGES)
    beside.writes = True
    beside.capture(lands=True)
    beside.check()
    beside.evolving.apply()
    for table in ("apples", "pears"):
        beside.evolving.check(table)
    assert not beside.records.unloaded()


@pytest.mark.full
def test_a_table_that_one_destination_has_is_loaded_into_another_before_its_changes(
    beside: Beside,
) -> None:
    """As of a stream that an earlier release has begun, which recorded no loads."""
    beside.settings = replace(beside.settings, load_beside=None)
    beside.writes = False
    beside.capture(lands=True)
    beside.settings = replace(beside.settings, load_beside=1)
    beside.writes = True
    with beside.capturing(lands=True):
        beside.check()
    assert not beside.jobs()


@pytest.mark.full
def test_a_table_that_is_reset_meanwhile_is_read_from_the_beginning(beside: Beside) -> None:
    assert beside.capture(Dying(CrashPoint.BACKFILL_RECORDED, 3))
    shutil.rmtree(beside.bucket)
    plan_reset(of_root(beside.evolving.store.root), [APPLES, "public.pears"]).execute()
    beside.evolving.run(CHANGES)
    beside.capture()
    beside.check()


@pytest.mark.clause("ST-291")
@pytest.mark.crash
@pytest.mark.full
@pytest.mark.parametrize("point", [None, CrashPoint.BACKFILL_REQUIRED, CrashPoint.LOADS_RECORDED])
def test_only_tables_that_are_there_at_the_beginning_are_read_where_no_other_is(
    beside: Beside, point: CrashPoint | None
) -> None:
    """As in the streams of the API."""
    beside.settings = replace(beside.settings, load_joining=False)
    assert beside.capture(Dying(point)) is (point is not None)
    beside.capture()
    beside.evolving.run("create table plums (id int primary key); insert into plums values (1)")
    beside.evolving.run("analyze plums")
    beside.capture()
    beside.evolving.run("insert into plums values (2)", CHANGES)
    beside.capture()
    beside.check()
    assert {job.request.table for job in beside.jobs()} == {APPLES, "public.pears"}
    assert beside.records.unloaded() == {"public.plums"}


def test_tables_do_not_wait_for_a_large_one(beside: Beside) -> None:
    beside.evolving.run("create table tiny (id int primary key); insert into tiny values (1)")
    beside.evolving.run(
        "insert into apples select g, 'many', 'x' from generate_series(100, 9999) g"
    )
    beside.evolving.run("analyze")
    beside.settings = replace(beside.settings, load_beside=64 << 10)
    with beside.capturing():
        assert beside.records.unloaded() == {APPLES}
        beside.check("tiny", "pears")


@pytest.mark.full
def test_a_load_that_is_stopped_stops_its_table_until_it_is_reset(beside: Beside) -> None:
    jobs = BackfillRecords(beside.records)
    with beside.capturing():
        requests.stop(jobs, APPLES)
    beside.capture()
    facts = beside.records.stopped()[APPLES]
    assert "its rows are loaded beside its changes; reading it again ended" in facts["message"]
    assert f"mirrorlake reset {APPLES}" in facts["hint"]
    plan_reset(of_root(beside.evolving.store.root), [APPLES]).execute()
    beside.evolving.run(CHANGES)
    beside.capture()
    beside.check()


@pytest.mark.crash
@pytest.mark.full
def test_values_that_were_not_sent_are_read_once(
    beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert beside.capture(Dying(CrashPoint.BACKFILL_BEGUN))
    beside.evolving.run("update apples set note = 'new' where id = 3")
    monkeypatch.setattr(Counting, "rereads", 0)
    beside.capture()
    assert Counting.rereads == 1
    beside.check()
