"""Servers that commit in orders of their own: each change is landed once, whoever takes over.

The log is one of sets of transactions, so that of two points neither may cover the other. Capture
dies at any effect, also between the files of one transaction, and goes on with another server, on
which transactions that touch no row in common stand in another order.
"""

from __future__ import annotations

import io
from collections import Counter
from random import Random

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.errors import SourceUnavailable
from mirrorlake.landing.scan import data_files
from mirrorlake.model.table import Column, Schema
from mirrorlake.model.types import LONG
from mirrorlake.sources.memory.database import MemoryDatabase
from mirrorlake.sources.memory.settings import MemorySettings
from mirrorlake.sources.memory.source import MemorySource
from mirrorlake.storage.lease import TERM
from tests.capture.landing import landing_capture
from tests.doubles.clock import SteppedClock
from tests.doubles.gtid import Sets
from tests.doubles.memory_store import Crash, MemoryStore, crash_at
from tests.doubles.replica import fail_over

TABLE = "shop.orders"
FOLDER = "Files/LandingZone/shop.schema/orders"
SMALL = CaptureSettings(roll_bytes=1, load_workers=1, one_thread=True)
"""Each segment of an open transaction gets a file of its own."""


class Run:
    """A database whose rows are inserted once each, and the processes that capture it."""

    def __init__(self, seed: int) -> None:
        self.random, self.clock = Random(seed), SteppedClock()
        self.database = MemoryDatabase(self.clock, Sets())
        self.database.create(TABLE, Schema.of([Column("id", LONG)]), ["id"])
        self.store = MemoryStore(self.clock)
        self.inserted = 0

    def commit(self, rows: int) -> None:
        with self.database.transaction(self.random.choice("abc")) as write:
            for _ in range(rows):
                self.inserted += 1
                write.insert(TABLE, id=self.inserted)

    def process(self, death: int | None, steps: int) -> None:
        """One process of capture, which ends at its n-th effect or after some steps."""
        store = self.store.reopened(crash_at(death) if death else None)
        settings = MemorySettings(
            self.database, slot=None, messages=lambda: self.random.randint(1, 4)
        )
        source = MemorySource(settings)
        capture = landing_capture(
            source, store, SMALL, self.clock, holder=str(self.random.random())
        )
        self.clock.advance(2 * TERM.total_seconds())
        try:
            capture.open()
            if death is None:
                capture.once()
            for _ in range(steps):
                capture.step(0.1)
            capture.close()
        except (Crash, SourceUnavailable):
            pass  # nothing that the next process does not make good

    def landed(self) -> Counter[int]:
        files = data_files(FOLDER, self.store.list(FOLDER))
        read = [pq.ParquetFile(io.BytesIO(self.store.read(file.path))).read() for file in files]
        return Counter(key for table in read for key in table["id"].to_pylist())


@pytest.mark.full
@given(st.integers(0, 2**32), st.lists(st.tuples(st.integers(1, 60), st.integers(1, 12))))
def test_every_change_is_landed_exactly_once(seed: int, deaths: list[tuple[int, int]]) -> None:
    run = Run(seed)
    run.commit(2)
    run.process(None, 0)  # the load
    for death, steps in deaths:
        for _ in range(run.random.randint(0, 3)):
            run.commit(run.random.choice([1, 2, 7]))
        run.process(death, steps)
        fail_over(run.database, run.random)
    run.process(None, 0)
    assert run.landed() == Counter(range(1, run.inserted + 1))


@pytest.mark.parametrize("seed", range(40))
def test_a_transaction_that_was_cut_short_is_finished_behind_another(seed: int) -> None:
    """Its first files are landed; then others come before the rest of it, and a crash again."""
    run = Run(seed)
    run.process(None, 0)
    for rows in (5, 9, 2, 6):
        run.commit(rows)
    for _ in range(6):
        run.process(run.random.randint(8, 30), 9)
        fail_over(run.database, run.random)
    run.process(None, 0)
    assert run.landed() == Counter(range(1, run.inserted + 1))
