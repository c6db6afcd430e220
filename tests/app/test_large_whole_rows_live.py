"""Tables without a key that do not fit into memory are read again in pieces, while rows change."""

from __future__ import annotations

import errno
import itertools
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

import psycopg
import pytest

from mirrorlake import read_feed, root
from mirrorlake.capture import capture
from mirrorlake.capture.backfill import reading, stored_rows
from mirrorlake.capture.backfill.backfills import BackfillSettings
from mirrorlake.capture.backfill.jobs import BackfillJobState, BackfillRecords, BackfillRequest
from mirrorlake.capture.backfill.reading import ChunkLimits
from mirrorlake.capture.executors import ReadingThreads
from mirrorlake.capture.records.records import Records
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.model.keys import KeyRange
from mirrorlake.sources.postgresql.snapshot import PostgresSnapshot
from mirrorlake.sources.table import SourceTable
from mirrorlake.storage.local import LocalStore
from tests.app.evolving_database import Dying, EvolvingDatabase
from tests.conftest import Database
from tests.profiles import some, tries

pytestmark = pytest.mark.postgres

_temporary = tempfile.TemporaryFile

TABLE = (
    "create table apples (a int, b text, c numeric(9, 2), d timestamptz, e float8)",
    "alter table apples replica identity full",
    """insert into apples select n % 97, repeat('x', n % 7), n % 5 + 0.5,
    timestamptz '2026-01-01' + n % 11 * interval '1 s', n % 3 from generate_series(1, 3000) n""",
    "create table log (id int primary key)",
)
DIFFERENT = "alter table apples add column f int default random() * 1000"
AGAIN = [
    CrashPoint.BACKFILL_REQUIRED,
    CrashPoint.BACKFILL_PUBLISHED,
    CrashPoint.BACKFILL_RECORDED,
    CrashPoint.CUT_WRITTEN,
]


@pytest.fixture
def large(database: Database, store: LocalStore) -> EvolvingDatabase:
    """Its table without a key is read in pieces."""
    limits = ChunkLimits(whole=20_000, seconds=0.0)
    return EvolvingDatabase(
        database, store, backfill=BackfillSettings(limits, look_seconds=0.0, retry_seconds=0.05)
    )


def chunks(large: EvolvingDatabase) -> int:
    return max(job.chunks for job in large.jobs())


def changed(large: EvolvingDatabase) -> int:
    """The rows of the feed since the beginning."""
    feed = read_feed(large.store.location("Tables/public/apples"), from_version=0)
    return sum(commit.rows.num_rows for part in feed.ranges for commit in feed.commits(part))


def changes(seed: int) -> Iterator[str]:
    """Of rows that are equal to others, and of some that are not."""
    chance = random.Random(seed)
    while True:
        a, other = chance.randrange(97), chance.randrange(97)
        one = f"(select min(ctid) from apples where a = {a})"
        yield chance.choice(
            [
                f"insert into apples (a, b) values ({a}, 'new'), ({a}, 'new')",
                f"delete from apples where ctid = {one}",
                f"update apples set a = {other} where ctid = {one}",
                f"update apples set b = b || 'y' where a = {a}",
                f"delete from apples where a = {a}; insert into apples (a) values ({other})",
            ]
        )


@contextmanager
def busy(large: EvolvingDatabase, seed: int) -> Iterator[None]:
    """Somebody changes rows until the block ends."""
    done = threading.Event()

    def work() -> None:
        with psycopg.connect(large.database.url, autocommit=True) as connection:
            for change in changes(seed):
                if done.wait(0.002):
                    return
                connection.execute(change)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield
    finally:
        done.set()
        worker.join()


def ask(large: EvolvingDatabase) -> None:
    request = BackfillRequest("asked", "public.apples", requested="2026-01-01T00:00:00Z")
    BackfillRecords(Records(large.store, root.LANDING)).request(request)


@pytest.mark.full
@pytest.mark.parametrize("point", [None, *some(AGAIN, 1)])
def test_it_has_the_rows_of_its_source_while_they_change(
    large: EvolvingDatabase, point: CrashPoint | None
) -> None:
    large.begin(*TABLE)
    with busy(large, 1):
        large.run(DIFFERENT)
        for number in range(3):
            large.capture(Dying(point, 1 + number) if point else None)
            large.apply()
    large.capture()
    large.apply()
    large.check("apples")
    assert chunks(large) > 5


@pytest.mark.full
@pytest.mark.parametrize("seed", some(range(tries(4, long=40)), 2))
def test_it_may_be_altered_while_it_is_read(large: EvolvingDatabase, seed: int) -> None:
    large.begin(*TABLE)
    chance, own = random.Random(seed), changes(seed)
    alterations = [
        "alter table apples add column g int default 7",
        "alter table apples alter c type numeric(20, 4)",
        "alter table apples alter a type text using 'a' || a",
        "alter table apples rename b to h",
        "alter table apples drop column e",
        "truncate apples",
        "alter table apples add column i float8 default random()",
    ]
    large.run(DIFFERENT)
    for alteration in chance.sample(alterations, 3):
        point = chance.choice(AGAIN)
        large.capture(Dying(point, chance.randint(1, 4)))
        large.apply()
        for _ in range(5):
            with suppress(psycopg.errors.Error):  # the columns are other ones by now
                large.run(next(own))
        large.run(alteration)
    large.capture()
    large.apply()
    large.check("apples")


NEW_COLUMN = [
    "alter table apples drop column e",
    "insert into apples (a) values (2)",
    "alter table apples add column e float8",
    "insert into apples (a) values (3)",
]
OTHER_VALUES = "alter table apples alter c type numeric(9, 2) using c + 1"


@pytest.mark.full
@pytest.mark.parametrize("is_crash", some([True, False], 1))
def test_a_new_column_under_a_former_name_is_no_reason_to_leave_rows_out(
    large: EvolvingDatabase, is_crash: bool
) -> None:
    """Names and types are as before, but the hashes of all rows are other ones."""
    large.begin(*TABLE)
    large.run(OTHER_VALUES, "insert into apples (a) values (1)")
    recorded = itertools.count(1)

    def alters(point: CrashPoint) -> None:
        if point is CrashPoint.BACKFILL_RECORDED and next(recorded) == 4:
            large.run(*NEW_COLUMN)

    if is_crash:
        assert large.capture(Dying(CrashPoint.BACKFILL_RECORDED, 4))
        large.apply()
        large.run(*NEW_COLUMN)
    large.capture(None if is_crash else alters)
    large.apply()
    large.check("apples")
    assert chunks(large) > 5


@pytest.mark.full
def test_a_table_that_lacks_columns_is_not_read_in_pieces(large: EvolvingDatabase) -> None:
    """They are part of the hashes at the source."""
    large.ignores = True
    large.begin(*TABLE)
    large.run("alter table apples add column z int", "update apples set z = a where a < 50")
    large.capture()
    large.apply()
    ask(large)
    large.capture()
    large.apply()
    (job,) = BackfillRecords(Records(large.store, root.LANDING)).jobs()
    assert job.state is BackfillJobState.UNSUPPORTED
    assert "too large" in job.message


@pytest.mark.full
def test_a_table_that_changes_too_fast_is_read_once_at_a_time(
    large: EvolvingDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = ChunkLimits(whole=20_000, seconds=0.0)
    large.backfill = BackfillSettings(limits, look_seconds=0.0, window_bytes=3_000)
    large.begin(*TABLE)
    read, under_way = PostgresSnapshot.ordered, list[int]()

    def slow(self: PostgresSnapshot, table: SourceTable, keys: KeyRange) -> Iterator[Any]:
        under_way.append(1)
        try:
            for found in read(self, table, keys):
                time.sleep(0.5)
                yield found
        finally:
            under_way.append(-1)

    monkeypatch.setattr(PostgresSnapshot, "ordered", slow)
    monkeypatch.setattr(capture, "InTurn", ReadingThreads)
    ask(large)
    with large.running(), psycopg.connect(large.database.url, autocommit=True) as connection:
        for _ in range(30):
            connection.execute("insert into apples select n, 'w' from generate_series(1, 60) n")
            time.sleep(0.1)
        (job,) = BackfillRecords(Records(large.store, root.LANDING)).jobs()
        assert job.message == "its table changes faster than it is read"
    assert max(itertools.accumulate(under_way)) == 1
    large.backfill = BackfillSettings(limits, look_seconds=0.0)
    large.capture()
    large.apply()
    large.check("apples")
    assert chunks(large) > 5


def test_equal_rows_leave_no_trace(large: EvolvingDatabase) -> None:
    large.begin(*TABLE)
    before = changed(large)
    ask(large)
    large.capture()
    large.apply()
    assert chunks(large) > 5
    assert changed(large) == before == 3_000
    large.check("apples")


@pytest.mark.full
def test_a_full_disk_delays_the_backfill_alone(
    large: EvolvingDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    large.begin(*TABLE)
    ask(large)
    failures = [OSError(errno.ENOSPC, "No space left on device")] * 2

    def temporary() -> IO[bytes]:
        if failures:
            raise failures.pop()
        return _temporary()

    monkeypatch.setattr(stored_rows.tempfile, "TemporaryFile", temporary)
    large.live(["insert into log values (1)"], each=False)
    assert not failures
    large.check("log")
    large.check("apples")
    assert chunks(large) > 5


@pytest.mark.full
def test_too_many_equal_rows_are_refused(
    large: EvolvingDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "LARGEST_WHOLE", 10_000)
    large.begin(*TABLE, "insert into apples select 1, 'same' from generate_series(1, 2000)")
    ask(large)
    large.capture()
    (job,) = BackfillRecords(Records(large.store, root.LANDING)).jobs()
    assert job.state is BackfillJobState.UNSUPPORTED
    assert "more than 512 MiB of rows" in job.message
