"""What is asked of a backfill, and how far it says that it is."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow.parquet as pq
import pytest

from mirrorlake import root
from mirrorlake.app.status.backfills import sentence
from mirrorlake.capture.backfill import backfills, requests
from mirrorlake.capture.backfill.backfills import Backfills, BackfillSettings
from mirrorlake.capture.backfill.jobs import (
    BackfillJob,
    BackfillJobState,
    BackfillRecords,
    BackfillRequest,
)
from mirrorlake.capture.backfill.ranges import requested_range
from mirrorlake.capture.backfill.reading import ChunkLimits, ChunkReading, ReadChunk
from mirrorlake.capture.capture import Capture
from mirrorlake.capture.landing.writer import LandingWriter
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.errors import CannotBackfill, LeaseLost, SourceUnavailable, TableError, UsageError
from mirrorlake.model import types
from mirrorlake.model.crash_points import CrashHook, CrashPoint, no_crash
from mirrorlake.model.keys import KeyRange
from mirrorlake.model.landed import Footer, format_time
from mirrorlake.model.table import Column, Schema, TableId
from mirrorlake.model.types import LONG, STRING, DataType
from mirrorlake.sources.chunk import Alteration, SchemaChange, Transactions
from mirrorlake.sources.memory.database import MemoryDatabase
from mirrorlake.sources.memory.settings import MemorySettings
from mirrorlake.sources.memory.snapshot import MemorySnapshot
from mirrorlake.sources.memory.source import MemorySource
from mirrorlake.sources.table import SourceTable
from tests.capture.landing import landing_capture
from tests.doubles.clock import START, SteppedClock
from tests.doubles.memory_store import MemoryStore

COLUMNS = Schema.of([Column("id", LONG), Column("note", STRING)])
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Mirrored:
    """A database in memory with two tables that are landed."""

    def __init__(self, *, strict: bool = False) -> None:
        self.clock = SteppedClock()
        self.store = MemoryStore(self.clock)
        self.database = MemoryDatabase(self.clock)
        self.database.create("shop.orders", COLUMNS, ["id"])
        self.database.create("shop.log", COLUMNS)
        self.restarting_with: Callable[[], object] = lambda: None  # done once capture is open
        self.settings = CaptureSettings(load_workers=1, one_thread=True, strict=strict)
        self.jobs = BackfillRecords(Records(self.store, root.LANDING))
        with self.database.transaction() as write:
            for key in range(10):
                write.insert("shop.orders", id=key, note="old")
        self.run()

    def capture(self, reached: CrashHook = no_crash) -> Capture:
        return landing_capture(
            MemorySource(MemorySettings(self.database)),
            self.store,
            self.settings,
            self.clock,
            reached=reached,
            backfill=BackfillSettings(ChunkLimits(3)),
        )

    def run(self) -> None:
        capture = self.capture()
        capture.open()
        self.restarting_with()
        capture.once()
        capture.close()

    def backfilled(self, folder: str) -> list[dict[str, object]]:
        """The rows of the landed chunks of a folder."""
        found: list[dict[str, object]] = []
        for one in self.store.list(folder).files:
            if one.name.endswith(".parquet"):
                content = pq.ParquetFile(io.BytesIO(self.store.read(f"{folder}/{one.name}")))
                if b"backfill" in (content.metadata.metadata or {}).get(b"mirrorlake.kind", b""):
                    found += content.read().to_pylist()
        return found

    def landed(self, table: str) -> list[dict[str, object]]:
        """The rows of all landed files of a table."""
        folder = f"{root.LANDING}/shop.schema/{table}"
        files = [one for one in self.store.list(folder).files if one.name.endswith(".parquet")]
        found = [pq.read_table(io.BytesIO(self.store.read(f"{folder}/{f.name}"))) for f in files]
        return [row for one in found for row in one.to_pylist()]

    def told(self, folder: str) -> list[tuple[str, Alteration | None]]:
        """What the landed files say that they are, and that became of columns."""
        found = []
        for one in self.store.list(folder).files:
            if one.name.endswith(".parquet"):
                content = pq.ParquetFile(io.BytesIO(self.store.read(f"{folder}/{one.name}")))
                said = {k.decode(): v.decode() for k, v in content.metadata.metadata.items()}
                if footer := Footer.decode(said):
                    found.append((str(footer.kind), footer.alteration))
        return found

    def ask(self, table: str = "shop.orders", **options: object) -> BackfillJob:
        tables = ["shop.orders", "shop.log", "shop.gone"]
        where = options.pop("where_key", None)
        rate = options.pop("rate", None)
        return requests.request(self.jobs, tables, table, where, rate, NOW, **options)  # type: ignore[arg-type]

    def job(self) -> BackfillJob:
        (job,) = self.jobs.jobs()
        return job


@pytest.fixture
def mirrored() -> Mirrored:
    return Mirrored()


@pytest.mark.clause("ST-286")
def test_a_backfill_is_pending_until_one_of_two_others_has_ended(mirrored: Mirrored) -> None:
    tables = ["shop.orders", "shop.a", "shop.b"]
    for table in tables[1:]:
        mirrored.database.create(table, COLUMNS, ["id"])
    with mirrored.database.transaction() as write:
        for table in tables[1:]:
            for key in range(10):
                write.insert(table, id=key, note="old")
    mirrored.run()
    for number, table in enumerate(tables):
        request = BackfillRequest(f"{number}", table, requested=format_time(NOW))
        mirrored.jobs.request(request)
    capture = mirrored.capture()
    capture.open()
    seen: set[tuple[str, ...]] = set()
    while not all(job.state.is_over for job in mirrored.jobs.jobs()):
        capture.step(0.1)
        seen.add(tuple(sorted(str(job.state) for job in mirrored.jobs.jobs())))
    capture.close()
    assert ("ACTIVE", "ACTIVE", "PENDING") in seen
    assert ("ACTIVE", "ACTIVE", "ACTIVE") not in seen
    assert ("COMPLETED", "COMPLETED", "COMPLETED") in seen


@pytest.mark.clause("ST-284", "ST-288")
def test_a_backfill_says_how_far_it_is_and_that_it_is_done(mirrored: Mirrored) -> None:
    assert mirrored.ask().state is BackfillJobState.PENDING
    mirrored.run()
    job = mirrored.job()
    assert (job.state, job.rows, job.chunks) == (BackfillJobState.COMPLETED, 10, 4)
    assert job.as_facts()["state"] == "COMPLETED"
    assert job.seconds_left() is None


def test_a_limit_of_rows_per_second_is_kept(mirrored: Mirrored) -> None:
    mirrored.ask(rate=2)
    began = mirrored.clock.monotonic()
    mirrored.run()
    assert mirrored.job().rows == 10
    assert mirrored.clock.monotonic() - began >= 4.0


def test_a_limit_of_bytes_per_second_is_kept(mirrored: Mirrored) -> None:
    mirrored.ask(max_bytes_per_second=20)
    began = mirrored.clock.monotonic()
    mirrored.run()
    job, took = mirrored.job(), mirrored.clock.monotonic() - began
    assert job.rows == 10
    assert job.bytes > 100
    assert job.chunks >= 5  # no chunk is much more than a second's worth
    assert took >= (job.bytes - 60) / 20  # what is read last is not waited for


def test_the_next_chunk_is_read_before_one_is_landed(
    mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = threading.Semaphore(0)
    landed = 0

    class Reading(ChunkReading):
        def next(self) -> ReadChunk | TableError | SourceUnavailable:
            found = super().next()
            reads.release()
            return found

    def reached(point: CrashPoint) -> None:
        nonlocal landed
        if point is CrashPoint.BACKFILL_STAGED:
            landed += 1
            reads.acquire()
            if landed < 4:  # the one behind it
                assert reads.acquire(timeout=10)
                reads.release()

    monkeypatch.setattr(backfills, "ChunkReading", Reading)
    mirrored.ask()
    capture = mirrored.capture(reached)
    capture.open()
    capture.once()
    capture.close()
    assert (mirrored.job().state, landed) == (BackfillJobState.COMPLETED, 4)


def test_a_snapshot_is_not_held_open_while_nothing_may_be_read(
    mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_since: list[float] = []
    held: list[float] = []
    close = MemorySnapshot.close

    def closed(snapshot: MemorySnapshot) -> None:
        held.append(mirrored.clock.monotonic() - open_since[-1])
        close(snapshot)

    def taken(source: MemorySource) -> MemorySnapshot:
        open_since.append(mirrored.clock.monotonic())
        return MemorySnapshot(source._settings)

    monkeypatch.setattr(MemorySnapshot, "close", closed)
    monkeypatch.setattr(MemorySource, "snapshot", taken)
    mirrored.ask(rate=2)
    mirrored.run()
    assert mirrored.job().rows == 10
    assert len(held) >= 5
    assert max(held) <= 0.5


def test_columns_that_the_stream_has_yet_to_describe_are_waited_for(
    mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = 0

    def altered(source: MemorySource) -> MemorySnapshot:
        nonlocal taken
        taken += 1
        if taken == 1:
            columns = [(Column("id", LONG), "id"), (Column("text", STRING), "note")]
            with mirrored.database.transaction() as write:
                write.alter("shop.orders", columns)
                write.update("shop.orders", {"id": 1}, text="new")
        return MemorySnapshot(source._settings)

    monkeypatch.setattr(MemorySource, "snapshot", altered)
    mirrored.ask()
    mirrored.run()
    assert taken >= 2
    assert (mirrored.job().state, mirrored.job().rows) == (BackfillJobState.COMPLETED, 10)
    landed = f"{root.LANDING}/shop.schema/orders"
    rows = [row for row in mirrored.backfilled(landed) if row["id"] == 2]
    assert [(row.get("text"), "note" in row) for row in rows] == [("old", False)]


def test_columns_that_the_stream_never_describes_end_a_backfill(mirrored: Mirrored) -> None:
    table = mirrored.database.tables[TableId("shop", "orders")]
    renamed = Schema.of([Column("id", LONG), Column("text", STRING)])
    mirrored.restarting_with = lambda: setattr(
        table, "described", replace(table.described, schema=renamed)
    )
    mirrored.ask()
    mirrored.run()
    assert (mirrored.job().state, mirrored.job().chunks) == (BackfillJobState.FAILED, 0)
    assert "the columns of shop.orders have changed" in mirrored.job().message


def test_the_first_chunk_has_an_alteration_that_is_not_landed() -> None:
    mirrored = Mirrored()
    capture = mirrored.capture()
    capture.open()
    (writer,) = capture._writers
    assert isinstance(writer, LandingWriter)
    box = writer._outboxes[TableId("shop", "orders")]
    table = next(one for one in capture._tables.all if one.table.name == "orders")
    told = Alteration({"text": "note"})
    (point,) = [writer.durable]
    begun = Transactions([point], [None], [None], [""], is_open=True)
    box.alter(SchemaChange(table, 0, 0, told), begun, 0.0)
    mirrored.ask()
    capture.once()
    capture.close()
    assert (mirrored.job().state, mirrored.job().rows) == (BackfillJobState.COMPLETED, 10)
    folder = "Files/LandingZone/shop.schema/orders"
    assert [alteration for kind, alteration in mirrored.told(folder) if kind == "backfill"] == [
        told,
        *[None] * 3,
    ]


def test_a_row_that_was_read_again_is_landed_before_the_rest_goes_on_after_a_restart() -> None:
    mirrored = Mirrored()
    columns = [*((column, column.name) for column in COLUMNS), (Column("more", STRING), None)]
    with mirrored.database.transaction() as write:
        write.alter("shop.orders", columns, {"more": lambda row: f"of {row['id']}"})
        write.update("shop.orders", {"id": 5}, more="told")
    capture = mirrored.capture()
    capture.open()
    while not [job for job in mirrored.jobs.jobs() if job.chunks == 1]:
        capture.step(0.0)
    capture.close()
    with mirrored.database.transaction() as write:
        write.update("shop.orders", {"id": 0}, ["note"], more="later")
    mirrored.run()
    (job,) = mirrored.jobs.jobs()
    assert (job.state, job.rows) == (BackfillJobState.COMPLETED, 10)
    assert "later" in [row.get("more") for row in mirrored.landed("orders") if row["id"] == 0]


def test_a_range_reads_its_own_rows_only(mirrored: Mirrored) -> None:
    mirrored.ask(where_key=("3", "5"))
    mirrored.run()
    job = mirrored.job()
    assert (job.state, job.rows, job.expected) == (BackfillJobState.COMPLETED, 3, 3)


@pytest.mark.clause("ST-287")
def test_a_backfill_that_is_stopped_begins_anew_when_it_is_asked_for_again(
    mirrored: Mirrored,
) -> None:
    mirrored.ask()
    requests.stop(mirrored.jobs, "shop.orders")
    requests.stop(mirrored.jobs, "shop.orders")
    mirrored.run()
    assert (mirrored.job().state, mirrored.job().rows) == (BackfillJobState.STOPPED, 0)
    mirrored.ask()
    assert mirrored.job().state is BackfillJobState.PENDING
    mirrored.run()
    assert mirrored.job().state is BackfillJobState.COMPLETED


@pytest.mark.clause("ST-288")
@pytest.mark.parametrize(
    ("table", "where_key", "state", "said"),
    [
        ("shop.log", ("1", "2"), BackfillJobState.UNSUPPORTED, "only all of the table"),
        ("shop.gone", None, BackfillJobState.FAILED, "not captured"),
        ("shop.orders", ("a", "b"), BackfillJobState.UNSUPPORTED, "a bound is no value"),
        ("shop.orders", ("20", "3"), BackfillJobState.UNSUPPORTED, "the end is before the start"),
    ],
)
def test_what_cannot_be_backfilled_says_why(
    mirrored: Mirrored,
    table: str,
    where_key: tuple[str, str] | None,
    state: BackfillJobState,
    said: str,
) -> None:
    mirrored.ask(table, where_key=where_key)
    mirrored.run()
    assert mirrored.job().state is state
    assert said in mirrored.job().message
    assert said in sentence(mirrored.job())


def test_a_zone_for_other_engines_has_no_backfill() -> None:
    strict = Mirrored(strict=True)
    with pytest.raises(UsageError):
        strict.ask(refused=requests.refusal(strict=True))
    strict.ask()
    strict.run()
    assert strict.job().state is BackfillJobState.UNSUPPORTED


def test_a_wrong_request_leaves_nothing(mirrored: Mirrored) -> None:
    for wrong in ({"table": "shop.none"}, {"rate": 0}):
        with pytest.raises(UsageError):
            mirrored.ask(**wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        requests.stop(mirrored.jobs, "shop.orders")
    assert mirrored.jobs.jobs() == []


def test_a_table_has_one_backfill_at_a_time(mirrored: Mirrored) -> None:
    mirrored.ask()
    with pytest.raises(UsageError, match="already"):
        mirrored.ask()


def test_files_of_other_names_and_keys_that_cannot_be_read_are_passed_over(
    mirrored: Mirrored,
) -> None:
    job = mirrored.ask()
    folder = mirrored.jobs.folder
    mirrored.store.create(f"{folder}/UP.request.json", b"{}")
    assert mirrored.jobs.jobs() == [job]
    mirrored.jobs.write(job.now(NOW, state=BackfillJobState.ACTIVE, left={"low": "?"}))
    mirrored.run()
    assert (mirrored.job().state, mirrored.job().rows) == (BackfillJobState.COMPLETED, 10)


def test_the_time_left_follows_from_the_time_that_was_taken() -> None:
    job = BackfillJob(BackfillRequest("one", "t"), expected=300).now(START)
    job = job.now(START + timedelta(seconds=10), state=BackfillJobState.ACTIVE, rows=100)
    job = replace(job, bytes=4096, seconds=10.0)
    assert job.seconds_left() == 20.0
    said = "100 of about 300 rows (4.0 KiB) in 0 chunks, 10 rows/s (409 B/s), about 0:20 left"
    assert said in sentence(job)
    facts = job.as_facts()
    assert (facts["rows_per_second"], facts["bytes_per_second"]) == (10.0, 409.6)


def test_the_time_in_which_capture_did_not_run_does_not_count(mirrored: Mirrored) -> None:
    mirrored.ask(rate=1)
    capture = mirrored.capture()
    capture.open()
    while mirrored.job().rows < 3:
        capture.step(0.1)
    capture.close()
    before = mirrored.job()
    mirrored.clock.sleep(86_400)
    capture = mirrored.capture()
    capture.open()
    while mirrored.job().rows < 5:
        capture.step(0.1)
    capture.close()
    job = mirrored.job()
    assert before.seconds < job.seconds < 20
    assert job.seconds_left() == pytest.approx(5 * job.seconds / 5)


def test_the_record_of_an_earlier_release_gives_the_time_that_it_took() -> None:
    job = BackfillJob(BackfillRequest("one", "t"), expected=300).now(START)
    job = job.now(START + timedelta(seconds=10), state=BackfillJobState.ACTIVE, rows=100)
    record = asdict(job)
    del record["bytes"], record["seconds"]
    assert BackfillJob.parse(job.request, record).seconds_left() == 20.0


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (types.LONG, "-7", -7),
        (types.STRING, "a'b", "a'b"),
        (types.decimal(5, 2), "1.25", Decimal("1.25")),
        (types.DATE, "2026-02-03", date(2026, 2, 3)),
        (types.TIMESTAMP, "2026-02-03T04:05:06", datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)),
        (types.TIMESTAMP, "2026-02-03T04:05:06+01:00", datetime(2026, 2, 3, 3, 5, 6, tzinfo=UTC)),
        (types.BINARY, "\\x00ff", b"\x00\xff"),
        (types.BOOLEAN, "true", True),
    ],
)
def test_bounds_are_values_of_the_first_key_column(
    kind: DataType, text: str, value: object
) -> None:
    table = SourceTable(TableId("", "t"), Schema.of([Column("k", kind)]), ("k",), "1")
    found = requested_range(table, (text, text))
    assert found.is_closed
    assert found.low is not None
    (column,) = found.low.columns
    assert column.to_pylist() == [value]


UUID_TEXT = "c0eebc99-0010-4ef8-bb6d-6bb9bd380a11"
ANOTHER = "C0EEBC9900104EF8BB6D6BB9BD380A11"


@pytest.mark.parametrize("there", ["uuid", "order_id (uuid)"])
@pytest.mark.parametrize("text", [UUID_TEXT, UUID_TEXT.upper(), f"{{{UUID_TEXT}}}", ANOTHER])
def test_a_bound_of_uuids_is_as_the_rows_have_it(text: str, there: str) -> None:
    table = keyed_by_text(there)
    found = requested_range(table, (text, text))
    assert found.low is not None
    assert found.low["k"].to_pylist() == [UUID_TEXT]


@pytest.mark.parametrize("text", ["c", "", UUID_TEXT + "0"])
def test_a_text_that_is_no_uuid_is_refused(text: str) -> None:
    with pytest.raises(CannotBackfill, match="no value of its key column k, which is a uuid"):
        requested_range(keyed_by_text("uuid"), (text, text))


def keyed_by_text(there: str) -> SourceTable:
    schema = Schema.of([Column("k", STRING)])
    return SourceTable(TableId("", "t"), schema, ("k",), "1", {"k": there})


@pytest.mark.parametrize("text", ["", "x", "1" * 30])
def test_a_text_that_is_no_value_is_refused(text: str) -> None:
    table = SourceTable(TableId("", "t"), Schema.of([Column("k", LONG)]), ("k",), "1")
    assert requested_range(table, None) == KeyRange()
    with pytest.raises(CannotBackfill):
        requested_range(table, (text, "2"))


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        (LONG, "20", "3"),
        (types.decimal(5, 2), "10", "9.99"),
        (types.DATE, "2026-02-03", "2025-12-31"),
        (types.TIMESTAMP, "2026-02-03T04:00:00", "2026-02-03T04:00:00+01:00"),
        (types.BINARY, "ff", "00ff"),
        (types.BOOLEAN, "true", "false"),
        (STRING, "a", "B"),  # by bytes
    ],
)
def test_bounds_are_given_in_the_order_of_the_key(kind: DataType, low: str, high: str) -> None:
    table = SourceTable(TableId("", "t"), Schema.of([Column("k", kind)]), ("k",), "1")
    assert requested_range(table, (high, low)).is_closed
    with pytest.raises(CannotBackfill, match=r"the end is before the start .*: swap the bounds"):
        requested_range(table, (low, high))


def test_a_table_that_is_not_read_again_is_lost_although_the_stream_does_not_have_it() -> None:
    mirrored, lost = Mirrored(), list[TableId]()
    source = MemorySource(MemorySettings(mirrored.database))
    with ThreadPoolExecutor(1) as pool:
        backfills = Backfills(
            source.snapshot,
            mirrored.jobs,
            mirrored.clock,
            pool,
            lost=lambda table, _error: lost.append(table),
        )
        mirrored.jobs.require("shop.orders", "it was rewritten", NOW)
        assert backfills.is_done()
    assert mirrored.job().state is BackfillJobState.FAILED
    assert lost == [TableId("shop", "orders")]


def test_a_table_of_which_nothing_is_landed_is_not_stopped_by_a_reading(
    mirrored: Mirrored,
) -> None:
    mirrored.jobs.require("shop.gone", "it was rewritten", NOW)
    mirrored.run()
    assert mirrored.job().state is BackfillJobState.FAILED
    assert not mirrored.jobs.records.stopped()


def test_a_process_that_has_lost_its_lease_writes_no_job() -> None:
    mirrored = Mirrored()

    def lost() -> None:
        raise LeaseLost("another process captures here")

    source = MemorySource(MemorySettings(mirrored.database))
    with ThreadPoolExecutor(1) as pool:
        backfills = Backfills(source.snapshot, mirrored.jobs, mirrored.clock, pool, guard=lost)
        mirrored.jobs.request(BackfillRequest("1", "shop.gone", requested=format_time(NOW)))
        before = mirrored.jobs.jobs()
        with pytest.raises(LeaseLost):
            backfills.is_done()
    assert mirrored.jobs.jobs() == before
