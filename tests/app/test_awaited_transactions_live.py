"""A transaction of others that does not end keeps a snapshot from being taken, and is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial

import psycopg
import pytest
from psycopg import sql
from structlog.testing import capture_logs

from mirrorlake import root
from mirrorlake.app.status import mirror_status
from mirrorlake.app.status.outage import sentence
from mirrorlake.capture.backfill.jobs import BackfillRecords, BackfillRequest
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.records.source_state import SnapshotWait
from mirrorlake.capture.watch.snapshot_waits import SNAPSHOT_WAIT_ENDED, SNAPSHOT_WAITS
from mirrorlake.cli.status import show_status
from mirrorlake.config import Project
from mirrorlake.errors import SourceUnavailable
from mirrorlake.sources.postgresql import connect
from tests.app.evolving_database import EvolvingDatabase
from tests.conformance.scene import until

pytestmark = pytest.mark.postgres

APPLES = "create table apples (id int primary key, note text)"
SECRET = "insert into apples values (1, 'hush')"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "WAIT_SECONDS", 0.5)


@contextmanager
def running(evolving: EvolvingDatabase, *others: psycopg.Connection) -> Iterator[None]:
    """A capture on a thread of its own, beside the sessions of others."""
    stop = threading.Event()
    with closing(evolving.new_capture(stop=stop)) as capture:
        thread = threading.Thread(target=capture.run)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            end_prepared(evolving)  # or the snapshot of a test that fails waits for ever
            for other in others:
                other.close()
            thread.join()


def end_prepared(evolving: EvolvingDatabase) -> None:
    connection = evolving.database.sql
    left = "select gid from pg_prepared_xacts where database = current_database()"
    for (gid,) in connection.execute(left).fetchall():
        connection.execute(statement("rollback prepared {}", gid))


def awaited(evolving: EvolvingDatabase) -> SnapshotWait | None:
    return Records(evolving.store, root.LANDING).awaited()


def statement(text: str, gid: str) -> sql.Composed:
    return sql.SQL(text).format(sql.Literal(gid))


@pytest.fixture
def prepared(evolving: EvolvingDatabase) -> Iterator[str]:
    """The name of a prepared transaction that nobody ends."""
    evolving.run(APPLES)
    gid = f"it's {evolving.database.name}"
    connection = evolving.database.sql
    connection.execute("begin")
    connection.execute(SECRET)
    connection.execute(statement("prepare transaction {}", gid))
    yield gid
    end_prepared(evolving)


@pytest.mark.full
def test_a_prepared_transaction_is_told_while_the_first_snapshot_waits(
    evolving: EvolvingDatabase, prepared: str, capsys: pytest.CaptureFixture[str]
) -> None:
    evolving.run("create table pears (id int primary key)", "insert into pears values (1)")
    with capture_logs() as logs, running(evolving):
        until(lambda: awaited(evolving) is not None)
        project = Project("m", evolving.store.root)
        status = mirror_status.read(project)
        assert status.wait is not None
        facts = status.facts()["snapshot_wait"]
        name = evolving.database.name
        quoted = prepared.replace("'", "''")
        assert facts["gid"] == prepared
        assert (facts["owner"], facts["database"]) == ("postgres", name)
        assert facts["hint"] == (
            f"Run `commit prepared '{quoted}'` or `rollback prepared '{quoted}'` there."
        )
        age = datetime.now(UTC) - datetime.fromisoformat(facts["began"])
        assert timedelta(0) < age < timedelta(minutes=10)
        told = f"{sentence(status.wait, datetime.now(UTC))} {json.dumps(facts)} {logs}"
        assert "hush" not in told
        show_status(status)
        shown = " ".join(capsys.readouterr().out.split())
        assert f"the transaction prepared as '{prepared}' by postgres in database {name}" in shown
        assert facts["hint"] in shown
        evolving.database.sql.execute(statement("commit prepared {}", prepared))
        until(lambda: awaited(evolving) is None)
        assert mirror_status.read(project).wait is None
    events = [entry for entry in logs if entry["event"] in {SNAPSHOT_WAITS, SNAPSHOT_WAIT_ENDED}]
    assert [entry["event"] for entry in events] == [SNAPSHOT_WAITS, SNAPSHOT_WAIT_ENDED]
    assert prepared in events[0]["transaction"]
    assert events[0]["age_seconds"] > 0
    evolving.capture()
    evolving.apply()
    for table in ("apples", "pears"):
        evolving.check(table)


@pytest.mark.full
@pytest.mark.parametrize("is_once", [False, True])
def test_a_capture_that_waits_for_a_snapshot_ends_when_it_is_stopped(
    evolving: EvolvingDatabase, prepared: str, *, is_once: bool
) -> None:
    assert prepared
    stop, failed = threading.Event(), list[BaseException]()

    def work() -> None:
        with closing(evolving.new_capture(stop=stop)) as capture:
            try:
                if is_once:
                    capture.open()
                    capture.once()
                else:
                    capture.run()
            except BaseException as error:  # noqa: BLE001
                failed.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    until(lambda: awaited(evolving) is not None)
    stop.set()
    thread.join(20)
    assert not thread.is_alive()
    assert failed == []
    made = "select from pg_replication_slots where slot_name = %s"
    assert evolving.database.sql.execute(made, [evolving.made]).fetchall() == []
    end_prepared(evolving)
    evolving.capture()
    evolving.apply()
    evolving.check("apples")


def test_a_source_that_goes_away_while_capture_is_stopped_is_no_error(
    evolving: EvolvingDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    evolving.begin(APPLES)
    stop = threading.Event()
    with closing(evolving.new_capture(stop=stop)) as capture:

        def step(_wait: float) -> bool:
            stop.set()
            terminate = "select pg_terminate_backend(active_pid) from pg_replication_slots"
            evolving.run(f"{terminate} where slot_name = '{evolving.made}'")
            raise SourceUnavailable("it is gone")

        evolving.run("insert into apples values (1)")
        monkeypatch.setattr(capture, "step", step)
        capture.run()
    evolving.capture()
    evolving.apply()
    evolving.check("apples")


@pytest.mark.full
def test_a_prepared_transaction_is_told_while_a_backfill_waits_beside_the_stream(
    evolving: EvolvingDatabase,
) -> None:
    evolving.begin(APPLES, "create table log (id int primary key)")
    gid = f"forgotten {evolving.database.name}"
    evolving.run("begin; insert into log values (1)", f"prepare transaction '{gid}'")
    evolving.run(SECRET)
    with running(evolving):
        records = Records(evolving.store, root.LANDING)
        BackfillRecords(records).request(BackfillRequest("own", "public.apples"))
        until(lambda: awaited(evolving) is not None)
        wait = awaited(evolving)
        assert wait is not None
        assert wait.transaction.facts["gid"] == gid
        evolving.run(f"rollback prepared '{gid}'")
        until(lambda: awaited(evolving) is None)
    evolving.capture()
    evolving.apply()
    evolving.check("apples")


@pytest.mark.full
def test_a_backfill_that_waits_leaves_no_slot_behind_when_the_stream_is_closed(
    evolving: EvolvingDatabase,
) -> None:
    evolving.begin(APPLES, "create table log (id int primary key)", SECRET)
    connection = evolving.database.sql
    temporary = "select slot_name from pg_replication_slots where temporary and database = %s"

    def slots() -> set[tuple[str]]:
        return {*connection.execute(temporary, [evolving.database.name])}

    def is_another(former: set[tuple[str]]) -> bool:
        return len(found := slots()) == 1 and found != former

    with closing(psycopg.connect(evolving.database.url)) as other, running(evolving, other):
        other.execute("insert into log values (1)")
        records = Records(evolving.store, root.LANDING)
        BackfillRecords(records).request(BackfillRequest("own", "public.apples"))
        until(lambda: len(slots()) == 1)
        for _ in range(2):
            former = slots()
            terminate = "select pg_terminate_backend(active_pid) from pg_replication_slots"
            evolving.run(f"{terminate} where slot_name = '{evolving.made}'")
            until(partial(is_another, former))
        other.rollback()
        until(lambda: not slots())
    evolving.capture()
    evolving.apply()
    evolving.check("apples")


@pytest.mark.full
def test_a_repair_that_waits_tells_for_what(evolving: EvolvingDatabase) -> None:
    evolving.begin(APPLES, "create table log (id int primary key)")
    gid = f"forgotten {evolving.database.name}"
    evolving.run("begin; insert into log values (1)", f"prepare transaction '{gid}'")
    evolving.run(SECRET)
    evolving.lose_slot()

    def repair() -> None:
        with closing(evolving.new_capture()) as capture:
            capture.repair().done(())

    thread = threading.Thread(target=repair)
    thread.start()
    try:
        until(lambda: awaited(evolving) is not None)
    finally:
        evolving.run(f"commit prepared '{gid}'")
        thread.join()
    assert awaited(evolving) is None
    evolving.capture()
    evolving.apply()
    for table in ("apples", "log"):
        evolving.check(table)


@pytest.mark.full
def test_an_open_transaction_is_told_by_its_session(evolving: EvolvingDatabase) -> None:
    evolving.run(APPLES)
    url, name = evolving.database.url, evolving.database.name
    other = psycopg.connect(url, application_name="nightly job")
    other.execute(SECRET)
    with running(evolving, other):
        until(lambda: awaited(evolving) is not None)
        wait = awaited(evolving)
        assert wait is not None
        process = str(other.info.backend_pid)
        assert wait.transaction.facts == {
            "pid": process,
            "user": "postgres",
            "application": "nightly job",
            "database": name,
        }
        assert f"pg_terminate_backend({process})" in wait.hint
        assert wait.transaction.began is not None
        assert "hush" not in json.dumps(wait.facts())
        other.commit()
        until(lambda: awaited(evolving) is None)


@pytest.mark.full
def test_what_an_earlier_process_has_left_is_over(evolving: EvolvingDatabase) -> None:
    evolving.begin(APPLES)
    records = Records(evolving.store, root.LANDING)
    facts = {"since": "2026-01-01T00:00:00Z", "transaction": "t", "began": None, "hint": "h"}
    records.begin_wait(SnapshotWait.parse(facts))
    assert mirror_status.read(Project("m", evolving.store.root)).wait is None
    evolving.capture()
    assert records.awaited() is None
