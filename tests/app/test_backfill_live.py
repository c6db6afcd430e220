"""A backfill of a live PostgreSQL under load mends what differs, and is older than no change."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pyarrow.parquet as pq
import pytest

from mirrorlake import root
from mirrorlake.app.loop.apply_loop import ApplyLoop
from mirrorlake.capture.backfill.backfills import BackfillSettings
from mirrorlake.capture.backfill.jobs import BackfillJobState, BackfillRecords, BackfillRequest
from mirrorlake.capture.backfill.reading import ChunkLimits
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.errors import SourceUnavailable, TableAltered
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.model.clock import WallClock
from mirrorlake.model.crash_points import no_crash
from mirrorlake.model.keys import KeyRange
from mirrorlake.sources.postgresql.recognition.table_message import TableMessage
from mirrorlake.sources.postgresql.settings import PostgresSettings
from mirrorlake.sources.postgresql.source import PostgresSource
from mirrorlake.storage.local import LocalStore
from tests.capture.landing import landing_capture
from tests.conftest import Database
from tests.profiles import some
from tests.sim.engine import Lake, ModelledEngine, replayed

pytestmark = pytest.mark.postgres

TABLES = ("public.orders", "public.words", "public.parts")
SCHEMA = """
create table orders (id bigint primary key, note text, long text);
alter table orders alter column long set storage external;
create table words (word text, number numeric(8, 2), note text, primary key (word, number));
create table parts (id int, region text, note text, primary key (region, id))
    partition by list (region);
create table parts_a partition of parts for values in ('a', 'B');
create table parts_b partition of parts for values in ('ä', 'b');
insert into orders select g, 'note ' || g, repeat(md5(g::text), 99) from generate_series(1, 200) g;
insert into words select chr(64 + g), g / 4.0, 'w' from generate_series(1, 60) g;
insert into parts
    select g, (array['a', 'B', 'ä', 'b'])[1 + g % 4], 'p' from generate_series(1, 80) g;
"""


class Live:
    """A database with an application, its mirror, and whoever damages the mirror."""

    def __init__(self, folder: Path, database: Database, seed: int) -> None:
        self.database, self.store, self.random = database, LocalStore(folder), Random(seed)
        self.lake = Lake()
        self.jobs = BackfillRecords(Records(self.store, root.LANDING))
        database.execute(SCHEMA)

    def capture(self, seconds: float = 3.0) -> None:
        """Land everything, backfills too."""
        source = PostgresSource(PostgresSettings(self.database.url, slot=self.database.name))
        capture = landing_capture(
            source,
            self.store,
            CaptureSettings(load_workers=2, roll_seconds=0.05, debounce_seconds=0.01),
            WallClock(),
            backfill=BackfillSettings(
                ChunkLimits(30, seconds=seconds), look_seconds=0.0, retry_seconds=0.05
            ),
        )
        capture.open()
        capture.once()
        capture.close()

    def apply(self) -> None:
        engine = ModelledEngine(self.lake, self.store, self.random, no_crash, lost_answers=0.0)
        loop = ApplyLoop(self.store, engine, MirrorSettings(), WallClock())
        loop.open()
        report = loop.once()
        loop.close()
        assert not report.errors

    def ask(self, table: str, keys: tuple[str, str] | None = None) -> str:
        number = f"job-{len(self.jobs.jobs())}-{table.partition('.')[2]}"
        self.jobs.request(BackfillRequest(number, table, keys, None, number))
        return number

    def state(self, number: str) -> BackfillJobState:
        return next(job.state for job in self.jobs.jobs() if job.request.id == number)

    def damage(self) -> None:
        """Some rows of each table are lost, changed, doubled or invented; the feed tells it."""
        for table in self.lake.tables.values():
            rows = list(table.table.rows)
            self.random.shuffle(rows)
            double, changed = rows[0], rows[1]
            invented = [(*row[:-1], "invented") for row in rows[2:12]]
            now = [double, double, (*changed[:-1], "changed"), *invented, *rows[20:]]
            feed = Counter(("delete", row) for row in table.table.rows)
            feed.update(("insert", row) for row in now)
            table.table.rows = now
            table.feed.append(feed)
            table.version += 1

    @contextmanager
    def busy(self, *, unsent: bool = True) -> Iterator[None]:
        """Rows come, change, move to other keys and go, in several transactions at once.

        unsent: some updates leave out a long value; of a damaged row it could be taken nowhere.
        """
        done = threading.Event()
        workers = [
            threading.Thread(target=self._work, args=(Random(seed), done, unsent))
            for seed in range(3)
        ]
        for worker in workers:
            worker.start()
        try:
            yield
        finally:
            done.set()
            for worker in workers:
                worker.join()

    def _work(self, random: Random, done: threading.Event, unsent: bool) -> None:
        with psycopg.connect(self.database.url) as connection:
            while not done.is_set():
                with connection.transaction(), connection.cursor() as cursor:
                    try:
                        with connection.transaction():
                            self._write(random, cursor, unsent)
                    except (
                        psycopg.errors.UniqueViolation,
                        psycopg.errors.DeadlockDetected,
                        psycopg.errors.SerializationFailure,  # the row moved to another partition
                    ):
                        pass

    def _write(self, random: Random, cursor: psycopg.Cursor[Any], unsent: bool) -> None:
        key, other = random.randint(1, 220), random.randint(1, 220)
        letter = f"ascii(word) = {64 + key % 60}"
        region, long = random.choice("aBäb"), "long" if unsent else "'moved'"
        cursor.execute(
            random.choice(
                [
                    f"update orders set note = note || '!', long = long || 'y' where id = {key}",
                    f"delete from orders where id = {key}",
                    f"insert into orders values ({key}, 'new', repeat('z', 3000))",
                    f"update orders set note = '{random.random()}', long = {long} where id = {key}",
                    f"update orders set id = {other}, long = {long} where id = {key}",
                    f"update words set note = '{random.random()}' where {letter}",
                    f"delete from words where {letter}",
                    f"insert into words values (chr({64 + key % 60}), {key % 9} / 4.0, 'new')",
                    f"update parts set region = '{region}' where id = {key % 80}",
                    f"delete from parts where id = {key % 80}",
                    f"insert into parts values ({key % 80}, '{region}', 'new')",
                ]
            )
        )

    def check(self) -> None:
        for name in TABLES:
            schema, table = name.split(".")
            mirrored = self.lake.tables[f"Tables/{schema}/{table}"]
            query = f'select * from "{schema}"."{table}"'
            expected = Counter(self.database.sql.execute(query).fetchall())
            assert Counter(mirrored.table.rows) == expected
            assert replayed(mirrored) == expected


@pytest.mark.full
@pytest.mark.clause("ST-290")
@pytest.mark.parametrize("seconds", some([60.0, 0.0]))
def test_a_backfill_under_load_mends_whatever_differs(
    tmp_path: Path, database: Database, seconds: float
) -> None:
    live = Live(tmp_path, database, 1)
    live.capture()
    live.apply()
    live.damage()
    with live.busy(unsent=False):
        asked = [live.ask(table) for table in TABLES]
        live.capture(seconds)
    live.capture()
    live.apply()
    assert [live.state(number) for number in asked] == [BackfillJobState.COMPLETED] * 3
    live.check()


@pytest.mark.full
def test_a_backfill_of_equal_rows_leaves_no_trace(tmp_path: Path, database: Database) -> None:
    live = Live(tmp_path, database, 2)
    live.capture()
    live.apply()
    with live.busy():
        for table in TABLES:
            live.ask(table)
        live.capture()
    live.capture()
    live.apply()
    live.check()
    for table in live.lake.tables.values():
        assert table.backfilled
        assert not any(feed for _chunk, feed in table.backfilled)


@pytest.mark.full
def test_exchanged_names_of_an_idle_table_are_never_landed_under_each_other(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TableMessage, "write", lambda *_: None)  # as if it were not permitted
    live = Live(tmp_path, database, 3)
    live.capture()
    live.apply()
    database.execute(
        """
        begin;
        alter table orders rename note to other;
        alter table orders rename long to note;
        alter table orders rename other to long;
        commit;
        alter table words drop note;
        alter table words add note text default 'again';
        """
    )
    asked = [live.ask(table) for table in TABLES[:2]]
    before = {name: list(table.table.rows) for name, table in live.lake.tables.items()}
    live.capture()
    live.apply()
    assert [live.state(number) for number in asked] == [BackfillJobState.FAILED] * 2
    messages = {job.request.id: job.message for job in live.jobs.jobs()}
    assert "the columns of public.orders have changed" in messages[asked[0]]
    assert "since the stream described them" in messages[asked[0]]
    assert "note" in messages[asked[1]]
    assert before["Tables/public/orders"] == live.lake.tables["Tables/public/orders"].table.rows
    assert before["Tables/public/words"] == live.lake.tables["Tables/public/words"].table.rows
    database.execute("update orders set note = note || '!' where id = 1")
    again = live.ask("public.orders")
    live.capture()
    assert live.state(again) is BackfillJobState.COMPLETED
    found: list[tuple[Any, ...]] = []
    for path in sorted(tmp_path.glob(f"{root.LANDING}/public.schema/orders/*.parquet")):
        file = pq.ParquetFile(path)
        if file.metadata.metadata[b"mirrorlake.kind"] == b"backfill":
            found += [(row["id"], row["note"], row["long"]) for row in file.read().to_pylist()]
    query = "select id, note, long from orders"
    assert Counter(found) == Counter(database.sql.execute(query).fetchall())


@pytest.mark.full
def test_a_table_that_is_rewritten_behind_a_snapshot_is_read_from_another(
    database: Database,
) -> None:
    database.execute(SCHEMA)
    source = PostgresSource(PostgresSettings(database.url, slot=database.name))
    table = next(t for t in source.discover() if str(t.table) == "public.orders")
    snapshot = source.snapshot()
    database.execute("alter table orders alter note type text using note || '.'")
    with pytest.raises(SourceUnavailable, match="rewritten"):
        next(snapshot.ordered(table, KeyRange()))
    snapshot.close()
    other = replace(table, source_types={**table.source_types, "note": table.source_types["id"]})
    snapshot = source.snapshot()
    with pytest.raises(TableAltered, match="another type"):
        next(snapshot.ordered(other, KeyRange()))
    snapshot.close()
    snapshot = source.snapshot()
    rows = snapshot.ordered(table, KeyRange())
    next(rows)
    with pytest.raises(psycopg.errors.LockNotAvailable):
        database.execute("begin; set local lock_timeout = 100; alter table orders rename note to n")
    database.execute("rollback")
    rows.close()
    snapshot.close()
    database.execute("alter table orders rename note to n")
    source.close()
