"""A slot that a stalled capture still reads: its end is waited for, and it is named."""

from __future__ import annotations

import os
import threading
from contextlib import closing

import pytest
from structlog.testing import capture_logs

from mirrorlake.capture.capture import Capture
from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.capture.watch.outages import STREAM_INTERRUPTED
from mirrorlake.errors import SlotInUse
from mirrorlake.model.clock import Clock, WallClock
from mirrorlake.sources.postgresql.source import PostgresSource
from mirrorlake.storage.local import LocalStore
from tests.capture.landing import landing_capture
from tests.conformance.scene import until
from tests.conftest import Database
from tests.doubles.clock import SteppedClock

pytestmark = pytest.mark.postgres


def capture(database: Database, store: LocalStore, clock: Clock) -> Capture:
    source = PostgresSource(database.settings())
    return landing_capture(source, store, CaptureSettings(load_workers=1, one_thread=True), clock)


@pytest.mark.full
def test_a_stalled_predecessor_is_named_and_its_end_waited_for(
    database: Database, store: LocalStore
) -> None:
    database.execute("create table apples (id int primary key)")
    stalled = capture(database, store, SteppedClock())  # it has not renewed its lease for long
    stalled.open()
    (pid,) = database.sql.execute(
        "select active_pid from pg_replication_slots where database = current_database()"
    ).fetchone() or (0,)
    with capture_logs() as logs, closing(capture(database, store, WallClock())) as following:
        ended: list[BaseException | None] = []

        def follow() -> None:
            following.open()
            following.once()
            ended.append(None)

        thread = threading.Thread(target=follow)
        thread.start()
        until(lambda: any(e["event"] == STREAM_INTERRUPTED for e in logs))
        database.execute(f"select pg_terminate_backend({pid})")
        thread.join(60)
        assert ended == [None]
    told = next(entry["reason"] for entry in logs if entry["event"] == STREAM_INTERRUPTED)
    assert f"is still read by server process {pid}, for mirrorlake at " in told
    assert f"capture was run before by process {os.getpid()}" in told
    stalled.close()


@pytest.mark.full
def test_a_slot_that_is_read_elsewhere_is_not_detached(
    database: Database, store: LocalStore
) -> None:
    database.execute("create table apples (id int primary key)")
    with closing(capture(database, store, SteppedClock())) as elsewhere:
        elsewhere.open()
        (slot,) = database.sql.execute(
            "select slot_name from pg_replication_slots where database = current_database()"
        ).fetchone() or ("",)
        made = [f"replication slot {slot}"]
        with closing(PostgresSource(database.settings())) as source:
            assert source.objects is not None
            with pytest.raises(SlotInUse, match="is still read by server process") as error:
                source.objects.detach(made)
            assert "Stop it, and run the command again." in error.value.hint
            elsewhere.close()
            assert source.objects.detach(made) == made
