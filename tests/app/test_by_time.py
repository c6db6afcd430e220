"""Tables whose files are found by time, through the whole apply loop on a modelled lake."""

from __future__ import annotations

import json
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from structlog.testing import capture_logs

from mirrorlake.app.loop.apply_loop import ApplyLoop
from mirrorlake.app.loop.report import ApplyReport
from mirrorlake.errors import BadFile, DetectionChanged, ProgressLost
from mirrorlake.landing.cleanup import WRITTEN_AGAIN
from mirrorlake.mirror.batch_limits import BatchLimits
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.model.crash_points import CrashHook, CrashPoint, no_crash
from tests.doubles.clock import SteppedClock
from tests.doubles.memory_store import Crash, File, MemoryStore
from tests.landing.files import encoded
from tests.sim.engine import Lake, LakeTable, ModelledEngine

FOLDER = "Files/LandingZone/s.schema/t"
RECORD = "Files/Mirrorlake/processed/Tables/s/t"
BY_TIME = {"fileDetectionStrategy": "LastUpdateTimeFileDetection"}
UPSERTS = {"isUpsertDefaultRowMarker": True}


class Zone:
    """A landing zone with one table in memory, and a mirror on it."""

    def __init__(self) -> None:
        self.clock = SteppedClock()
        self.store = MemoryStore(self.clock)
        self.lake = Lake()
        self.limits = BatchLimits()
        self.describe(**BY_TIME)

    def describe(self, *key: str, **members: Any) -> None:
        metadata = {"keyColumns": list(key or ["id"]), **members}
        self.store.replace(f"{FOLDER}/_metadata.json", json.dumps(metadata).encode())

    def land(self, name: str, *rows: tuple[int, str], at: float | None = None) -> None:
        """A file without markers, in the next second or at a time."""
        self.clock.advance(1)
        content = encoded({"id": [i for i, _v in rows], "v": [v for _i, v in rows]})
        self.store.replace(f"{FOLDER}/{name}", content)
        if at is not None:
            file = self.store.files.content[f"{FOLDER}/{name}"]
            self.store.files.content[f"{FOLDER}/{name}"] = File(file.content, at, file.etag)

    def loop(self, reached: CrashHook = no_crash) -> ApplyLoop:
        engine = ModelledEngine(self.lake, self.store, Random(0), reached, lost_answers=0.0)
        settings = MirrorSettings(limits=self.limits)
        return ApplyLoop(self.store, engine, settings, self.clock, reached=reached)

    def apply(self) -> ApplyReport:
        loop = self.loop()
        loop.open()
        report = loop.once()
        loop.close()
        return report

    @property
    def table(self) -> LakeTable:
        return self.lake.tables["Tables/s/t"]

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return list(self.table.table.rows)

    def batches(self) -> list[tuple[str, ...]]:
        return [batch.names for batch in self.table.named]

    def left(self, folder: str = FOLDER) -> list[str]:
        names = [entry.name for entry in self.store.list(folder).files]
        return [name for name in names if not name.startswith("_")]

    def aside(self) -> list[str]:
        return self.left(f"{FOLDER}/_FilesReadyToDelete")


@pytest.fixture
def zone() -> Zone:
    return Zone()


@pytest.mark.clause("LZ-049", "LZ-094", "LZ-105", "LZ-321")
@pytest.mark.parametrize("detection", [{}, BY_TIME], ids=["in sequence", "by time"])
@pytest.mark.parametrize(
    ("default", "expected"),
    [({}, [(1, "a"), (1, "b")]), (UPSERTS, [(1, "b")])],
    ids=["insert", "upsert"],
)
def test_the_four_combinations(
    zone: Zone, detection: dict[str, Any], default: dict[str, Any], expected: list[Any]
) -> None:
    zone.describe(**detection, **default)
    zone.land("2.parquet" if detection else f"{1:020d}.parquet", (1, "a"))
    zone.land("1.parquet" if detection else f"{2:020d}.parquet", (1, "b"))
    assert not zone.apply().errors
    assert zone.rows == expected


@pytest.mark.clause("LZ-126", "LZ-324")
def test_a_late_file_is_applied_after_newer_ones(zone: Zone) -> None:
    zone.describe(**BY_TIME, **UPSERTS)
    zone.land("b.parquet", (1, "newer"))
    zone.apply()
    zone.land("a.parquet", (1, "late"), at=1.0)
    zone.apply()
    assert (zone.rows, zone.batches()) == ([(1, "late")], [("b.parquet",), ("a.parquet",)])


@pytest.mark.clause("LZ-125", "LZ-324")
def test_files_of_one_time_are_applied_by_path(zone: Zone) -> None:
    zone.describe(**BY_TIME, **UPSERTS)
    for name in ("b.parquet", "c.parquet", "a.parquet"):
        zone.land(name, (1, name), at=7.0)
    zone.apply()
    assert zone.rows == [(1, "c.parquet")]


class TestAProcessedPathThatIsWrittenAgain:
    @pytest.mark.clause("LZ-127", "LZ-324")
    @pytest.mark.parametrize("name", ["a.parquet", "b.parquet"], ids=["put aside", "the last"])
    def test_it_is_not_read_again(self, zone: Zone, name: str) -> None:
        zone.land("a.parquet", (1, "a"))
        zone.land("b.parquet", (2, "b"))
        zone.apply()
        assert (zone.left(), zone.aside()) == (["b.parquet"], ["a.parquet"])
        zone.land(name, (9, "again"))
        assert not zone.apply().errors
        assert zone.rows == [(1, "a"), (2, "b")]
        assert (zone.left(), zone.aside()) == (["b.parquet"], ["a.parquet"])

    def test_a_warning_says_that_its_rows_are_not_read(self, zone: Zone) -> None:
        for name in ("a.parquet", "b.parquet"):
            zone.land(name, (1, "a"))
        with capture_logs() as lines:
            zone.apply()
            assert WRITTEN_AGAIN not in [line["event"] for line in lines]
            zone.land("a.parquet", (9, "again"))
            zone.apply()
        (path,) = [line["path"] for line in lines if line["event"] == WRITTEN_AGAIN]
        assert path == f"{FOLDER}/a.parquet"

    @pytest.mark.clause("LZ-127")
    def test_nor_when_its_first_content_is_long_gone(self, zone: Zone) -> None:
        zone.land("a.parquet", (1, "a"))
        zone.land("b.parquet", (2, "b"))
        zone.apply()
        zone.clock.advance(8 * 86_400)
        zone.apply()
        assert zone.aside() == []
        zone.land("a.parquet", (9, "again"))
        zone.apply()
        assert (zone.rows, zone.aside()) == ([(1, "a"), (2, "b")], ["a.parquet"])


@pytest.mark.clause("LZ-243", "LZ-250")
def test_the_most_recently_processed_file_stays_and_not_the_youngest(zone: Zone) -> None:
    zone.land("young.parquet", (1, "a"))
    zone.apply()
    zone.land("late.parquet", (2, "b"), at=1.0)
    zone.apply()
    assert (zone.left(), zone.aside()) == (["late.parquet"], ["young.parquet"])


@pytest.mark.clause("LZ-245", "LZ-252")
def test_files_of_any_name_leave_the_cleanup_folder_after_a_week(zone: Zone) -> None:
    for name in ("ä b.parquet", "c.parquet"):
        zone.land(name, (1, "a"))
    zone.apply()
    assert zone.aside() == ["ä b.parquet"]
    zone.clock.advance(8 * 86_400)
    zone.apply()
    assert (zone.left(), zone.aside()) == (["c.parquet"], [])


@pytest.mark.clause("LZ-267", "LZ-269")
def test_a_bad_file_stops_the_table_until_it_is_mended(zone: Zone) -> None:
    zone.land("a.parquet", (1, "a"))
    zone.store.replace(f"{FOLDER}/b.parquet", b"no Parquet")
    zone.land("c.parquet", (3, "c"))
    (error,) = zone.apply().errors
    assert (type(error), error.file, zone.rows) == (BadFile, "b.parquet", [(1, "a")])
    zone.land("b.parquet", (2, "b"))
    assert not zone.apply().errors
    assert sorted(zone.rows) == [(1, "a"), (2, "b"), (3, "c")]


def test_a_file_that_its_publisher_takes_away_is_not_missed(zone: Zone) -> None:
    zone.land("a.parquet", (1, "a"))
    zone.apply()
    zone.store.delete(f"{FOLDER}/a.parquet")
    zone.land("b.parquet", (2, "b"))
    assert not zone.apply().errors
    assert (zone.rows, zone.left()) == ([(1, "a"), (2, "b")], ["b.parquet"])


class TestATableThatIsMadeAgain:
    """As after a reset, or in a copy of the zone: what was applied before is in both folders."""

    @pytest.fixture(params=[1, 100], ids=["file by file", "at once"])
    def again(self, zone: Zone, request: pytest.FixtureRequest) -> Zone:
        zone.describe(**BY_TIME, **UPSERTS)
        zone.limits = BatchLimits(files=request.param)
        for name in ("c.parquet", "b.parquet", "a.parquet"):
            zone.land(name, (1, name))
        zone.apply()
        assert zone.aside() == ["b.parquet", "c.parquet"]
        zone.lake.tables.clear()
        return zone

    def test_all_files_are_applied_in_their_order(self, again: Zone) -> None:
        again.land("later.parquet", (2, "later"))
        assert not again.apply().errors
        names = [name for batch in again.batches() for name in batch]
        assert names == ["c.parquet", "b.parquet", "a.parquet", "later.parquet"]
        assert sorted(again.rows) == [(1, "a.parquet"), (2, "later")]

    def test_a_name_in_both_folders_is_applied_once(self, again: Zone) -> None:
        again.land("b.parquet", (1, "again"))
        assert not again.apply().errors
        names = [name for batch in again.batches() for name in batch]
        assert names == ["c.parquet", "a.parquet", "b.parquet"]
        assert again.rows == [(1, "again")]


class TestAFolderThatBeginsAnew:
    @pytest.fixture
    def two(self, zone: Zone) -> Zone:
        for name in ("a.parquet", "b.parquet"):
            zone.land(name, (1, name))
        zone.apply()
        return zone

    @pytest.mark.clause("LZ-232", "LZ-233")
    @pytest.mark.parametrize("files", [1, 2])
    def test_it_was_deleted_and_described_again_under_other_names(
        self, zone: Zone, files: int
    ) -> None:
        for name in ("a.parquet", "b.parquet")[:files]:
            zone.land(name, (1, name))
        zone.apply()
        zone.store.delete_folder(FOLDER)
        zone.describe(**BY_TIME)
        zone.land("c.parquet", (9, "anew"))
        assert not zone.apply().errors
        assert zone.rows == [(9, "anew")]
        zone.land("d.parquet", (10, "more"))
        assert not zone.apply().errors
        assert zone.rows == [(9, "anew"), (10, "more")]

    @pytest.mark.crash
    @pytest.mark.clause("LZ-326")
    @pytest.mark.parametrize("kill", range(1, 13))
    def test_whatever_is_killed_the_new_files_are_applied_once(self, two: Zone, kill: int) -> None:
        two.store.delete_folder(FOLDER)
        two.describe(**BY_TIME)
        two.land("c.parquet", (9, "anew"))
        two.land("d.parquet", (9, "anew too"))
        left = kill

        def killed(point: CrashPoint) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise Crash(str(point))

        for _ in range(2):
            loop = two.loop(killed)
            with suppress(Crash):
                loop.open()
                loop.once()
                loop.close()
            two.clock.advance(3600)
        assert not two.apply().errors
        assert two.rows == [(9, "anew"), (9, "anew too")]

    @pytest.mark.clause("LZ-233")
    def test_metadata_that_is_written_again_alone_changes_nothing(self, two: Zone) -> None:
        two.describe(**BY_TIME)
        two.land("c.parquet", (9, "more"))
        assert not two.apply().errors
        assert len(two.rows) == 3

    def test_a_last_file_that_is_gone_alone_changes_nothing(self, two: Zone) -> None:
        two.store.delete_folder(f"{FOLDER}/_FilesReadyToDelete")
        two.store.delete(f"{FOLDER}/b.parquet")
        two.land("c.parquet", (9, "more"))
        assert not two.apply().errors
        assert len(two.rows) == 3

    @pytest.mark.clause("LZ-249")
    def test_a_cleanup_folder_that_was_emptied_is_no_evidence(self, two: Zone) -> None:
        two.describe(**BY_TIME)
        two.store.delete(f"{FOLDER}/_FilesReadyToDelete/a.parquet")
        two.store.delete(f"{FOLDER}/b.parquet")
        two.land("c.parquet", (9, "more"))
        assert not two.apply().errors
        assert len(two.rows) == 3

    @pytest.mark.clause("LZ-127")
    def test_a_last_file_that_is_written_again_is_none_either(self, two: Zone) -> None:
        two.describe(**BY_TIME)
        two.store.delete_folder(f"{FOLDER}/_FilesReadyToDelete")
        two.land("b.parquet", (9, "again"))
        assert not two.apply().errors
        assert len(two.rows) == 2


class TestSwitching:
    def test_names_do_not_become_numbers(self, zone: Zone) -> None:
        zone.land(f"{1:020d}.parquet", (1, "a"))
        zone.apply()
        zone.describe()
        zone.land(f"{2:020d}.parquet", (2, "b"))
        (error,) = zone.apply().errors
        assert (type(error), zone.rows) == (DetectionChanged, [(1, "a")])
        zone.describe(**BY_TIME)
        assert not zone.apply().errors
        assert zone.rows == [(1, "a"), (2, "b")]

    def test_numbers_do_not_become_names(self, zone: Zone) -> None:
        zone.describe()
        for number in (1, 2, 3):
            zone.land(f"{number:020d}.parquet", (number, "a"))
        zone.apply()
        zone.describe(**BY_TIME)
        (error,) = zone.apply().errors
        assert (type(error), len(zone.rows)) == (DetectionChanged, 3)
        assert zone.left() == [f"{3:020d}.parquet"]


class TestWhatIsKnown:
    @pytest.fixture
    def two(self, zone: Zone) -> Zone:
        """Two batches, applied and recorded."""
        for name in ("a.parquet", "b.parquet"):
            zone.land(name, (1, name))
            zone.apply()
        return zone

    def test_it_is_recorded_before_files_go_aside(self, two: Zone) -> None:
        records = [p for p in two.store.files.content if p.startswith(RECORD)]
        assert len(records) == 2

    @pytest.mark.parametrize("generation", ["../../../../x", "/x", "x" * 300, "."])
    def test_no_generation_leads_out_of_its_folder(self, zone: Zone, generation: str) -> None:
        ours = {"format": "1", "generation": generation, "table": "t", "source": {"schema": "s"}}
        zone.describe(**BY_TIME, mirrorlake=ours)
        zone.land("a.parquet", (1, "a"))
        assert not zone.apply().errors
        (record,) = [p for p in zone.store.files.content if p.endswith(f"-{1:020d}.json")]
        assert record.startswith(f"{RECORD}/")
        assert len(record.split("/")) == len(RECORD.split("/")) + 2

    def test_a_lost_record_is_made_again_from_the_commits(self, two: Zone) -> None:
        two.store.delete_folder(RECORD)
        assert not two.apply().errors
        two.table.forgotten = 2
        two.land("a.parquet", (9, "again"))
        assert not two.apply().errors
        assert len(two.rows) == 2

    def test_a_table_that_went_back_behind_its_record_stops(self, two: Zone) -> None:
        two.table.recorded, two.table.named = 1, two.table.named[:1]
        (error,) = two.apply().errors
        assert isinstance(error, ProgressLost)
        assert len(two.rows) == 2

    def test_a_gap_that_no_commit_fills_stops_the_table(self, two: Zone) -> None:
        records = sorted(p for p in two.store.files.content if p.startswith(RECORD))
        two.store.delete(records[0])
        two.table.forgotten = 1
        two.land("c.parquet", (3, "c"))
        (error,) = two.apply().errors
        assert isinstance(error, ProgressLost)
        assert "batch 1" in error.what
        assert (len(two.rows), two.left()) == (2, ["b.parquet", "c.parquet"])

    def test_a_later_release_is_named(self, two: Zone) -> None:
        for path in [p for p in two.store.files.content if p.startswith(RECORD)]:
            two.store.replace(path, b'{"format": "2"}')
        (error,) = two.apply().errors
        assert isinstance(error, ProgressLost)
        assert "format 2" in error.what

    def test_it_is_not_read_again_in_every_cycle(
        self, two: Zone, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        loop = two.loop()
        loop.open()
        loop.cycle(None)
        read: list[str] = []
        of_store = MemoryStore.read
        monkeypatch.setattr(
            MemoryStore, "read", lambda self, path: [read.append(path), of_store(self, path)][1]
        )
        for number in range(3):
            two.land(f"{number}.parquet", (number, "a"))
            loop.cycle(None)
            loop.cycle(None)
        assert len(two.rows) == 5
        assert not [path for path in read if path.startswith(RECORD)]

    def test_looking_changes_nothing(self, two: Zone) -> None:
        two.store.delete_folder(RECORD)
        before = dict(two.store.files.content)
        two.loop()._planning.whole_plan(None)
        assert two.store.files.content == before
