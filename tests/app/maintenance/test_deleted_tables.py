"""Table folders that are deleted: their tables are dropped, and no table is dropped by mistake."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from mirrorlake import root
from mirrorlake.app.maintenance.deleted_tables import GONE, PATH, SCHEMA_UNKNOWN
from mirrorlake.app.status import mirror_status
from mirrorlake.capture.records.names import DELETED
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.records.stream import StreamRecord
from mirrorlake.config import Project
from mirrorlake.errors import ForeignTable
from mirrorlake.landing import layout
from mirrorlake.landing.zone_id import MARK
from mirrorlake.mirror.engine import Failed, Outcome
from mirrorlake.mirror.faults import UnreadableFile
from mirrorlake.mirror.steps import ApplyFiles, DropTable
from mirrorlake.mirror.table.deleted import MIN_SCANS, Missing, observe
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.model.table import TableId
from mirrorlake.storage.local import LocalStore
from mirrorlake.storage.store import Listing
from tests.app.operated import DAY, Operated
from tests.doubles.clock import START
from tests.doubles.memory_store import Crash
from tests.sim.engine import ModelledEngine

LONG = 120
"""Seconds after which a table is dropped that is going to be."""


@pytest.fixture
def mirror(tmp_path: Path) -> Operated:
    """Two tables, applied."""
    mirror = Operated(tmp_path / "root")
    mirror.table("t", "a", "b")
    mirror.table("kept", "a")
    mirror.once()
    return mirror


def wait(mirror: Operated, seconds: float = LONG) -> None:
    with mirror.running() as loop:
        mirror.cycles(loop, seconds)


class TestADeletedFolder:
    @pytest.mark.clause("LZ-231", "LZ-228", "LZ-323")
    def test_its_table_is_dropped_and_the_others_stay(self, mirror: Operated) -> None:
        mirror.delete("t")
        wait(mirror)
        assert (mirror.mirrored("t"), mirror.rows("kept")) == (None, [(1, "a")])
        assert mirror.operations("t")[-1] == "RemoveTable"

    @pytest.mark.clause("LZ-231")
    def test_the_only_table_of_a_zone_is_dropped(self, mirror: Operated) -> None:
        for name in ("t", "kept"):
            mirror.delete(name)
        wait(mirror)
        assert mirror.lake.tables == {}

    def test_it_is_not_dropped_at_once(self, mirror: Operated) -> None:
        mirror.delete("t")
        wait(mirror, 50)
        assert mirror.mirrored("t")
        assert (
            "its folder has been missing since" in mirror.once().tables[TableId("s", "t")].waiting
        )

    def test_runs_that_end_drop_it_too(self, mirror: Operated) -> None:
        mirror.delete("t")
        for _ in range(MIN_SCANS - 1):
            mirror.once()
            mirror.clock.advance(DAY)
            assert mirror.mirrored("t")
        mirror.once()
        assert mirror.mirrored("t") is None

    @pytest.mark.clause("LZ-241", "LZ-323")
    def test_a_deleted_schema_folder_drops_all_its_tables(self, mirror: Operated) -> None:
        shutil.rmtree(mirror.zone.folder("t").parent)
        wait(mirror)
        assert mirror.lake.tables == {}

    @pytest.mark.clause("LZ-241")
    def test_the_last_table_of_a_schema_folder_that_stays_is_dropped(
        self, mirror: Operated
    ) -> None:
        mirror.delete("t")
        mirror.delete("kept")
        wait(mirror)
        assert mirror.lake.tables == {}

    def test_a_schema_folder_that_is_new_is_known_from_its_first_table_on(
        self, mirror: Operated
    ) -> None:
        folder = mirror.root / root.LANDING / "new.schema/n"
        shutil.copytree(mirror.zone.folder("kept"), folder)
        mirror.delete("t")
        mirror.once()
        assert "Tables/new/n" in mirror.lake.tables
        shutil.rmtree(folder)
        wait(mirror)
        assert "Tables/new/n" not in mirror.lake.tables

    @pytest.mark.clause("LZ-228", "LZ-229", "LZ-237", "LZ-238", "LZ-323")
    def test_a_renamed_folder_is_a_new_table_and_the_old_one_is_dropped(
        self, mirror: Operated
    ) -> None:
        mirror.delete("t")
        mirror.table("renamed", "x", "y")
        wait(mirror)
        assert mirror.mirrored("t") is None
        assert mirror.rows("renamed") == [(1, "x"), (2, "y")]

    @pytest.mark.clause("LZ-239")
    def test_a_folder_that_comes_again_after_the_drop_is_a_new_table(
        self, mirror: Operated
    ) -> None:
        mirror.delete("t")
        wait(mirror)
        mirror.table("t", "new")
        assert not mirror.once().errors
        assert mirror.rows("t") == [(1, "new")]

    @pytest.mark.clause("LZ-235")
    def test_what_the_clean_up_put_back_is_no_folder(self, mirror: Operated) -> None:
        mirror.delete("t")
        aside = mirror.zone.folder("t") / layout.CLEANUP
        aside.mkdir(parents=True)
        (aside / layout.CLEANUP_INFO).write_text('{"files": []}')
        wait(mirror)
        assert mirror.mirrored("t") is None
        assert not mirror.zone.folder("t").exists()

    def test_its_error_ends_with_it(self, mirror: Operated) -> None:
        mirror.land("t", 4)
        assert mirror.once().errors
        mirror.delete("t")
        assert not mirror.once().errors

    def test_a_drop_that_fails_is_done_later(self, mirror: Operated) -> None:
        class Refusing(ModelledEngine):
            def drop(self, step: DropTable) -> None:
                raise ForeignTable("its Delta log cannot be read", table=str(step.table), hint="")

        mirror.delete("t")
        mirror.kind = Refusing
        wait(mirror)
        assert mirror.rows("t") == [(1, "a"), (2, "b")]
        mirror.kind = ModelledEngine
        wait(mirror, 10)
        assert mirror.mirrored("t") is None

    @pytest.mark.parametrize("point", [CrashPoint.TABLE_DROPPED])
    def test_a_drop_that_is_killed_is_done_once(self, mirror: Operated, point: CrashPoint) -> None:
        mirror.delete("t")
        wait(mirror, 50)

        def killed(reached: CrashPoint) -> None:
            if reached is point:
                raise Crash(str(reached))

        loop = mirror.loop(killed)
        loop.open()
        with pytest.raises(Crash):
            mirror.cycles(loop, LONG)
        mirror.clock.advance(60)
        wait(mirror)
        assert (mirror.mirrored("t"), mirror.rows("kept")) == (None, [(1, "a")])
        assert "Tables/s/t" in (mirror.root / GONE).read_text()


def captured(mirror: Operated) -> Records:
    """What our own capture records, which fills the zone."""
    records = Records(mirror.store, root.LANDING)
    records.write_stream(StreamRecord.new({"type": "test"}))
    return records


@pytest.mark.clause("LZ-231")
def test_a_folder_that_our_own_capture_has_deleted_for_good_drops_its_table(
    mirror: Operated,
) -> None:
    captured(mirror).note_deleted("s.t", f"{root.LANDING}/s.schema/t")
    mirror.delete("t")
    wait(mirror, 50)
    assert "will be dropped" in mirror.once().tables[TableId("s", "t")].waiting
    wait(mirror)
    assert (mirror.mirrored("t"), mirror.rows("kept")) == (None, [(1, "a")])
    mirror.clock.advance(8 * DAY)
    mirror.once()
    assert json.loads((mirror.root / GONE).read_text())["tables"] == {}


@pytest.mark.clause("LZ-323")
def test_a_folder_that_is_deleted_while_its_files_are_read_stops_nobody(mirror: Operated) -> None:
    class Deleting(ModelledEngine):
        def apply(self, steps: Sequence[ApplyFiles], before_commit: object) -> Sequence[Outcome]:
            if mirror.zone.folder("t").exists():
                mirror.delete("t")
            live = [step for step in steps if step.table.name != "t"]
            done = iter(super().apply(live, before_commit))  # type: ignore[arg-type]
            return [next(done) if step in live else gone(step) for step in steps]

    mirror.land("t", 3)
    mirror.land("kept", 2)
    mirror.kind = Deleting
    with mirror.running() as loop:
        mirror.cycles(loop, 5)
        assert mirror.rows("kept") == [(1, "a"), (2, "new")]
        mirror.cycles(loop, LONG)
    assert mirror.mirrored("t") is None


class TestAFolderThatOnlySeemsDeleted:
    @pytest.fixture(autouse=True)
    def nothing_is_dropped(self, mirror: Operated) -> object:
        yield
        assert mirror.rows("t") == [(1, "a"), (2, "b")]

    def test_the_zone_is_not_there(self, mirror: Operated) -> None:
        shutil.move(mirror.root / root.LANDING, mirror.root / "unmounted")
        wait(mirror, DAY / 100)
        assert not (mirror.root / root.LANDING).exists()  # what is mounted later is not hidden
        shutil.move(mirror.root / "unmounted", mirror.root / root.LANDING)
        assert not mirror.once().errors

    def test_the_zone_is_empty(self, mirror: Operated) -> None:
        shutil.move(mirror.root / root.LANDING, mirror.root / "unmounted")
        (mirror.root / root.LANDING).mkdir()
        wait(mirror)

    def test_its_schema_folder_is_empty(self, mirror: Operated) -> None:
        """As the place of a share that is not mounted."""
        shutil.move(mirror.zone.folder("t").parent, mirror.root / "unmounted")
        mirror.zone.folder("t").parent.mkdir()
        with capture_logs() as lines:
            wait(mirror)
        said = [line for line in lines if line["event"] == SCHEMA_UNKNOWN]
        assert {line["folder"] for line in said} == {f"{root.LANDING}/s.schema"}
        mirror.zone.folder("t").parent.rmdir()
        shutil.move(mirror.root / "unmounted", mirror.zone.folder("t").parent)
        assert not mirror.once().errors

    def test_another_folder_is_in_the_place_of_its_schema_folder(self, mirror: Operated) -> None:
        shutil.rmtree(mirror.zone.folder("t").parent)
        mirror.table("u", "a")
        wait(mirror)
        assert mirror.rows("u") == [(1, "a")]

    def test_another_zone_is_in_its_place(self, mirror: Operated, tmp_path: Path) -> None:
        other = Operated(tmp_path / "other")
        other.table("u", "a")
        other.once()
        shutil.rmtree(mirror.root / root.LANDING)
        shutil.copytree(other.root / root.LANDING, mirror.root / root.LANDING)
        wait(mirror)

    def test_an_unmarked_zone_is_in_its_place(self, mirror: Operated) -> None:
        shutil.rmtree(mirror.root / root.LANDING)
        mirror.table("u", "a")
        wait(mirror)

    @pytest.mark.full
    def test_a_listing_is_short_now_and_then(
        self, mirror: Operated, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        whole, looks = LocalStore.list, 0

        def short(store: LocalStore, folder: str) -> Listing:
            nonlocal looks
            found = whole(store, folder)
            if not folder.endswith("s.schema"):
                return found
            looks += 1
            names = tuple(name for name in found.folders if name != "t" or looks % 5 == 0)
            return Listing(found.files, names)

        monkeypatch.setattr(LocalStore, "list", short)
        wait(mirror, 10 * LONG)
        monkeypatch.undo()

    def test_it_comes_back_in_time(self, mirror: Operated) -> None:
        shutil.move(mirror.zone.folder("t"), mirror.root / "aside")
        wait(mirror, 50)
        shutil.move(mirror.root / "aside", mirror.zone.folder("t"))
        wait(mirror, 20)
        shutil.move(mirror.zone.folder("t"), mirror.root / "aside")
        wait(mirror, 50)

    def test_a_clock_that_jumps_drops_nothing_at_once(self, mirror: Operated) -> None:
        mirror.delete("t")
        mirror.once()
        mirror.clock.advance(10 * DAY)
        mirror.once()

    def test_the_folder_is_there_and_empty(self, mirror: Operated) -> None:
        mirror.delete("t")
        mirror.zone.folder("t").mkdir()
        wait(mirror)

    def test_a_link_is_in_its_place(self, mirror: Operated, tmp_path: Path) -> None:
        shutil.move(mirror.zone.folder("t"), tmp_path / "elsewhere")
        mirror.zone.folder("t").symlink_to(tmp_path / "elsewhere")
        wait(mirror)

    def test_its_mark_cannot_be_read(self, mirror: Operated) -> None:
        mark = mirror.root / root.LANDING / MARK
        mark.unlink()
        mark.mkdir()
        mirror.delete("t")
        wait(mirror)
        assert not mirror.once().errors

    def test_it_is_configured_to_stay(self, mirror: Operated) -> None:
        mirror.settings = type(mirror.settings)(drop_tables=False)
        mirror.delete("t")
        wait(mirror)

    def test_our_own_capture_fills_the_zone(self, mirror: Operated) -> None:
        captured(mirror).note_deleted("s.kept", f"{root.LANDING}/s.schema/kept")
        mirror.delete("t")
        wait(mirror)

    def test_our_own_capture_will_delete_its_folder(self, mirror: Operated) -> None:
        captured(mirror).note_deleted("s.t", f"{root.LANDING}/s.schema/t")
        wait(mirror)

    def test_our_own_capture_loads_it_again(self, mirror: Operated) -> None:
        records, folder = captured(mirror), f"{root.LANDING}/s.schema/t"
        records.note_deleted("s.t", folder)
        records.note_filled([folder])
        mirror.delete("t")
        wait(mirror)

    def test_what_our_own_capture_has_recorded_cannot_be_read(self, mirror: Operated) -> None:
        records = captured(mirror)
        records.note_deleted("s.t", f"{root.LANDING}/s.schema/t")
        (mirror.root / records.folder / DELETED).write_text("{")
        mirror.delete("t")
        wait(mirror)

    def test_the_table_is_of_somebody_else(self, mirror: Operated) -> None:
        table = mirror.mirrored("t")
        assert table is not None
        table.generation, table.properties = "", {}
        mirror.delete("t")
        wait(mirror)

    def test_another_folder_has_taken_over_its_path(self, mirror: Operated) -> None:
        table = mirror.mirrored("t")
        assert table is not None
        table.properties["mirrorlake.folder"] = f"{root.LANDING}/t"
        wait(mirror)


class TestTheWait:
    def test_a_folder_has_to_be_missing_several_times_and_for_a_while(self) -> None:
        delay, known = timedelta(seconds=60), {}
        for look in range(1, 5):
            known = observe(known, ["p"], START + timedelta(seconds=30 * look))
            due = known["p"].is_due(START + timedelta(seconds=30 * look), delay)
            assert due is (look >= 3)

    def test_a_folder_that_is_seen_again_begins_anew(self) -> None:
        assert observe({"p": Missing(START, 2)}, [], START) == {}

    def test_a_clock_that_was_set_back_begins_anew(self) -> None:
        later = START + timedelta(days=1)
        assert observe({"p": Missing(later, 3)}, ["p"], START) == {"p": Missing(START)}

    def test_a_record_that_cannot_be_read_begins_anew(self, mirror: Operated) -> None:
        mirror.delete("t")
        mirror.once()
        (mirror.root / PATH).write_text("{")
        mirror.once()
        looks = json.loads((mirror.root / PATH).read_text())["tables"]["Tables/s/t"]["looks"]
        assert looks == 1


def test_the_plan_says_what_will_be_dropped(mirror: Operated) -> None:
    mirror.delete("t")
    for _ in range(MIN_SCANS):
        with mirror.running() as loop:
            told = {str(table.table): table for table in loop._planning.whole_plan(None)}
            assert told["s.t"].steps == ()
            loop.cycle(None)
        mirror.clock.advance(21)
    (table,) = [t for t in mirror.loop()._planning.whole_plan(None) if str(t.table) == "s.t"]
    assert [type(step).__name__ for step in table.steps] == ["DropTable"]
    shutil.move(mirror.root / root.LANDING, mirror.root / "unmounted")
    assert mirror.loop()._planning.whole_plan(None) == []


def test_status_says_that_a_table_will_be_dropped(mirror: Operated) -> None:
    mirror.delete("t")
    mirror.once()
    found = {
        table.table: table
        for table in mirror_status.read(Project(name="p", root=mirror.root)).tables
    }
    assert "its folder has been missing since" in found["s.t"].waiting
    assert found["s.t"].error is None
    wait(mirror)
    found = {
        table.table: table
        for table in mirror_status.read(Project(name="p", root=mirror.root)).tables
    }
    assert set(found) == {"s.kept"}


def test_a_dropped_table_lies_aside_for_the_retention(mirror: Operated) -> None:
    aside = mirror.root / root.DROPPED / "Tables/s/t"
    aside.mkdir(parents=True)
    mirror.delete("t")
    wait(mirror)
    mirror.clock.advance(6.9 * DAY)
    mirror.once()
    assert aside.exists()
    mirror.clock.advance(0.2 * DAY)
    mirror.once()
    assert not aside.exists()


def gone(step: ApplyFiles) -> Outcome:
    """What a task says of a file that it could not open."""
    file = str(step.files[0].name)
    return Failed(UnreadableFile("cannot be opened", table=str(step.table), file=file, hint=""))
