"""Mirrored tables are compared with a live PostgreSQL at one position, while changes flow."""

from __future__ import annotations

import itertools
import json
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from structlog.testing import capture_logs

from mirrorlake.app.mirror import Mirror
from mirrorlake.app.verification.verify import Verification, VerifiedTable, VerifySettings, verify
from mirrorlake.apply.engine import Engine
from mirrorlake.capture.backfill.reading import ChunkLimits
from mirrorlake.capture.watch.snapshot_waits import SNAPSHOT_WAITS
from mirrorlake.config import Project, load
from mirrorlake.delta.file_cache import cache
from mirrorlake.errors import NotReached, UsageError
from mirrorlake.mirror.strategy import StrategySetting
from mirrorlake.model.clock import WallClock
from mirrorlake.sources.postgresql import connect
from mirrorlake.sources.postgresql.recognition.table_message import TableMessage
from mirrorlake.spark.engine import spark_engine
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.storage.lease import Lease
from mirrorlake.storage.local import LocalStore
from mirrorlake.storage.store import Store
from tests.app.applying import Applying
from tests.cli.conftest import run
from tests.conftest import Database
from tests.delta.handmade import HandmadeTable
from tests.doubles.handmade_engine import in_process_engine
from tests.objects import S3Server

__all__ = ["run"]

pytestmark = pytest.mark.postgres

SCHEMA = """
create table orders (
    id bigint primary key, amount numeric(12, 2), at timestamptz, ratio float8, data bytea,
    long text
);
alter table orders alter column long set storage external;
create table words (word text collate "C", number int, note text, primary key (word, number));
create table log (line text, value float8);
alter table log replica identity full;
insert into orders select g, g / 4.0, now(), case when g % 7 = 0 then 'nan' else 1 / g::float8 end,
    decode(md5(g::text), 'hex'), repeat(md5(g::text), 99) from generate_series(1, 500) g;
insert into words select chr(64 + g % 60), g, null from generate_series(1, 300) g;
insert into log select 'line ' || g % 50, 'nan' from generate_series(1, 100) g;
"""
WRITES = (
    "insert into orders (id, long) values ({n}, repeat('x', 9999)) on conflict do nothing",
    "update orders set amount = amount + 1 where id % 20 = {n} % 20",
    "update orders set id = id + 10000, long = 'moved' where id = {n}",
    "delete from orders where id = {n}",
    "update words set note = 'n{n}' where number % 10 = {n} % 10",
    "delete from words where number = {n}",
    "insert into log values ('line {n}', {n})",
    "delete from log where ctid in (select ctid from log limit 1)",
)


class Live:
    """A database and its mirror, as a project; the JVM is left out."""

    def __init__(
        self,
        folder: Path,
        database: Database,
        engine: Callable[[Store], Engine] = in_process_engine,
        **more: Any,
    ) -> None:
        """more: members of the project."""
        self.database, self.folder, self.engine = database, folder, engine
        database.execute(SCHEMA)
        source = {"type": "postgresql", "url": database.url, "slot": database.name}
        self.file = folder / "mirrorlake.yaml"
        self.file.write_text(json.dumps({"name": "v", "root": "lake", "source": source, **more}))
        self.project: Project = load(self.file)
        self.once()

    def once(self) -> None:
        Mirror(self.project).capture_once()
        loop = Applying(self.project, self.engine).loop(
            soft_deletes=self.project.mirror.soft_deletes
        )
        loop.open()
        try:
            assert not loop.once().errors
        finally:
            loop.close()

    @contextmanager
    def beside(self, work: Callable[[], None]) -> Iterator[None]:
        """Something is done again and again beside a verification."""
        done, errors = threading.Event(), list[BaseException]()

        def repeat() -> None:
            try:
                while not done.is_set():
                    work()
            except BaseException as error:  # noqa: BLE001  (raised below)
                errors.append(error)

        thread = threading.Thread(target=repeat)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
        assert not errors, errors

    def verify(self, *tables: str, **settings: Any) -> dict[str, VerifiedTable]:
        settings = {"timeout": 60.0, "limits": ChunkLimits(rows=70, whole=1_000), **settings}
        with self.beside(self.once):
            found = verify(
                self.project,
                tables,
                VerifySettings(**settings),
                WallClock(),
                threading.Event().wait,
            )
        return {table.table: table for table in found.tables}


@pytest.fixture
def live(tmp_path: Path, database: Database) -> Live:
    return Live(tmp_path, database)


@pytest.mark.clause("CF-085")
def test_tables_are_equal_while_changes_flow(live: Live) -> None:
    random = Random(85)

    def write() -> None:
        conflicts = (psycopg.errors.DeadlockDetected, psycopg.errors.UniqueViolation)
        with suppress(*conflicts), psycopg.connect(live.database.url) as connection:
            for _ in range(5):
                connection.execute(random.choice(WRITES).format(n=random.randint(1, 520)))

    with live.beside(write), live.beside(write):
        for _ in range(2):
            found = live.verify()
            assert set(found) == {"public.orders", "public.words", "public.log"}
            for table in found.values():
                assert table.is_equal, table.facts()
                assert table.found.source == table.found.mirrored > 0
            assert found["public.orders"].ranges > 3
    slots = "select count(*) from pg_replication_slots where temporary and database = %s"
    assert live.database.sql.execute(slots, [live.database.name]).fetchall() == [(0,)]


@pytest.mark.clause("CF-085")
def test_rows_that_differ_are_named(live: Live) -> None:
    damage(live)
    with live.beside(lambda: live.database.execute("insert into log values ('more', 1)")):
        found = live.verify("public.words", "public.orders", examples=2)
    orders = found["public.orders"].facts()
    assert not orders["equal"]
    assert (orders["source_rows"], orders["mirror_rows"]) == (500, 501)
    assert [orders[kind] for kind in ("missing", "extra", "different")] == [1, 2, 3]
    assert orders["examples"] == {
        "missing": [{"id": 20}],
        "extra": [{"id": 40}, {"id": 600}],
        "different": [{"id": 130}, {"id": 131}],
    }
    assert orders["columns"] == {"amount": 3}
    first, second = orders["differing_ranges"]
    assert (first["after"], first["upto"], first["missing"]) == (None, {"id": 70}, 1)
    assert (second["after"], second["upto"], second["different"]) == ({"id": 70}, {"id": 140}, 2)
    assert found["public.words"].is_equal


@pytest.mark.full
def test_a_range_of_the_key_is_compared(live: Live) -> None:
    damage(live)
    (equal,) = live.verify("public.orders", keys=("41", "129")).values()
    assert equal.is_equal, equal.facts()
    assert (equal.found.source, equal.found.mirrored, equal.ranges) == (89, 89, 2)
    (found,) = live.verify("public.orders", keys=("40", "130")).values()
    assert (found.found.missing, found.found.extra, found.found.different) == (0, 1, 1)
    (reversed_,) = live.verify("public.orders", keys=("130", "40")).values()
    assert "the end is before the start" in reversed_.unverified
    assert not reversed_.is_equal
    with pytest.raises(UsageError, match="a range of keys needs one table"):
        Mirror(live.project).verify(where_key=("1", "2"))
    (log,) = live.verify("public.log", keys=("1", "2")).values()
    assert "the table has no key" in log.unverified


@pytest.mark.full
def test_a_row_that_moves_without_its_large_value_is_not_compared_wrongly(live: Live) -> None:
    """It may be said that the table could not be compared, and never that it differs."""
    moves = itertools.count(1)

    def move() -> None:
        live.database.execute(f"update orders set id = id + 10000 where id = {next(moves)}")

    with live.beside(move):
        (found,) = live.verify("public.orders").values()
    assert found.found.count == 0, found.facts()
    assert found.is_equal or "a row moved into the range" in found.unverified


@pytest.mark.full
def test_the_command_says_it_and_ends_with_1(live: Live, run: Callable[..., Any]) -> None:
    damage(live)
    config = ("--config", str(live.file))
    with live.beside(live.once):
        done = run("verify", *config, "--json", "--max-rows-per-second", "5000")
        told = run("verify", "public.orders", "--where-key", "1", "500", *config)
        equal = run("verify", "public.words", *config)
    assert done.code == 1
    facts = done.facts()
    assert [(one["table"], one["equal"]) for one in facts["tables"]] == [
        ("public.log", True),
        ("public.orders", False),
        ("public.words", True),
    ]
    assert (equal.code, told.code) == (0, 1)
    assert "public.orders: missing: id=20" in told.out
    assert "public.orders: columns that differ: amount (3)" in told.out


@pytest.mark.full
@pytest.mark.clause("CF-085")
def test_rows_that_are_marked_as_deleted_are_not_extra(tmp_path: Path, database: Database) -> None:
    # Tables that are mirrored by whole rows have no soft deletes.
    source = {
        "type": "postgresql",
        "url": database.url,
        "slot": database.name,
        "tables": ["public.orders", "public.words"],
    }
    live = Live(tmp_path, database, mirror={"deletes": "soft"}, source=source)
    live.database.execute("delete from orders where id % 3 = 0", "delete from words")
    live.database.execute("update orders set id = id + 10000 where id = 7")
    found = live.verify()
    for name, rows in (("public.orders", 334), ("public.words", 0)):
        assert found[name].is_equal, found[name].facts()
        assert (found[name].found.source, found[name].found.mirrored) == (rows, rows)
    table = HandmadeTable(live.folder / "lake/Tables/public/orders")
    assert len(table.rows()) == 501  # those that are marked are there
    live.database.execute("insert into orders (id) values (3)")
    (back,) = live.verify("public.orders", keys=("1", "9")).values()
    assert back.is_equal, back.facts()


@pytest.mark.full
@pytest.mark.clause("CF-085")
def test_tables_in_a_bucket_are_compared(
    tmp_path: Path, database: Database, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.described(monkeypatch)
    bucket = s3.new_bucket()
    tables = {"url": f"{bucket}/shop", "endpoint": s3.endpoint, "region": "us-east-1"}
    live = Live(tmp_path, database, tables=tables)
    live.database.execute(*(write.format(n=40) for write in WRITES))
    found = live.verify()
    assert set(found) == {"public.orders", "public.words", "public.log"}
    for table in found.values():
        assert table.is_equal, table.facts()
    store = Applying(live.project).store
    files = store.list("Tables/public/words").files
    gone = next(file.name for file in files if file.name.endswith(".parquet"))
    store.delete(f"Tables/public/words/{gone}")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # as on a machine without the files
    cache.cache_clear()
    lost = live.verify("public.words", "public.orders")
    assert gone in lost["public.words"].unverified, lost["public.words"].facts()
    assert lost["public.orders"].is_equal


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.clause("CF-085")
def test_tables_that_spark_wrote_are_compared(
    tmp_path: Path, database: Database, spark: Spark
) -> None:
    """By `MERGE` and `OPTIMIZE`, with the encodings of Spark's own files."""

    def by_merge(store: Store) -> Engine:
        return spark_engine(spark, store, strategy=StrategySetting.MERGE)

    live = Live(tmp_path, database, by_merge)
    live.database.execute(*(write.format(n=40) for write in WRITES))
    live.once()
    location = live.folder / "lake/Tables/public/orders"
    spark.session.sql(f"optimize delta.`{location}`").collect()
    found = live.verify()
    for table in found.values():
        assert table.is_equal, table.facts()
        assert table.found.source > 0
    operations = {
        row.operation for row in spark.session.sql(f"describe history delta.`{location}`").collect()
    }
    assert {"MERGE", "OPTIMIZE"} <= operations


@pytest.mark.full
def test_a_mirror_that_does_not_run_is_not_compared(live: Live) -> None:
    with pytest.raises(NotReached, match=r"Keep `mirrorlake run` running"):
        Mirror(live.project).verify(timeout=0.5)
    with pytest.raises(UsageError, match=r"there is no table public\.nothing"):
        Mirror(live.project).verify(["public.nothing"])


@pytest.mark.parametrize("role", ["capture", "mirror"])
def test_a_cut_is_waited_for_while_a_process_may_make_or_show_it(live: Live, role: str) -> None:
    lease = Lease(LocalStore(live.folder / "lake"), role, WallClock())
    lease.take()
    waited: list[float] = []

    def pause(seconds: float) -> bool:
        waited.extend([seconds] if seconds else [])
        if len(waited) == 2:
            lease.release()
        return False

    with pytest.raises(NotReached, match="nothing is captured or applied here now, and no cut at"):
        verify(live.project, (), VerifySettings(), WallClock(), pause)
    assert waited == [0.5, 0.5]
    waited.clear()
    with pytest.raises(NotReached, match="nothing is captured or applied here now"):
        verify(live.project, (), VerifySettings(), WallClock(), pause)
    assert waited == []


@pytest.mark.full
def test_tables_without_ranges_of_their_key_are_compared(live: Live) -> None:
    live.database.execute(
        "create table array_key (id int[] primary key)",
        "create table float_key (id float8 primary key)",
        "insert into array_key values ('{1}')",
        "insert into float_key values (1)",
    )
    live.once()
    found = live.verify()
    assert all(one.is_equal for one in found.values())
    assert {"public.array_key", "public.float_key"} <= found.keys()


@pytest.mark.full
def test_a_mirrored_table_that_is_left_out_is_not_equal(live: Live) -> None:
    """It is refused now, or the source does not have it any more."""
    live.database.execute("drop table log", 'alter table words add "__bad" int')
    found = live.verify()
    assert found["public.orders"].is_equal
    assert "does not have it any more" in found["public.log"].unverified
    assert "has a reserved name" in found["public.words"].unverified
    (named,) = live.verify("public.log").values()
    assert not named.is_equal
    live.database.execute("drop table orders")
    assert not any(one.is_equal for one in live.verify().values())
    assert not Verification("0/1", 1, []).is_equal


@pytest.mark.full
def test_a_table_that_does_not_take_part_is_compared_only_by_its_name(
    tmp_path: Path, database: Database
) -> None:
    live = Live(tmp_path, database, mirror={"schema_change": {"table_created": "ignore"}})
    database.execute("create table later (id int primary key)")
    live.once()
    found = live.verify()
    assert found.keys() == {"public.orders", "public.words", "public.log"}
    assert all(one.is_equal for one in found.values())
    (named,) = live.verify("public.later").values()
    assert "it is left out" in named.unverified
    assert not named.is_equal


@pytest.mark.full
def test_a_table_that_was_dropped_is_compared_only_by_its_name(live: Live) -> None:
    live.database.execute("drop table log")
    live.once()
    found = live.verify()
    assert found.keys() == {"public.orders", "public.words"}
    assert all(one.is_equal for one in found.values())
    (named,) = live.verify("public.log").values()
    assert named.unverified == "it was dropped in the source"


@pytest.mark.full
def test_columns_that_were_renamed_only_in_case_are_compared(live: Live) -> None:
    live.database.execute('alter table words rename note to "Note"')
    live.database.execute('alter table words rename number to "NUMBER"')
    live.database.execute('alter table log rename line to "Line"')
    found = live.verify()
    for table in found.values():
        assert table.is_equal, table.facts()
    assert found["public.words"].ranges > 1


@pytest.mark.full
def test_a_range_in_which_the_mirror_has_far_more_rows_ends_the_table(live: Live) -> None:
    (path,) = (live.folder / "lake/Tables/public/orders").glob("*.parquet")
    rows = pq.read_table(path)
    pq.write_table(pa.concat_tables([rows] * 9), path)
    found = live.verify("public.orders", "public.words", limits=ChunkLimits(70, 200_000))
    assert "far more rows than the source" in found["public.orders"].unverified
    assert found["public.words"].is_equal


@pytest.mark.full
def test_a_damaged_data_file_is_named(live: Live) -> None:
    (path,) = (live.folder / "lake/Tables/public/orders").glob("*.parquet")
    content = path.read_bytes()
    found = {}
    for damaged in (
        content[: len(content) // 2],
        b"\0" * len(content),
        content[:9000] + b"?" * 9000 + content[18000:],
    ):
        path.write_bytes(damaged)
        found = live.verify("public.orders", "public.words")
        assert path.name in found["public.orders"].unverified, found["public.orders"].facts()
        assert found["public.words"].is_equal


@pytest.mark.full
def test_a_table_that_fails_in_the_middle_keeps_none_from_being_compared(
    live: Live, unwritten: None
) -> None:
    live.database.execute(
        "create table aaa_large (id bigint primary key, text text)",
        "insert into aaa_large select g, repeat(md5(g::text), 300) from generate_series(1, 3000) g",
    )
    live.once()
    live.database.execute("alter table aaa_large add more int")
    found = live.verify("public.aaa_large", "public.orders", "public.words")
    assert "does not have a column of the source" in found["public.aaa_large"].unverified
    assert found["public.orders"].is_equal, found["public.orders"].facts()
    assert found["public.words"].is_equal, found["public.words"].facts()


@pytest.mark.full
@pytest.mark.parametrize(
    ("alteration", "reason"),
    [
        ("alter table words rename word to term", "does not have a column of the source"),
        ("alter table words rename note to remark", "does not have a column of the source"),
        ("alter table words add more int", "does not have a column of the source"),
    ],
)
def test_columns_that_the_mirror_does_not_have_yet_are_named(
    live: Live, unwritten: None, alteration: str, reason: str
) -> None:
    live.database.execute(alteration)
    found = live.verify("public.orders", "public.words")
    assert reason in found["public.words"].unverified
    assert found["public.orders"].is_equal


@pytest.mark.full
def test_an_altered_table_without_rows_is_followed_and_compared(live: Live) -> None:
    live.database.execute(
        "alter table words add more int default 7", "alter table words rename note to remark"
    )
    found = live.verify("public.words")
    assert found["public.words"].is_equal, found["public.words"].facts()


@pytest.fixture
def unwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The role may not write to the log, so that alterations come with rows only."""
    monkeypatch.setattr(TableMessage, "write", lambda *_: None)


@pytest.mark.full
def test_a_table_can_be_altered_once_it_is_compared(live: Live) -> None:
    altered = []

    def alter(table: str, _rows: int, _expected: int | None) -> None:
        if table == "public.words" and not altered:
            with psycopg.connect(live.database.url, options="-c lock_timeout=2000") as other:
                other.execute("alter table orders add column more int")
            altered.append(table)

    with live.beside(live.once):
        found = Mirror(live.project).verify(progress=alter)
    assert altered
    assert found.is_equal, found.facts()


@pytest.mark.full
def test_a_transaction_that_does_not_end_is_waited_for_as_long_as_is_allowed(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "WAIT_SECONDS", 0.5)
    with psycopg.connect(live.database.url) as other, capture_logs() as logs:
        other.execute("delete from words")
        with pytest.raises(NotReached, match="took no snapshot in time"):
            Mirror(live.project).verify(timeout=5)
        process = f"process {other.info.backend_pid}"
        other.rollback()
    told = [entry["transaction"] for entry in logs if entry["event"] == SNAPSHOT_WAITS]
    assert process in told[0]
    assert live.verify("public.words")["public.words"].is_equal


def damage(live: Live) -> None:
    """Write into the mirrored table: a row has another key, one is there twice, three differ."""
    (path,) = (live.folder / "lake/Tables/public/orders").glob("*.parquet")
    rows = pq.read_table(path)
    name, amount = rows.column_names[:2]
    keys = rows[name].to_pylist()
    changed = [600 if key == 20 else key for key in keys]
    amounts = [
        value + 1 if key in {130, 131, 399} else value
        for key, value in zip(keys, rows[amount].to_pylist(), strict=True)
    ]
    for index, values in enumerate((changed, amounts)):
        field = rows.schema.field(index)
        rows = rows.set_column(index, field, pa.array(values, field.type))
    pq.write_table(pa.concat_tables([rows, rows.slice(keys.index(40), 1)]), path)
