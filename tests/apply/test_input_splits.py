"""Large texts on several tasks, and what makes one task read all."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.apply import input_splits
from mirrorlake.apply.in_process.runner import InProcessRunner
from mirrorlake.apply.task import batch
from mirrorlake.apply.task.landed_rows import LandedPath
from mirrorlake.errors import TableError
from mirrorlake.landing.text.format import TextFormat
from mirrorlake.mirror.row_checks import RowChecks
from mirrorlake.mirror.settings import MirrorSettings
from tests.app.zones import MARKER, Zone

PARTS = 1_000


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_splits, "MIN_BYTES", PARTS)
    monkeypatch.setattr(input_splits, "MAX_BYTES", 2 * PARTS)


@pytest.fixture
def zone(tmp_path: Path) -> Zone:
    return Zone(tmp_path / "root")


def write(zone: Zone, name: str, *texts: str | bytes, **form: Any) -> None:
    columns: list[dict[str, Any]] = [{"Name": "id", "DataType": "Int32", "IsNullable": True}]
    columns += [{"Name": "v", "DataType": "String"}]
    zone.folder(name).mkdir(parents=True)
    metadata = {"keyColumns": ["id"], "SchemaDefinition": {"Columns": columns}} | form
    (zone.folder(name) / "_metadata.json").write_text(json.dumps(metadata))
    for number, text in enumerate(texts, 1):
        body = text.encode() if isinstance(text, str) else text
        (zone.folder(name) / f"{number:020d}.csv").write_bytes(body)


def data_files(zone: Zone, name: str) -> int:
    return len(list((zone.root / "Tables/s" / name).glob("*.parquet")))


def rows(zone: Zone, name: str) -> list[tuple[Any, ...]]:
    return sorted(zone.rows(name))


def commit_metadata(zone: Zone, name: str) -> dict[str, Any]:
    """What the commit of the first batch says of itself."""
    log = zone.root / "Tables/s" / name / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    info = next(action["commitInfo"] for action in actions if "commitInfo" in action)
    found: dict[str, Any] = json.loads(info["userMetadata"])
    return found


def fault(zone: Zone) -> TableError:
    (error,) = zone.apply().errors
    assert isinstance(error, TableError)
    return error


QUOTED = "".join(f'{n},"two\nlines, {n}"\n' for n in range(500))
EXPECTED = [(n, f"two\nlines, {n}") for n in range(500)]


class TestLoads:
    def test_a_large_text_becomes_several_data_files_in_one_commit(self, zone: Zone) -> None:
        write(zone, "t", "id,v\n" + QUOTED)
        zone.apply()
        assert rows(zone, "t") == EXPECTED
        assert data_files(zone, "t") > 3
        said = commit_metadata(zone, "t")
        assert (said["rows"]["insert"], len(said["read"])) == (500, 1)
        assert "500" in json.dumps(said["read"])

    def test_inserts_with_markers_are_split_too(self, zone: Zone) -> None:
        text = "".join(f"{n},x,0\n" for n in range(1_000))
        write(zone, "t", f"id,v,{MARKER}\n{text}")
        zone.apply()
        assert rows(zone, "t") == [(n, "x") for n in range(1_000)]
        assert data_files(zone, "t") > 3

    def test_a_text_with_other_markers_is_read_by_one_task(self, zone: Zone) -> None:
        text = "".join(f"{n},x,0\n" for n in range(1_000))
        write(zone, "t", f"id,v,{MARKER}\n{text}7,y,4\n8,,2\n")
        zone.apply()
        kept = [(n, "x") for n in range(1_000) if n not in {7, 8}]
        assert rows(zone, "t") == sorted([*kept, (7, "y")])
        assert sum(commit_metadata(zone, "t")["rows"].values()) == 999

    def test_upserts_are_looked_up(self, zone: Zone) -> None:
        text = "".join(f"{n % 500},{n}\n" for n in range(1_000))
        write(zone, "t", f"id,v\n{text}", isUpsertDefaultRowMarker=True)
        zone.apply()
        assert rows(zone, "t") == [(n, str(500 + n)) for n in range(500)]

    def test_several_files_keep_their_counts(self, zone: Zone) -> None:
        small = "id,v\n900,x\n"
        write(
            zone, "t", small, "id,v\n" + QUOTED, small, gzip.compress(("id,v\n" + QUOTED).encode())
        )
        zone.apply()
        assert rows(zone, "t") == sorted([*EXPECTED, *EXPECTED, (900, "x"), (900, "x")])
        assert commit_metadata(zone, "t")["rows"]["insert"] == 1_002


class TestFaults:
    @pytest.mark.clause("LZ-270")
    def test_the_first_invalid_value_of_all_parts_is_reported(self, zone: Zone) -> None:
        write(zone, "t", "id,v\n" + QUOTED + "bad,x\n" + QUOTED + "worse,x\n" + QUOTED)
        error = fault(zone)
        assert (error.row, error.column, error.value) == (501, "id", "bad")
        assert "on line 1002" in error.what

    def test_a_null_key_has_its_row_in_the_file(self, zone: Zone) -> None:
        zone.settings = MirrorSettings(row_checks=RowChecks(strict_keys=True))
        write(zone, "t", f"id,v\n{QUOTED},x\n{QUOTED}", FileFormatTypeProperties={})
        error = fault(zone)
        assert (error.row, error.column) == (501, "id")

    def test_a_deleted_file_is_reported(self, tmp_path: Path) -> None:
        gone = LandedPath("1.csv", str(tmp_path / "gone.csv"), 10 * PARTS, TextFormat())
        found = input_splits.split_inserts(InProcessRunner(), [gone], is_load=True)
        assert found == [(gone,)]


class TestGroups:
    def groups(self, landed: list[LandedPath], *, is_load: bool = True) -> Any:
        return input_splits.split_inserts(InProcessRunner(), landed, is_load=is_load)

    def text(self, size: int, **form: Any) -> LandedPath:
        return LandedPath(f"{size}.csv", "/nowhere", size, TextFormat(**form))

    def test_small_texts_are_read_together(self) -> None:
        small = [self.text(PARTS // 4)] * 9
        assert [len(group) for group in self.groups(small)] == [4, 4, 1]

    def test_parquet_is_not_split(self) -> None:
        assert self.groups([LandedPath("1.parquet", "/nowhere", 10 * PARTS)]) is None

    def test_small_texts_with_markers_are_folded(self) -> None:
        assert self.groups([self.text(PARTS)], is_load=False) is None

    def test_wide_characters_are_read_by_one_task(self) -> None:
        wide = self.text(10 * PARTS, encoding="utf-16")
        assert self.groups([wide]) == [(wide,)]


class TestGrouping:
    @pytest.fixture(autouse=True)
    def small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(input_splits, "MIN_GROUP_BYTES", PARTS)

    def sizes(self, *sizes: int, slots: int = 2) -> list[list[int]]:
        """Of the files of each task."""
        landed = [LandedPath(f"{n}.parquet", "/nowhere", size) for n, size in enumerate(sizes)]
        found = input_splits.group_files(landed, slots)
        assert [file for some in found for file in some] == landed
        return [[file.size for file in some] for some in found]

    def test_tiny_files_of_a_load_are_read_by_one_task(self) -> None:
        assert self.sizes(*[1] * 40) == [[1] * 40]

    def test_large_ones_have_a_task_each(self) -> None:
        assert self.sizes(*[3 * PARTS] * 3) == [[3 * PARTS]] * 3
        assert self.sizes(1, 3 * PARTS, 1) == [[1], [3 * PARTS], [1]]

    def test_all_slots_are_used_and_no_task_reads_too_much(self) -> None:
        assert len(self.sizes(*[PARTS // 4] * 16)) == 4
        assert len(self.sizes(*[PARTS // 4] * 80)) == 10
        assert len(self.sizes(*[PARTS // 4] * 80, slots=8)) == 16


def test_rows_of_parts_are_those_of_their_file() -> None:
    results = [
        batch.BatchResult(read=((1, 0, 0, 0), (2, 0, 0, 0))),
        batch.BatchResult(read=((3, 0, 0, 0),), continues=True),
        batch.BatchResult(read=((4, 0, 0, 0),), continues=True),
        batch.BatchResult(read=((5, 0, 0, 0),)),
    ]
    found = batch.rows_of_files(results)
    assert found == [(1, 0, 0, 0), (9, 0, 0, 0), (5, 0, 0, 0)]


def test_a_file_that_is_replaced_while_its_parts_are_read_is_read_again(
    zone: Zone, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(zone, "t", "id,v\n" + QUOTED)
    path = zone.folder("t") / f"{1:020d}.csv"
    truly, replaced = InProcessRunner.run, []

    def run(self: InProcessRunner, work: Any, items: Any, packing: Any = None) -> Any:
        found = truly(self, work, items, packing)
        if items and work is batch.run_batch and not replaced:
            replaced.append(path)
            path.write_text("id,v\n" + QUOTED.replace("two", "new"))
            os.utime(path, (1, 1))
        return found

    monkeypatch.setattr(InProcessRunner, "run", run)
    zone.apply()
    zone.apply()
    assert rows(zone, "t") == [(n, f"new\nlines, {n}") for n in range(500)]
