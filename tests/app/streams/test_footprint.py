"""Whether something has happened below the root of a stream, seen without looking at its tables."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from mirrorlake.app.status import table_status_file
from mirrorlake.app.streams.footprint import Footprint, footprint
from mirrorlake.capture.backfill.jobs import BackfillRecords, BackfillRequest
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.config import Project
from mirrorlake.root import LANDING
from mirrorlake.sources.memory.settings import MemorySettings
from mirrorlake.storage.lease import RENEW, Lease
from mirrorlake.storage.local import LocalStore
from mirrorlake.storage.urls import StorageLocation
from tests.capture.landing import landing_capture
from tests.capture.streams import ID
from tests.doubles.clock import SteppedClock
from tests.sim.source import SimulatedDatabase


class Stream:
    """A stream that has loaded its one table, which is empty, and the lease of its mirror."""

    def __init__(self, top: Path) -> None:
        self.clock, self.store = SteppedClock(), LocalStore(top)
        self.records = Records(self.store, LANDING)
        self.database = SimulatedDatabase(self.clock, Random(1), [ID])
        settings = CaptureSettings(roll_seconds=0.0)
        source = self.database.source()
        self.capture = landing_capture(source, self.store, settings, self.clock)
        self.capture.open()
        self.lease = Lease(self.store, "mirror", self.clock)
        self.lease.take()
        self.project = Project("p", top, MemorySettings(self.database.memory))
        self.seen = self.now()

    def now(self) -> Footprint | None:
        time.sleep(0.02)  # the times of files are so exact
        return footprint(self.project)

    def differs(self) -> bool:
        """Since the last time."""
        before, self.seen = self.seen, self.now()
        return before != self.seen


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[Stream]:
    found = Stream(tmp_path)
    yield found
    found.capture.close()


def test_what_is_landed_applied_or_asked_for_is_seen(stream: Stream) -> None:
    assert stream.seen is not None
    with stream.database.memory.transaction() as write:
        write.insert(str(ID), id=1, note="a", text="b")
    stream.capture.once()
    assert stream.differs()
    table_status_file.note_reset(stream.store, stream.clock, {str(ID): "Tables/t"})
    assert stream.differs()
    BackfillRecords(stream.records).request(BackfillRequest("a", str(ID)))
    assert stream.differs()
    stream.records.write_retained({})
    assert stream.differs()


def test_an_idle_stream_shows_no_difference_though_leases_are_renewed(stream: Stream) -> None:
    stream.differs()
    for _ in range(3):
        stream.clock.advance(RENEW.total_seconds())
        stream.lease.check()
        stream.capture.step(0.0)
        assert not stream.differs()


def test_what_cannot_be_seen_cheaply_is_not_told(stream: Stream) -> None:
    elsewhere = StorageLocation("s3://bucket/shop", {})
    for project in (
        replace(stream.project, source=None),  # others land, and write no cuts
        replace(stream.project, landing=elsewhere),
        replace(stream.project, root=elsewhere),
        replace(stream.project, root=Path("/nowhere")),
    ):
        assert footprint(project) is None
