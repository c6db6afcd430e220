"""A source that does not answer: capture says so, waits, and stays known as who captures."""

from __future__ import annotations

import threading
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from mirrorlake import root
from mirrorlake.app.status import mirror_status
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.records.source_state import Outage
from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.capture.watch import outages
from mirrorlake.capture.watch.outages import STREAM_INTERRUPTED, STREAM_RESUMED
from mirrorlake.config import Project
from mirrorlake.errors import SourceUnavailable
from mirrorlake.model.clock import WallClock
from mirrorlake.sources.base import Snapshot
from mirrorlake.sources.memory.database import MemoryDatabase
from mirrorlake.sources.memory.settings import MemorySettings
from mirrorlake.sources.memory.source import MemorySource
from mirrorlake.storage import lease as lease_module
from mirrorlake.storage.lease import TERM, Lease, holder_of
from mirrorlake.storage.local import LocalStore
from tests.capture.landing import landing_capture
from tests.conformance.scene import PATIENCE, until
from tests.doubles.clock import START, SteppedClock
from tests.sources.memory.scene import COLUMNS

OUTAGE = timedelta(minutes=5)


def test_an_outage_is_told_until_it_is_over_and_nobody_takes_over(store: LocalStore) -> None:
    clock, stop = SteppedClock(), threading.Event()
    seen: list[Outage | None] = []
    records = Records(store, root.LANDING)

    def read() -> None:
        if clock.now() - START < timedelta(seconds=10):
            clock.advance(10)
        elif clock.now() - START < OUTAGE:
            assert holder_of(store, "capture", clock.now())
            seen.append(records.outage())
            raise SourceUnavailable("PostgreSQL does not answer: refused", hint="Start it.")
        elif records.outage() is None:
            stop.set()

    database = MemoryDatabase(clock)
    database.create("t", COLUMNS, ["id"])
    source = MemorySource(MemorySettings(database, before_read=read))
    settings = CaptureSettings(load_workers=1, one_thread=True)
    with (
        capture_logs() as logs,
        closing(landing_capture(source, store, settings, clock, stop=stop)) as capture,
    ):
        capture.run()
    told_of = [outage for outage in seen if outage is not None]
    assert seen[0] is None
    assert {outage.since for outage in told_of} == {START + timedelta(seconds=10)}
    assert told_of[0].again == START + timedelta(seconds=11)
    assert told_of[-1].again > START + OUTAGE - TERM
    assert "PostgreSQL does not answer: refused" in str(told_of[0])
    told = [entry["event"] for entry in logs]
    assert STREAM_INTERRUPTED in told
    assert told.count(STREAM_RESUMED) == 1
    assert records.outage() is None


@pytest.mark.parametrize("what", ["snapshot", "load"])
def test_a_start_that_takes_longer_than_the_lease_keeps_it(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(lease_module, "RENEW", timedelta(seconds=0.01))
    renewed: list[str] = []
    check = Lease.check
    monkeypatch.setattr(
        Lease,
        "check",
        lambda lease: (renewed.append(threading.current_thread().name), check(lease)),
    )
    database = MemoryDatabase(WallClock())
    database.create("t", COLUMNS, ["id"])
    with database.transaction("a") as transaction:
        transaction.insert("t", id=1, note="x")

    def rows(left: int) -> int:
        if what == "load":
            until(lambda: "renew" in renewed)
        return left

    def snapshot() -> Snapshot:
        if what == "snapshot":
            until(lambda: "renew" in renewed)
        else:
            renewed.clear()
        return taken()

    source = MemorySource(MemorySettings(database, rows=rows))
    taken = source.snapshot
    monkeypatch.setattr(source, "snapshot", snapshot)
    with closing(
        landing_capture(source, store, CaptureSettings(load_workers=2), WallClock())
    ) as capture:
        capture.open()
    assert "renew" in renewed


def test_status_tells_an_outage_while_capture_waits_and_lag_grows(tmp_path: Path) -> None:
    store, clock = LocalStore(tmp_path), SteppedClock()
    records = Records(store, root.LANDING)
    store.create(f"{root.LANDING}/s.schema/t/_metadata.json", b'{"keyColumns": ["id"]}')
    clock.advance(100)
    lease = Lease(store, "capture", clock)
    lease.take()
    since = clock.now() - timedelta(seconds=42)
    outage = Outage(since, clock.now(), "PostgreSQL does not answer", "Start it.")
    records.begin_outage(outage)
    database = MemorySettings(MemoryDatabase(clock))
    project = Project("p", tmp_path, database)
    found = mirror_status.read(project, clock.now())
    assert found.outage == outage
    assert found.facts()["source"]["state"] == "unreachable"
    assert [table.lag_seconds for table in found.tables] == [42.0]
    store.replace(f"{records.folder}/outage.json", b'{"since": 7}')
    assert mirror_status.read(project, clock.now()).outage is None
    records.begin_outage(outage)
    lease.release()
    assert mirror_status.read(project, clock.now()).outage is None


class SetBack(SteppedClock):
    """A clock that is set back by an hour after its first second."""

    def now(self) -> datetime:
        return super().now() - (timedelta(hours=1) if self.monotonic() > 1 else timedelta())


class Silent:
    """The pulse of a server that does not answer, each look at which takes a second."""

    def __init__(self, clock: SteppedClock) -> None:
        self._clock, self.given_up = clock, threading.Event()

    def check(self) -> float:
        self._clock.advance(1)
        raise SourceUnavailable("PostgreSQL does not answer")

    def awaited(self) -> None:
        raise AssertionError("it does not answer")

    def stop_waiting(self) -> None:
        pass

    def give_up(self) -> None:
        self.given_up.set()

    def close(self) -> None:
        pass


def test_a_silent_server_is_given_up_also_when_the_clock_is_set_back(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outages, "LOOK_SECONDS", 0.001)
    clock = SetBack()
    pulse = Silent(clock)
    watched = outages.Outages(Records(store, root.LANDING), clock, threading.Event())
    watched.watch(pulse)
    try:
        assert pulse.given_up.wait(PATIENCE)
        assert clock.monotonic() >= outages.GIVE_UP_SECONDS
        with pytest.raises(SourceUnavailable):
            watched.check()
    finally:
        watched.unwatch()
