"""Tables with a sequence of files in each partition folder, through the whole apply loop."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from mirrorlake.app import files
from mirrorlake.app.loop.apply_loop import ApplyLoop
from mirrorlake.app.loop.report import ApplyReport
from mirrorlake.config import Project
from mirrorlake.errors import (
    BadFile,
    DetectionChanged,
    DuplicateNumber,
    ForeignTable,
    MissingFile,
)
from mirrorlake.landing.scan import WITHOUT_EFFECT
from mirrorlake.mirror.batch_limits import BatchLimits
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.model.crash_points import CrashHook, CrashPoint, no_crash
from tests.app.test_by_time import FOLDER
from tests.app.test_by_time import Zone as TimedZone
from tests.app.zones import Zone as FileZone
from tests.doubles.memory_store import Crash
from tests.landing.files import encoded
from tests.profiles import tries
from tests.sim.engine import ModelledEngine

MON, TUE, NORTH = "Day=1", "Day=2", "Day=1/Region=north"


class Zone(TimedZone):
    """A zone with one table that says it is partitioned. partitions: whether the mirror cares."""

    partitions = True

    def describe(self, *key: str, **members: Any) -> None:
        members.pop("fileDetectionStrategy", None)
        super().describe(*key, **({"isPartitionEnabled": "true"} | members))

    def put(self, part: str, number: int, *rows: tuple[int, str], marker: int = 0) -> None:
        """File `number` of a partition folder, of the table folder for ""."""
        self.clock.advance(1)
        columns = {
            "id": [i for i, _v in rows],
            "v": [v for _i, v in rows],
            "__rowMarker__": [marker] * len(rows),
        }
        self.store.replace(self.path(part, number), encoded(columns))

    def path(self, part: str, number: int) -> str:
        return "/".join(filter(None, [FOLDER, part, f"{number:020d}.parquet"]))

    def loop(self, reached: CrashHook = no_crash) -> ApplyLoop:
        engine = ModelledEngine(self.lake, self.store, Random(0), reached, lost_answers=0.0)
        chosen = MirrorSettings(limits=self.limits, partitions=self.partitions)
        return ApplyLoop(
            self.store, engine, chosen, self.clock, reached=reached, holder="the mirror"
        )

    def applied(self, reached: CrashHook = no_crash) -> ApplyReport:
        loop = self.loop(reached)
        loop.open()
        report = loop.once()
        loop.close()
        return report

    def order(self) -> list[str]:
        """The files in the order in which they were applied, as folder and number."""
        names = [name for batch in self.table.named for name in batch.names]
        return [name.removesuffix(".parquet").replace("0" * 19, "") for name in names]

    def numbers(self, part: str, *, aside: bool = False) -> list[int]:
        location = "/".join(filter(None, [FOLDER, part, "_FilesReadyToDelete" if aside else ""]))
        return [int(name[:20]) for name in self.left(location)]


@pytest.fixture
def zone() -> Zone:
    return Zone()


class TestASequenceInEachFolder:
    @pytest.mark.clause("LZ-059", "LZ-114")
    def test_every_folder_begins_with_number_one(self, zone: Zone) -> None:
        zone.put(MON, 1, (1, "a"))
        zone.put(NORTH, 1, (2, "b"))
        zone.put(TUE, 1, (3, "c"))
        zone.put(MON, 2, (4, "d"))
        assert not zone.applied().errors
        assert sorted(zone.rows) == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
        assert zone.order() == [f"{MON}/1", f"{NORTH}/1", f"{TUE}/1", f"{MON}/2"]

    @pytest.mark.clause("LZ-059")
    def test_a_folder_goes_by_its_numbers_and_several_by_the_time_of_landing(
        self, zone: Zone
    ) -> None:
        zone.put(MON, 2, (1, "second"), marker=4)
        zone.put(TUE, 1, (2, "c"))
        zone.put(MON, 1, (1, "first"), marker=4)
        assert not zone.applied().errors
        assert zone.order() == [f"{TUE}/1", f"{MON}/1", f"{MON}/2"]
        assert (1, "second") in zone.rows

    @pytest.mark.clause("LZ-117")
    def test_a_gap_blocks_its_folder_and_no_other(self, zone: Zone) -> None:
        for part, number in ((MON, 1), (MON, 3), (TUE, 1), (TUE, 2)):
            zone.put(part, number, (number, part))
        (error,) = zone.applied().errors
        assert isinstance(error, MissingFile)
        assert "file 2 is missing in Day=1, 3 is waiting" in str(error)
        assert zone.order() == [f"{MON}/1", f"{TUE}/1", f"{TUE}/2"]
        zone.put(MON, 2, (2, MON))
        assert not zone.applied().errors
        assert zone.order()[-2:] == [f"{MON}/2", f"{MON}/3"]

    def test_the_table_folder_may_have_a_sequence_too(self, zone: Zone) -> None:
        zone.put("", 1, (1, "a"))
        zone.put(MON, 1, (2, "b"))
        zone.put("", 2, (3, "c"))
        assert not zone.applied().errors
        assert zone.order() == ["1", f"{MON}/1", "2"]

    def test_values_in_names_of_folders_are_no_columns(self, zone: Zone) -> None:
        zone.put(NORTH, 1, (1, "a"))
        zone.applied()
        assert zone.table.schema.names == ["id", "v"]

    def test_other_folders_are_not_looked_at(self, zone: Zone) -> None:
        for part in ("plain", "_Day=1", "=1", f"{MON}/plain", f"{MON}/_scratch"):
            zone.put(part, 1, (1, part))
        zone.put(MON, 1, (1, "a"))
        zone.applied()
        assert zone.rows == [(1, "a")]


class TestWhatIsWrong:
    def test_a_bad_file_is_named_with_its_folder_and_mended_there(self, zone: Zone) -> None:
        zone.put(MON, 1, (1, "a"))
        zone.store.replace(zone.path(TUE, 1), b"no Parquet")
        (error,) = zone.applied().errors
        assert (type(error), error.file) == (BadFile, f"{TUE}/{1:020d}.parquet")
        zone.put(TUE, 1, (2, "b"))
        assert not zone.applied().errors
        assert sorted(zone.rows) == [(1, "a"), (2, "b")]

    @pytest.mark.clause("LZ-120")
    def test_a_number_twice_in_one_folder_is_an_error_and_in_two_is_none(self, zone: Zone) -> None:
        zone.put(MON, 1, (1, "a"))
        zone.put(TUE, 1, (2, "b"))
        zone.store.replace(f"{FOLDER}/{TUE}/{1:020d}.csv", b"id,v\n1,a\n")
        (error,) = zone.applied().errors
        assert isinstance(error, DuplicateNumber)

    def test_a_folder_that_lost_its_last_file_and_begins_again_stops_the_table(
        self, zone: Zone
    ) -> None:
        for number in (1, 2, 3):
            zone.put(MON, number, (number, "a"))
        zone.applied()
        zone.store.delete_folder(f"{FOLDER}/{MON}")
        zone.put(MON, 1, (9, "again"))
        (error,) = zone.applied().errors
        assert isinstance(error, ForeignTable)
        assert "file 3, the last one applied, is missing from Day=1, while file 1 is there" in str(
            error
        )
        assert len(zone.rows) == 3

    def test_switching_it_on_or_off_stops_a_table_that_has_files(self, zone: Zone) -> None:
        zone.put(MON, 1, (1, "a"))
        zone.applied()
        zone.partitions = False
        (error,) = zone.applied().errors
        assert isinstance(error, DetectionChanged)
        zone.partitions = True
        assert not zone.applied().errors


@pytest.mark.clause("LZ-024", "LZ-059")
@pytest.mark.parametrize("members", [{}, {"isPartitionEnabled": False}], ids=["off", "not said"])
def test_without_the_switch_or_the_member_folders_are_ignored(
    zone: Zone, members: dict[str, Any]
) -> None:
    zone.partitions = bool(members)
    zone.describe(**members)
    zone.put("", 1, (1, "a"))
    zone.put(MON, 1, (2, "b"))
    with capture_logs() as lines:
        assert not zone.applied().errors
    assert zone.rows == [(1, "a")]
    said = [line["members"] for line in lines if line["event"] == WITHOUT_EFFECT]
    assert said == ([] if members else [["isPartitionEnabled"]])


class TestCleanup:
    @pytest.mark.clause("LZ-243", "LZ-246")
    def test_each_folder_keeps_its_last_file_and_has_a_cleanup_folder(self, zone: Zone) -> None:
        for number in (1, 2, 3):
            zone.put(MON, number, (number, "a"))
        zone.put(TUE, 1, (4, "b"))
        zone.applied()
        assert (zone.numbers(MON), zone.numbers(MON, aside=True)) == ([3], [1, 2])
        assert (zone.numbers(TUE), zone.numbers(TUE, aside=True)) == ([1], [])
        info = zone.store.read(f"{FOLDER}/{MON}/_FilesReadyToDelete/_FilesReadyToDeleteInfo.json")
        names = [file["name"] for file in json.loads(info)["files"]]
        assert names == [f"{number:020d}.parquet" for number in (1, 2)]

    @pytest.mark.clause("LZ-245")
    def test_files_go_after_a_week(self, zone: Zone) -> None:
        for number in (1, 2):
            zone.put(NORTH, number, (number, "a"))
        zone.applied()
        zone.clock.advance(8 * 86_400)
        zone.applied()
        assert (zone.numbers(NORTH), zone.numbers(NORTH, aside=True)) == ([2], [])

    def test_a_table_that_is_made_again_finds_the_files_aside(self, zone: Zone) -> None:
        for part in (MON, TUE):
            for number in (1, 2, 3):
                zone.put(part, number, (number, part))
        zone.applied()
        zone.lake.tables.clear()
        assert not zone.applied().errors
        assert len(zone.rows) == 6

    def test_a_deleted_folder_goes_on_where_it_was(self, zone: Zone) -> None:
        zone.put(MON, 1, (1, "a"))
        zone.applied()
        zone.store.delete_folder(f"{FOLDER}/{MON}")
        assert not zone.applied().errors
        zone.put(MON, 2, (2, "b"))
        assert not zone.applied().errors
        assert zone.rows == [(1, "a"), (2, "b")]


class TestARecreatedFolder:
    @pytest.mark.clause("LZ-233")
    def test_it_is_read_from_number_one_again(self, zone: Zone) -> None:
        for part in (MON, TUE):
            for number in (1, 2):
                zone.put(part, number, (number, part))
        zone.applied()
        zone.store.delete_folder(FOLDER)
        zone.describe()
        zone.put(TUE, 1, (7, "anew"))
        zone.put(TUE, 2, (8, "anew, and under a name that was applied"))
        assert not zone.applied().errors
        assert [i for i, _v in zone.rows] == [7, 8]

    def test_a_file_that_is_there_as_it_was_applied_tells_that_it_goes_on(self, zone: Zone) -> None:
        zone.put(MON, 1, (1, "a"))
        zone.applied()
        zone.describe()
        zone.put(TUE, 1, (2, "b"))
        assert not zone.applied().errors
        assert zone.rows == [(1, "a"), (2, "b")]


def test_tasks_and_commits_carry_the_folders(tmp_path: Path) -> None:
    """The work of an engine, without a JVM."""
    zone = FileZone(tmp_path / "root", settings=MirrorSettings(partitions=True))
    zone.table("t")
    metadata = zone.folder("t") / "_metadata.json"
    metadata.write_text('{"keyColumns": ["id"], "isPartitionEnabled": true}')
    for day in (1, 2):
        (zone.folder("t") / f"Day={day}").mkdir()
        for number in (1, 2):
            rows = {"id": [day], "v": [f"{number}"], "__rowMarker__": [4]}
            zone.land(f"t/Day={day}", number, rows)
    assert not zone.apply().errors
    assert zone.rows("t") == [(1, "2"), (2, "2")]
    assert not zone.apply().errors
    assert zone.rows("t") == [(1, "2"), (2, "2")]
    told = files.read(replace(Project.of_root(zone.root), mirror=zone.settings), "s.t")
    assert told.recorded is None
    names = [name for one in told.files for name in one.names]
    assert names == [f"Day={day}/{number:020d}.parquet" for day in (1, 2) for number in (1, 2)]


class Killed:
    """A probe that ends the process when it is reached for the nth time."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, point: CrashPoint) -> None:
        self.left -= 1
        if self.left == 0:
            raise Crash(str(point))


@pytest.mark.crash
@pytest.mark.clause("LZ-258", "LZ-326")
@settings(max_examples=tries(30))
@given(
    landed=st.lists(st.sampled_from([MON, TUE, NORTH, ""]), min_size=1, max_size=6),
    kills=st.lists(st.integers(1, 25), max_size=4),
    at_once=st.integers(1, 3),
)
def test_whatever_is_killed_every_file_is_applied_once(
    landed: list[str], kills: list[int], at_once: int
) -> None:
    zone = Zone()
    zone.limits = BatchLimits(files=at_once)
    count: dict[str, int] = {}
    for identity, part in enumerate(landed):
        count[part] = count.get(part, 0) + 1
        zone.put(part, count[part], (identity, part))  # inserted twice, a row would be there twice
    for kill in kills:
        loop = zone.loop(Killed(kill))
        try:
            loop.open()
            loop.once()
            loop.close()
        except Crash:
            zone.clock.advance(3600)
    assert not zone.applied().errors
    assert sorted(zone.rows) == list(enumerate(landed))
    assert all(zone.numbers(part) == [last] for part, last in count.items())
