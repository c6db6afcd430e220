"""Quiet tables do not wait for busy ones, and nothing else changes by that."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from mirrorlake.app.loop.apply_loop import ApplyLoop
from mirrorlake.app.loop.background import LONG_SECONDS, WORK_TAKES_LONG, Executors
from mirrorlake.apply.in_process.runner import InProcessRunner
from mirrorlake.errors import LeaseLost
from mirrorlake.landing.cuts import Cut
from mirrorlake.mirror.batch_limits import BatchLimits
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.model.clock import WallClock
from mirrorlake.storage.local import LocalStore
from tests.app.operated import Operated
from tests.app.zones import MARKER, Zone
from tests.doubles.executors import Held
from tests.doubles.handmade_engine import HandmadeReader, in_process_engine
from tests.profiles import tries

LARGE = 3
"""Rows of a batch that is large here."""


class Market:
    """A quiet table, and a busy one whose batches are large; both have their first file."""

    def __init__(self, root: Path) -> None:
        self.mirror = Operated(root, limits=BatchLimits(large_rows=LARGE))
        self.held = Held()
        self.landed = {"busy": 0, "quiet": 0}
        for name in self.landed:
            self.mirror.zone.table(name, "id")
            self.land(name, 1)
        with self.mirror.running() as loop:
            loop.once()

    def land(self, name: str, rows: int) -> None:
        self.landed[name] += 1
        number = self.landed[name]
        ids = [number * 1_000 + row for row in range(rows)]
        columns = {"id": ids, "v": [f"{name} {n}" for n in ids], MARKER: [4] * rows}
        self.mirror.zone.land(name, number, columns)

    def cut(self, number: int) -> Cut:
        """A cut at all that is landed."""
        tables = {f"s.{name}": last for name, last in self.landed.items()}
        return Cut(number, "stream", str(number), None, tables, full=True)

    def recorded(self, name: str) -> int:
        table = self.mirror.mirrored(name)
        return table.recorded if table else 0

    def batches(self, name: str) -> list[tuple[int, int]]:
        table = self.mirror.mirrored(name)
        return table.applied if table else []

    def cuts(self, name: str) -> set[int]:
        """The cuts at which a table has stopped."""
        table = self.mirror.mirrored(name)
        assert table is not None
        return {batch_cut for batch_cut in table.cuts if batch_cut is not None}


@pytest.fixture
def market(tmp_path: Path) -> Market:
    return Market(tmp_path / "root")


@pytest.fixture
def loop(market: Market) -> Iterator[ApplyLoop]:
    with market.mirror.running(executors=market.held.executors) as loop:
        yield loop


class TestAQuietTable:
    def test_is_applied_while_a_large_batch_is_under_way(
        self, market: Market, loop: ApplyLoop
    ) -> None:
        market.land("busy", LARGE + 1)
        loop.cycle(None)
        for number in (2, 3, 4):
            market.land("quiet", 1)
            loop.cycle(None)
            assert market.recorded("quiet") == number
        assert market.recorded("busy") == 1
        market.held.is_open = True
        loop.cycle(None)
        assert market.recorded("busy") == 2

    def test_is_applied_in_the_cycle_in_which_the_large_batch_begins(
        self, market: Market, loop: ApplyLoop
    ) -> None:
        market.land("busy", LARGE + 1)
        market.land("quiet", 1)
        loop.cycle(None)
        assert (market.recorded("quiet"), market.recorded("busy")) == (2, 1)


class TestABusyTable:
    def test_has_one_batch_under_way_at_most(self, market: Market, loop: ApplyLoop) -> None:
        for rows in (LARGE + 1, 1, LARGE + 1):
            market.land("busy", rows)
            loop.cycle(None)
        assert len(market.held.large.submitted) == 1
        market.held.is_open = True
        loop.once()
        assert market.batches("busy") == [(1, 1), (2, 2), (3, 4)]

    def test_says_that_its_batch_takes_long_and_says_so_no_more_when_it_is_over(
        self, market: Market, loop: ApplyLoop
    ) -> None:
        market.land("busy", LARGE + 1)
        with capture_logs() as logs:
            loop.cycle(None)
            market.mirror.cycles(loop, LONG_SECONDS + 60, every=10)
        said = [line for line in logs if line["event"] == WORK_TAKES_LONG]
        assert [(line["work"], line["tables"]) for line in said] == [("batch", ["s.busy"])]
        waiting = {str(t): report.waiting for t, report in loop.report.tables.items()}
        told = f"its batch has been running for more than {LONG_SECONDS:.0f} s"
        assert waiting == {"s.busy": told, "s.quiet": ""}
        market.held.is_open = True
        market.mirror.cycles(loop, 10)
        assert [report.waiting for report in loop.report.tables.values()] == ["", ""]

    def test_is_not_dropped_while_its_batch_is_under_way(
        self, market: Market, loop: ApplyLoop
    ) -> None:
        market.mirror.cycles(loop, 10)
        market.land("busy", LARGE + 1)
        loop.cycle(None)
        market.mirror.delete("busy")
        market.mirror.cycles(loop, 120)
        assert market.mirror.mirrored("busy") is not None
        market.held.is_open = True
        market.mirror.cycles(loop, 120)
        assert market.mirror.mirrored("busy") is None
        assert market.mirror.mirrored("quiet") is not None

    def test_is_waited_for_by_a_run_that_ends(self, market: Market) -> None:
        market.land("busy", LARGE + 1)
        report = market.mirror.once()  # with threads
        assert (report.errors, market.recorded("busy")) == ([], 2)

    def test_what_ends_its_batch_ends_the_mirror(self, market: Market, loop: ApplyLoop) -> None:
        market.land("busy", LARGE + 1)
        loop.cycle(None)
        market.mirror.clock.advance(60)
        rival = market.mirror.loop()
        rival._lease._holder = "another"
        rival.open()
        market.held.is_open = True
        with pytest.raises(LeaseLost):
            loop.cycle(None)
        assert market.recorded("busy") == 1

    def test_a_batch_that_never_began_is_applied_at_the_next_start(self, market: Market) -> None:
        market.land("busy", LARGE + 1)
        with market.mirror.running(executors=market.held.executors) as loop:
            loop.cycle(None)
        assert market.recorded("busy") == 1
        market.mirror.once()
        assert market.batches("busy") == [(1, 1), (2, 2)]


class TestCuts:
    def test_all_tables_stop_at_the_cut_at_which_large_batches_begin(
        self, market: Market, loop: ApplyLoop
    ) -> None:
        for number in range(1, 13):
            market.land("quiet", 1)
            market.land("busy", LARGE + 1)
            market.held.is_open = number % 3 == 0  # a large batch takes three cycles
            loop.cycle(market.cut(number))
        assert market.cuts("quiet") == set(range(1, 13))
        assert market.cuts("busy") == {1, 3, 6, 9}

    def test_large_batches_of_several_tables_go_to_one_cut(self, tmp_path: Path) -> None:
        market = Market(tmp_path / "root")
        market.landed["other"] = 0
        market.mirror.zone.table("other", "id")
        market.land("other", 1)
        market.mirror.once()
        with market.mirror.running(executors=market.held.executors) as loop:
            market.land("busy", LARGE + 1)
            loop.cycle(market.cut(1))
            market.land("other", LARGE + 1)
            loop.cycle(market.cut(2))
            assert len(market.held.large.submitted) == 1  # the other waits for the next round
            market.land("busy", LARGE + 1)
            market.held.is_open = True
            while loop.cycle(market.cut(3)):
                pass
        assert 3 in market.cuts("busy") & market.cuts("other")


@settings(max_examples=tries(60))
@given(
    acts=st.lists(st.sampled_from(["quiet", "busy", "small", "cycle", "open", "hold"]), max_size=30)
)
def test_whatever_happens_quiet_tables_are_fresh_and_batches_follow_each_other(
    tmp_path_factory: pytest.TempPathFactory, acts: Sequence[str]
) -> None:
    market = Market(tmp_path_factory.mktemp("market"))
    with market.mirror.running(executors=market.held.executors) as loop:
        for action in acts:
            if action == "cycle":
                waiting = market.landed["quiet"] - market.recorded("quiet")
                loop.cycle(None)
                if waiting <= LARGE:  # of more it is busy itself
                    assert market.recorded("quiet") == market.landed["quiet"]
            elif action in {"open", "hold"}:
                market.held.is_open = action == "open"
            else:
                market.land(*{"quiet": ("quiet", 1), "small": ("busy", 1)}.get(action, (action, 9)))
        market.held.is_open = True
        loop.once()
    for name, landed in market.landed.items():
        firsts = [first for first, _last in market.batches(name)]
        assert firsts == [1, *(last + 1 for _first, last in market.batches(name)[:-1])]
        assert market.recorded(name) == landed
        rows = market.mirror.rows(name)
        assert rows is not None
        assert {int(row[0]) // 1_000 for row in rows} == set(range(1, landed + 1))


class _Gate(InProcessRunner):
    """A runner on true threads: the tasks of one table wait at a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.opened = threading.Event(), threading.Event()

    def run(self, work: Any, items: Sequence[Any], packing: Any = None) -> list[Any]:
        if any(getattr(item, "table", "") == "s.busy" for item in items):
            self.reached.set()
            assert self.opened.wait(120)
        return super().run(work, items, packing)


def test_a_quiet_table_commits_while_a_task_reads_a_large_batch(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "root")
    zone = Zone(store.root, None)  # type: ignore[arg-type]
    gate = _Gate()
    engine = in_process_engine(store, runner=gate)
    gate.opened.set()
    for name in ("busy", "quiet"):
        zone.table(name, "id")
        zone.land(name, 1, {"id": [1], MARKER: [4]})
    limits = BatchLimits(large_rows=LARGE)
    loop = ApplyLoop(
        store, engine, MirrorSettings(limits=limits), WallClock(), executors=Executors.threads(2)
    )
    loop.open()
    loop.once()
    gate.opened.clear()
    gate.reached.clear()
    zone.land("busy", 2, {"id": list(range(10)), MARKER: [4] * 10})
    loop.cycle(None)
    assert gate.reached.wait(120)
    zone.land("quiet", 2, {"id": [2], MARKER: [4]})
    loop.cycle(None)
    reader = HandmadeReader(store)
    assert len(reader.rows("Tables/s/quiet")) == 2
    assert len(reader.rows("Tables/s/busy")) == 1
    gate.opened.set()
    loop.once()
    loop.close()
    assert len(reader.rows("Tables/s/busy")) == 10
