"""A landing zone that others fill, mirrored as a whole: what is found, applied and kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from math import inf
from pathlib import Path
from threading import Event

import pytest
from structlog.testing import capture_logs

from mirrorlake.app.loop.apply_loop import QUIET_LOOK_SECONDS, ApplyLoop
from mirrorlake.app.loop.background import Kind
from mirrorlake.app.reset import plan_reset
from mirrorlake.app.status import mirror_status
from mirrorlake.config import Project
from mirrorlake.landing.cuts import Cut, Cuts
from mirrorlake.landing.scan import BAD_PARTNER
from mirrorlake.mirror.row_checks import RowChecks
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.model.state import TableState
from tests.app.zones import MARKER, Zone
from tests.delta.handmade import HandmadeTable
from tests.doubles.clock import SteppedClock
from tests.doubles.handmade_engine import in_process_engine

EXAMPLE_D = {
    "partnerName": "testPartner",
    "sourceInfo": {
        "sourceType": "SQL",
        "sourceVersion": "2019",
        "additionalInformation": {"testKey": "testValue"},
    },
}


@pytest.fixture
def zone(tmp_path: Path) -> Zone:
    return Zone(tmp_path / "root")


def stated(zone: Zone) -> mirror_status.Status:
    return mirror_status.read(Project.of_root(zone.root))


class TestPlaces:
    @pytest.mark.clause("LZ-004")
    def test_the_landing_zone_is_made_for_whoever_will_publish(self, zone: Zone) -> None:
        zone.apply()
        assert (zone.root / "Files/LandingZone").is_dir()

    @pytest.mark.clause("LZ-009")
    def test_a_zone_without_files_is_used_and_no_other_is_made(self, zone: Zone) -> None:
        (zone.root / "LandingZone").mkdir(parents=True)
        zone.apply()
        assert not (zone.root / "Files/LandingZone").exists()
        assert stated(zone).landing_zone == str(zone.root / "LandingZone")

    @pytest.mark.clause("LZ-003")
    def test_status_tells_where_to_land(self, zone: Zone) -> None:
        assert stated(zone).facts()["landing_zone"] == str(zone.root / "Files/LandingZone")

    @pytest.mark.clause("LZ-001")
    def test_two_mirrors_share_nothing(self, tmp_path: Path) -> None:
        zones = [Zone(tmp_path / name) for name in ("one", "two")]
        for number, zone in enumerate(zones):
            zone.table("t", "id")
            zone.land("t", 1, {"id": [number]})
        loops = [zone.loop() for zone in zones]
        for loop in loops:
            loop.open()  # both at once: the right to write is that of one root
        for loop in loops:
            loop.once()
            loop.close()
        assert [zone.rows("t") for zone in zones] == [[(0,)], [(1,)]]

    @pytest.mark.clause("LZ-017", "LZ-018", "LZ-019")
    @pytest.mark.parametrize(("schema", "location"), [(None, "Tables/t"), ("dbo", "Tables/dbo/t")])
    def test_tables_are_written_below_their_schema_or_the_default_one(
        self, zone: Zone, schema: str | None, location: str
    ) -> None:
        zone = Zone(zone.root, settings=MirrorSettings(default_schema=schema))
        for number in (2, 1):
            zone.table("t", "id")
            zone.land("t", 1, {"id": [number]})
            if number == 2:
                zone.folder("t").rename(zone.root / "Files/LandingZone/t")
        assert not zone.apply().errors
        assert zone.rows("t") == [(1,)]
        assert HandmadeTable(zone.root / location).rows() == [(2,)]
        assert len(list((zone.root / "Tables").rglob("_delta_log"))) == 2

    @pytest.mark.clause("LZ-067")
    @pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b'{"partnerName": 7, "x": {}}'])
    def test_nothing_that_is_said_of_the_publisher_changes_what_is_applied(
        self, zone: Zone, content: bytes | None
    ) -> None:
        zone.table("t", "id")
        zone.land("t", 1, {"id": [1]})
        if content is not None:
            (zone.root / "Files/LandingZone/_partnerEvents.json").write_bytes(content)
        with capture_logs() as lines:
            report = zone.apply()
        assert (list(map(str, report.tables)), report.errors) == (["s.t"], [])
        assert zone.rows("t") == [(1,)]
        warned = [line["log_level"] for line in lines if line["event"] == BAD_PARTNER]
        assert warned == ([] if content is None else ["warning"])

    @pytest.mark.clause("LZ-318")
    def test_example_d_at_the_level_of_the_database_changes_nothing(self, zone: Zone) -> None:
        zone.table("t", "id")
        zone.land("t", 1, {"id": [1]})
        (zone.root / "Files/LandingZone/_partnerEvents.json").write_text(json.dumps(EXAMPLE_D))
        report = zone.apply()
        assert ([str(name) for name in report.tables], report.errors) == (["s.t"], [])
        assert zone.rows("t") == [(1,)]

    @pytest.mark.full
    @pytest.mark.clause("LZ-278")
    def test_there_may_be_more_tables_than_the_original_takes(self, zone: Zone) -> None:
        for number in range(1_050):
            zone.table(f"t{number}", "id")
        zone.land("t1049", 1, {"id": [1]})
        assert len(zone.apply().tables) == 1_050
        assert zone.rows("t1049") == [(1,)]


class EventfulClock(SteppedClock):
    """A clock on which something happens while somebody sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self._events: list[tuple[float, Callable[[], object]]] = []

    def then(self, moment: float, event: Callable[[], object]) -> None:
        self._events.append((moment, event))

    def advance(self, seconds: float) -> None:
        super().advance(seconds)
        due = [event for event in self._events if event[0] <= self.monotonic()]
        for event in due:
            self._events.remove(event)
            event[1]()


class Watched:
    """A mirror that runs in a time of its own. What happens at a moment is done before the round
    at that moment; the run ends at the last of them."""

    def __init__(self, zone: Zone, events: dict[float, Callable[[], object]]) -> None:
        self.clock = EventfulClock()
        self.loop: ApplyLoop = zone.loop(self.clock)
        self.rounds: list[float] = []
        self._events = dict(events)

    def run(self) -> list[float]:
        self.loop.open()
        try:
            self.loop.run(self._watch)
        except StopIteration:
            pass
        finally:
            self.loop.close()
        return self.rounds

    def _watch(self) -> None:
        now = self.clock.monotonic()
        self.rounds.append(now)
        for moment in [moment for moment in self._events if moment <= now]:
            self._events.pop(moment)()
        if not self._events:
            raise StopIteration


class TestRunning:
    @pytest.mark.clause("LZ-027")
    def test_it_looks_less_often_when_nothing_comes_and_at_once_when_something_does(
        self, zone: Zone
    ) -> None:
        zone.table("t", "id")
        land = lambda: zone.land("t", 1, {"id": [1]})  # noqa: E731
        rounds = Watched(zone, {10.0: land, 13.0: lambda: None}).run()
        pauses = [round(later - now, 3) for now, later in pairwise(rounds)]
        busy = next(location for location, moment in enumerate(rounds) if moment >= 10.0)
        assert pauses[:5] == [0.2, 0.4, 0.8, 1.0, 1.0]
        assert pauses[busy : busy + 4] == [0.0, 0.2, 0.4, 0.8]

    def test_a_pause_ends_when_the_source_has_landed_more(self, zone: Zone) -> None:
        zone.table("t", "id")
        cuts, tables = Cuts(zone.store, "Files/LandingZone"), {"s.t": 1}
        cut = Cut(1, "stream", "1", None, tables, full=True)
        cuts.write(cut)

        def land() -> None:
            zone.land("t", 1, {"id": [1]})
            cuts.write(replace(cut, number=2, position="2"))

        watched = Watched(zone, {13.0: lambda: None})
        watched.clock.then(10.33, land)
        rounds = watched.run()
        assert [moment for moment in rounds if 10.33 <= moment < 10.4] == pytest.approx(
            [10.33, 10.33], abs=MirrorSettings().look_seconds
        )
        assert zone.rows("t") == [(1,)]

    def test_a_mirror_in_which_nothing_happens_wakes_up_less_often(
        self, zone: Zone, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """And as often again after the first change, which waits a little longer at most."""
        zone.table("t", "id")
        cuts = Cuts(zone.store, "Files/LandingZone")
        cut = Cut(1, "stream", "1", None, {"s.t": 1}, full=True)
        cuts.write(cut)
        looks = list[float]()
        watched = Watched(zone, {170.0: lambda: None})
        is_behind = Cuts.is_behind

        def looked(self: Cuts) -> bool:
            looks.append(watched.clock.monotonic())
            return is_behind(self)

        def land() -> None:
            zone.land("t", 1, {"id": [1]})
            cuts.write(replace(cut, number=2, position="2"))

        monkeypatch.setattr(Cuts, "is_behind", looked)
        watched.clock.then(130.33, land)
        rounds = watched.run()

        def per_second(since: float) -> float:
            return len([moment for moment in looks if since <= moment < since + 10.0]) / 10.0

        start = rounds[0]
        assert per_second(start + 40.0) > 40
        assert per_second(start + 100.0) < 10
        assert [moment for moment in rounds if 130.33 <= moment <= 130.33 + QUIET_LOOK_SECONDS]
        assert zone.rows("t") == [(1,)]
        assert per_second(135.0) > 40

    def test_a_pause_beside_work_under_way_ends_as_well(self, zone: Zone) -> None:
        zone.table("t", "id")
        cut = Cut(1, "stream", "1", None, {"s.t": 1}, full=True)
        cuts, ended = Cuts(zone.store, "Files/LandingZone"), Event()
        cuts.write(cut)
        watched = Watched(zone, {13.0: ended.set})
        watched.loop._background.begin(Kind.MAINTENANCE, ended.wait)
        watched.clock.then(10.33, lambda: cuts.write(replace(cut, number=2, position="2")))
        rounds = watched.run()
        within = MirrorSettings().look_seconds
        assert [moment for moment in rounds if 10.33 <= moment <= 10.33 + within]

    @pytest.mark.parametrize("kind", ["link inside", "link outside", "folder"])
    def test_what_only_has_the_name_of_the_next_cut_ends_no_pauses(
        self, zone: Zone, kind: str
    ) -> None:
        zone.table("t", "id")
        cuts = Cuts(zone.store, "Files/LandingZone")
        cuts.write(Cut(1, "stream", "1", None, {"s.t": 1}, full=True))
        (first,) = (zone.root / "Files/LandingZone/_mirrorlake/cuts").iterdir()
        other = first.with_name(first.name.replace("1", "2"))
        if kind == "folder":
            other.mkdir()
        else:
            other.symlink_to(first if kind == "link inside" else zone.root.parent)
        rounds = Watched(zone, {10.0: lambda: None}).run()
        assert len(rounds) <= 15

    def test_a_pause_is_a_pause_where_each_look_is_a_request(self, zone: Zone) -> None:
        zone.table("t", "id")
        cut = Cut(1, "stream", "1", None, {"s.t": 1}, full=True)
        cuts = Cuts(zone.store, "Files/LandingZone")
        cuts.write(cut)
        zone.settings = replace(zone.settings, look_seconds=inf)
        watched = Watched(zone, {13.0: lambda: None})
        watched.clock.then(10.33, lambda: cuts.write(replace(cut, number=2, position="2")))
        rounds = watched.run()
        assert not [moment for moment in rounds if 10.33 <= moment < 10.4]

    @pytest.mark.clause("LZ-011", "LZ-012")
    def test_new_tables_and_new_files_are_found_while_it_runs(self, zone: Zone) -> None:
        def add() -> None:
            zone.table("new", "id")
            zone.land("new", 1, {"id": [1]})

        grow = lambda: zone.land("new", 2, {"id": [2], MARKER: [0]})  # noqa: E731
        Watched(zone, {5.0: add, 10.0: grow, 15.0: lambda: None}).run()
        assert zone.rows("new") == [(1,), (2,)]


class TestCounting:
    @pytest.mark.clause("LZ-088", "LZ-089")
    def test_duplicates_that_were_replaced_are_reported(self, zone: Zone) -> None:
        zone.table("t", "id")
        zone.land("t", 1, {"id": [1, 1, 1, 2, 2]})
        zone.apply()
        zone.land("t", 2, {"id": [1, 2], MARKER: [1, 2]})
        (report,) = zone.apply().tables.values()
        assert (report.updates + report.deletes, report.duplicates) == (5, 3)
        assert zone.rows("t") == [(1,)]


class TestFailure:
    @pytest.mark.clause("LZ-271")
    def test_the_mirror_runs_while_one_table_has_failed(self, zone: Zone) -> None:
        for name in ("good", "bad"):
            zone.table(name, "id")
            zone.land(name, 1, {"id": [1]})
        (zone.folder("bad") / f"{2:020d}.parquet").write_bytes(b"")
        loop = zone.loop()
        loop.open()
        loop.once()
        found = stated(zone)
        loop.close()
        assert found.state == "Running"
        assert {t.table: t.state for t in found.tables} == {
            "s.good": TableState.REPLICATING,
            "s.bad": TableState.FAILED,
        }

    @pytest.mark.clause("LZ-259", "LZ-085", "LZ-347")
    def test_of_a_file_with_one_bad_row_nothing_is_applied(self, zone: Zone) -> None:
        zone.table("t", "id")
        zone.land("t", 1, {"id": [1]})
        zone.land("t", 2, {"id": [2, 3, 4], MARKER: [1, 2, 3]})
        zone.land("t", 3, {"id": [5], MARKER: [0]})
        (error,) = zone.apply().errors
        assert (error.code, error.row, error.value) == ("unknown_marker", 3, "3")
        assert zone.rows("t") == [(1,)]

    @pytest.mark.clause("LZ-259", "LZ-085")
    @pytest.mark.parametrize("bad", ["3", "-1", "one", None])
    @pytest.mark.parametrize("extension", ["parquet", "csv"])
    def test_nor_whatever_the_bad_marker_is(
        self, zone: Zone, extension: str, bad: str | None
    ) -> None:
        zone.table("t", "id")
        for number, markers in enumerate((["0"], ["0", "4", bad], ["0"]), start=1):
            rows = [(f"{number}{location}", marker) for location, marker in enumerate(markers)]
            if extension == "parquet":
                zone.land("t", number, {"id": [i for i, _m in rows], MARKER: markers})
            else:
                lines = [f"{identifier},{marker or ''}" for identifier, marker in rows]
                text = "".join(f"{line}\r\n" for line in (f"id,{MARKER}", *lines))
                (zone.folder("t") / f"{number:020d}.csv").write_text(text, newline="")
        (error,) = zone.apply().errors
        assert (error.code, error.row, error.value or None) == ("unknown_marker", 3, bad)
        assert error.file == f"{2:020d}.{extension}"
        assert zone.rows("t") == [("10",)]

    @pytest.mark.clause("LZ-257", "LZ-267")
    def test_a_file_that_lacks_what_it_must_have_ends_the_run_before_it(self, zone: Zone) -> None:
        strict = MirrorSettings(row_checks=RowChecks(strict_keys=True))
        zone = Zone(zone.root, settings=strict)
        zone.table("t", "id")
        for number in (1, 2):
            zone.land("t", number, {"id": [number]})
        zone.land("t", 3, {"id": [None, 3], MARKER: [0, 0]})
        (error,) = zone.apply().errors
        assert (error.code, error.file, error.row) == ("null_key", f"{3:020d}.parquet", 1)
        assert zone.rows("t") == [(1,), (2,)]


class TestStopAndStart:
    @pytest.mark.clause("LZ-274")
    def test_a_start_goes_on_from_the_checkpoint(self, zone: Zone) -> None:
        zone.table("t", "id")
        zone.land("t", 1, {"id": [1]})
        zone.apply()
        zone.land("t", 2, {"id": [2]})
        (report,) = zone.apply().tables.values()
        assert (report.commits, report.last_file) == (1, 2)
        assert zone.rows("t") == [(1,), (2,)]

    @pytest.mark.clause("LZ-274")
    def test_only_a_reset_begins_anew(self, zone: Zone) -> None:
        zone.table("t", "id")
        zone.land("t", 1, {"id": [1]})
        zone.apply()
        made = in_process_engine(zone.store).progress("Tables/s/t").generation
        zone.apply()
        assert in_process_engine(zone.store).progress("Tables/s/t").generation == made
        plan_reset(Project.of_root(zone.root), ["s.t"]).execute()
        assert not (zone.root / "Tables/s/t").exists()
        zone.apply()
        assert zone.rows("t") == [(1,)]
        assert in_process_engine(zone.store).progress("Tables/s/t").generation != made

    @pytest.mark.clause("LZ-274")
    def test_a_stop_keeps_table_and_files(self, zone: Zone) -> None:
        zone.table("t", "id")
        zone.land("t", 1, {"id": [1]})
        zone.apply()
        found = stated(zone)
        assert found.state == "Stopped"
        assert zone.rows("t") == [(1,)]
        assert (zone.folder("t") / f"{1:020d}.parquet").exists()
