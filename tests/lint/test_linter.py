"""The linter as a whole: what it reads, what it leaves alone, what it says of places."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from mirrorlake.errors import UsageError
from mirrorlake.landing.parquet import bounded
from mirrorlake.landing.parquet.reader import Rows
from mirrorlake.lint import (
    FindingLocation,
    Profile,
    Reading,
    Result,
    Target,
    Unread,
    lint,
    of_path,
    text_files,
)
from mirrorlake.lint.finding import ALIKE
from mirrorlake.lint.rules.rows import RowCheck
from mirrorlake.model.table import TableId
from tests.landing.files import encoded
from tests.lint.zones import CHANGES, ROWS, STRICT, V2, Zone, clean, keys, marked, tree


def only(result: Result) -> FindingLocation:
    (found,) = result.findings
    return found.location


class TestPaths:
    """What the linter may be pointed at."""

    @pytest.mark.clause("LZ-007", "LZ-013")
    @pytest.mark.parametrize(
        ("path", "tables"),
        [
            ("", 3),
            ("Files/LandingZone", 3),
            ("Files/LandingZone/orders", 1),
            ("Files/LandingZone/Sales.schema", 1),
            ("Files/LandingZone/Sales.schema/lines", 1),
        ],
    )
    def test_any_folder_of_a_zone_will_do(self, tmp_path: Path, path: str, tables: int) -> None:
        clean(tmp_path)
        result = lint(of_path(tmp_path / path))
        assert (result.tables, keys(result)) == (tables, set())

    @pytest.mark.clause("LZ-008")
    def test_the_path_of_the_first_page_will_do(self, tmp_path: Path) -> None:
        zone = clean(tmp_path / "new")
        zone.path.rename(tmp_path / "LandingZone")
        for path in (tmp_path, tmp_path / "LandingZone"):
            assert lint(of_path(path)).tables == 3

    def test_a_landing_zone_of_any_name_will_do(self, tmp_path: Path) -> None:
        zone = clean(tmp_path / "root")
        copy = zone.path.rename(tmp_path / "copy")
        assert lint(of_path(copy)).tables == 3

    def test_a_table_is_named_with_its_schema(self, tmp_path: Path) -> None:
        zone = clean(tmp_path)
        zone.change("Sales.schema/lines", 3, CHANGES)
        for path in (zone.root, zone.path / "Sales.schema" / "lines"):
            assert only(lint(of_path(path))).table == TableId("Sales", "lines")

    @pytest.mark.parametrize("path", ["", "absent", "file"])
    def test_anything_else_is_wrong_use(self, tmp_path: Path, path: str) -> None:
        (tmp_path / "file").write_text("x")
        with pytest.raises(UsageError):
            of_path(tmp_path / path)


class TestLocations:
    """A finding leads to the place that breaks the rule."""

    def test_a_row_is_counted_over_the_whole_file(self, tmp_path: Path) -> None:
        zone = clean(tmp_path)
        rows = 100_000
        columns = {"id": range(10, rows + 10), "name": ["x"] * rows, "city": ["y"] * rows}
        zone.change("orders", 3, columns, [0] * (rows - 3) + [3, 0, 0])
        location = only(zone.lint())
        assert (location.file, location.row) == (f"{3:020d}.parquet", rows - 2)

    def test_a_member_has_line_and_character(self, tmp_path: Path) -> None:
        zone = clean(tmp_path)
        zone.put("orders/_metadata.json", '{"keyColumns": ["id"],\n "extra": 1}')
        location = only(zone.lint())
        assert (location.line, location.character) == (2, 11)

    def test_a_row_of_text_names_column_and_value(self, tmp_path: Path) -> None:
        zone = clean(tmp_path)
        zone.write("notes", 3, "id,name,__rowMarker__", "7,Eva,0", "x,Finn,0")
        (found,) = zone.lint().findings
        assert (found.location.row, found.location.column) == (2, "id")
        assert "'x'" in found.found

    def test_a_changed_type_names_both_types_and_the_file(self, tmp_path: Path) -> None:
        zone = clean(tmp_path)
        zone.change("orders", 3, ROWS | {"city": [1, 2, 3]}, [1, 1, 1])
        (found,) = zone.lint().findings
        assert found.found == "long"
        assert found.expected == f"string, as in {1:020d}.parquet"

    def test_names_from_outside_are_shown_without_control_characters(self, tmp_path: Path) -> None:
        zone = clean(tmp_path)
        zone.put("orders/\x1b[31mred\n.parquet", b"x")
        (found,) = zone.lint().findings
        assert found.found.isprintable()

    def test_of_many_equal_findings_the_first_are_listed_and_all_are_counted(
        self, tmp_path: Path
    ) -> None:
        zone = clean(tmp_path)
        for number in range(3, 3 + ALIKE + 5):
            zone.put(f"orders/{number:020d}.parquet")
        result = zone.lint()
        assert len(result.findings) == ALIKE
        assert result.report.errors == ALIKE + 5
        assert dict(result.report.more) == {("LZ-276/zero-bytes", TableId("", "orders")): 5}


class TestSequences:
    """What was processed already belongs to the sequence."""

    def test_processed_files_leave_no_gap(self, tmp_path: Path) -> None:
        zone = clean(tmp_path)
        moved = zone.path / "orders" / "_FilesReadyToDelete"
        moved.mkdir()
        (zone.path / "orders" / f"{1:020d}.parquet").rename(moved / f"{1:020d}.parquet")
        assert keys(zone.lint()) == set()

    def test_a_cleanup_folder_that_was_emptied_leaves_no_gap(self, tmp_path: Path) -> None:
        zone = clean(tmp_path)
        (zone.path / "orders" / "_ProcessedFiles").mkdir()
        (zone.path / "orders" / f"{1:020d}.parquet").unlink()
        assert keys(zone.lint()) == set()

    @pytest.mark.clause("LZ-103")
    def test_deletes_may_lack_every_column_but_the_key(self, tmp_path: Path) -> None:
        zone = clean(tmp_path)
        zone.change("orders", 3, {"id": [1, 2]}, [2, 2])
        zone.write("notes", 3, "id,__rowMarker__", "1,2")
        assert keys(zone.lint()) == set()

    def test_a_change_of_the_key_is_not_a_repeated_insert(self, tmp_path: Path) -> None:
        zone = clean(tmp_path)
        columns = {"id": [7, 7, 7, 8], "name": list("aabb"), "city": list("xxyy")}
        zone.change("orders", 3, columns, [0, 2, 0, 0])
        assert keys(zone.lint()) == set()

    @pytest.mark.clause("LZ-122")
    def test_files_of_any_name_are_data_when_read_by_time(self, tmp_path: Path) -> None:
        zone = clean(tmp_path)
        zone.describe("t", keyColumns=["id"], fileDetectionStrategy="LastUpdateTimeFileDetection")
        for time, name in enumerate(("b.parquet", "a.parquet")):
            os.utime(zone.put(f"t/{name}", encoded(ROWS)), (time, time))
        zone.put("t/c.parquet", b"PAR1")
        assert keys(zone.lint()) == {"LZ-276/incomplete"}


class TestReading:
    """How much is read, and what is said of the rest."""

    def large(self, root: Path, files: int) -> Zone:
        zone = clean(root)
        for number in range(3, files + 1):
            zone.change("orders", number, ROWS, [1, 1, 1])
        return zone

    def test_a_small_zone_is_read_whole(self, tmp_path: Path) -> None:
        assert self.large(tmp_path, 30).lint().unread == Unread()

    def test_of_a_large_zone_it_says_what_it_did_not_read(self, tmp_path: Path) -> None:
        zone = self.large(tmp_path, 30)
        result = zone.lint(reading=Reading(budget=0, opened=20, sampled=4, least=1))
        # Of 30 files 16 are opened and not sampled; two of text are not larger than a block.
        assert result.unread == Unread(unopened=10, footers=16)
        assert (
            "Not fully read: 10 files not opened, 16 files read for their columns only."
            in result.unread.summary()
        )

    def test_the_first_and_the_last_file_are_among_the_samples(self, tmp_path: Path) -> None:
        zone = self.large(tmp_path, 30)
        zone.change("orders", 31, ROWS, [3, 1, 1])
        result = zone.lint(reading=Reading(budget=0, opened=5, sampled=2, least=1))
        assert keys(result) == {"LZ-085/marker-unknown"}

    def test_what_a_sample_misses_is_found_when_all_is_read(self, tmp_path: Path) -> None:
        zone = self.large(tmp_path, 30)
        zone.change("orders", 7, ROWS, [3, 1, 1])
        sampled = Reading(budget=0, opened=5, sampled=2, least=1)
        assert keys(zone.lint(reading=sampled)) == set()
        everything = zone.lint(reading=Reading(everything=True, budget=0))
        assert keys(everything) == {"LZ-085/marker-unknown"}
        assert everything.unread == Unread()

    def test_only_the_first_rows_of_a_large_file_are_read(self, tmp_path: Path) -> None:
        zone = clean(tmp_path)
        rows = 300_000
        columns = {"id": range(10, rows + 10), "name": ["x"] * rows, "city": ["y"] * rows}
        zone.change("orders", 3, columns, [0] * (rows - 1) + [3])
        result = zone.lint(reading=Reading(budget=1, sampled=3, least=3 * 1024))
        assert (keys(result), result.unread.partly) == (set(), 1)
        assert keys(zone.lint()) == {"LZ-085/marker-unknown"}

    def test_only_the_first_rows_of_a_large_text_are_read(self, tmp_path: Path) -> None:
        zone = clean(tmp_path)
        zone.write("notes", 3, "id,name,__rowMarker__", *["7,Eva,1"] * 500_000, "x,Finn,0")
        result = zone.lint(reading=Reading(budget=0, least=3 * 1024))
        assert (keys(result), result.unread) == (set(), Unread(partly=1))
        everything = zone.lint(reading=Reading(everything=True))
        assert keys(everything) == {"LZ-178/value-not-Int32"}

    def test_a_text_is_read_in_pieces_and_found_as_it_is(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        zone = clean(tmp_path)
        rows = [f"{n},Eva,0" for n in range(100, 400_000)]
        zone.write("notes", 3, "id,name,__rowMarker__", *rows, "100,Finn,0")
        blocks: list[int] = []
        check = RowCheck.block

        def block(self: RowCheck, rows: Rows) -> None:
            blocks.append(rows.data.num_rows)
            check(self, rows)

        monkeypatch.setattr(RowCheck, "block", block)
        monkeypatch.setattr(text_files, "BLOCK_BYTES", 1 << 20)
        (found,) = zone.lint().findings
        assert (found.rule.id, found.location.row) == ("LZ-077", len(rows) + 1)
        assert max(blocks) < len(rows) / 2

    def test_files_whose_form_is_not_known_are_not_read(self, tmp_path: Path) -> None:
        zone = clean(tmp_path)
        zone.put("notes/_metadata.json", "{")
        result = zone.lint()
        assert keys(result) == {"LZ-054/metadata-unreadable"}
        assert result.unread == Unread(unopened=2)

    @pytest.mark.full
    def test_thousands_of_tables_are_checked_one_by_one(self, tmp_path: Path) -> None:
        target = many(tmp_path, 2_000)
        seen: list[int] = []
        result = lint(target, V2, progress=lambda _table, done, _all: seen.append(done))
        assert (result.tables, result.files) == (2_000, 2_000)
        assert keys(result) == {"LZ-060/partner-events-absent"}
        assert seen == list(range(2_001))

    @pytest.mark.full
    def test_memory_does_not_grow_with_the_tables(self, tmp_path: Path) -> None:
        few, more = many(tmp_path / "few", 20), many(tmp_path / "more", 320)
        lint(few)  # whatever is made once is made
        assert _peak(more) - _peak(few) < 300 * 4096  # bytes a table, its name and path among them


def many(root: Path, tables: int) -> Target:
    zone = Zone(root)
    file = encoded(ROWS)
    for number in range(tables):
        zone.describe(f"t{number}", keyColumns=["id"])
        zone.put(f"t{number}/{1:020d}.parquet", file)
    return of_path(root)


def _peak(target: Target) -> int:
    """The most bytes that were in use at once."""
    tracemalloc.start()
    try:
        lint(target)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


class TestReadOnly:
    """It only looks."""

    def test_nothing_is_changed(self, tmp_path: Path) -> None:
        zone = clean(tmp_path)
        zone.put("orders/_metadata.json", '{"keyColumns": ["id"], }')
        zone.put("orders/00000000000000000009.parquet", b"PAR1")
        before = tree(tmp_path)
        zone.lint(STRICT, Reading(everything=True))
        assert tree(tmp_path) == before

    def test_a_link_is_never_followed(self, tmp_path: Path) -> None:
        secret = clean(tmp_path / "elsewhere")
        secret.put("orders/_metadata.json", "{")
        zone = clean(tmp_path / "root")
        (zone.path / "linked").symlink_to(secret.path / "orders")
        (zone.path / "notes" / f"{3:020d}.csv").symlink_to(secret.root / "x")
        result = zone.lint()
        assert keys(result) == {"LZ-007/link"}
        assert result.tables == 3

    def test_a_folder_that_may_not_be_read_is_reported(self, tmp_path: Path, monkeypatch) -> None:
        zone = clean(tmp_path)
        target = of_path(zone.root)
        opened = target.store.open

        def refusing(path: str):
            if path.endswith(f"{2:020d}.parquet"):
                raise PermissionError(13, "Permission denied")
            return opened(path)

        monkeypatch.setattr(target.store, "open", refusing)
        result = lint(target)
        assert [path for path, _why in result.unreadable] == [
            f"Files/LandingZone/orders/{2:020d}.parquet"
        ]
        assert not result.is_good
        assert keys(result) == set()


@pytest.mark.parametrize("opened", [1, 2, 3])
@pytest.mark.parametrize("name", [f"{2:020d}.parquet", f"{2:020d}.csv"])
def test_a_file_that_an_engine_moves_away_in_the_meantime_is_not_a_fault(
    tmp_path: Path, monkeypatch, name: str, opened: int
) -> None:
    """opened: how often the file can be opened before it is gone."""
    target = of_path(clean(tmp_path).root)
    real = target.store.open
    times = 0

    def vanishing(path: str):
        nonlocal times
        times += path.endswith(name)
        if path.endswith(name) and times >= opened:
            raise FileNotFoundError(path)
        return real(path)

    monkeypatch.setattr(target.store, "open", vanishing)
    result = lint(target)
    assert (keys(result), result.unread) == (set(), Unread(vanished=1))
    assert result.is_good


def test_a_marker_of_any_integer_type_or_text_is_clean(tmp_path: Path) -> None:
    zone = clean(tmp_path)
    kinds = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.string(), pa.large_string())
    for number, kind in enumerate(kinds, start=3):
        markers = pa.array([1, 2, 4]).cast(kind)
        zone.land("orders", number, marked(ROWS, markers))
    assert keys(zone.lint()) == set()


class TestPartitions:
    """Zones of engines that read partition folders (LZ-059)."""

    READ = Profile(partitions=True)

    @pytest.fixture
    def zone(self, tmp_path: Path) -> Zone:
        zone = Zone(tmp_path)
        zone.describe("t", keyColumns=["id"], isPartitionEnabled=True)
        for part in ("Day=1", "Day=2/Region=north"):
            for number in (1, 2):
                zone.land(f"t/{part}", number, marked(CHANGES))
        return zone

    @pytest.mark.clause("LZ-059")
    def test_each_folder_has_a_sequence(self, zone: Zone) -> None:
        result = zone.lint(self.READ)
        assert (keys(result) - {"LZ-060/partner-events-absent"}, result.files) == (set(), 4)

    @pytest.mark.clause("LZ-059", "LZ-117")
    def test_a_gap_is_reported_with_its_folder(self, zone: Zone) -> None:
        zone.land("t/Day=1", 4, marked(CHANGES))
        result = zone.lint(self.READ)
        (gap,) = [found for found in result.findings if found.rule.id == "LZ-117"]
        assert "/t/Day=1/" in gap.location.path

    def test_columns_are_those_of_one_table(self, zone: Zone) -> None:
        zone.land("t/Day=3", 1, {"id": ["a"], "__rowMarker__": [4]})
        assert "LZ-221/type-changed" in keys(zone.lint(self.READ))

    @pytest.mark.clause("LZ-024")
    def test_without_them_the_folders_are_reported_and_not_read(self, zone: Zone) -> None:
        result = zone.lint()
        assert {"LZ-059/partitions", "LZ-059/partition-folder"} <= keys(result)
        assert result.files == 0


def test_a_small_file_that_would_unfold_to_very_much_is_reported_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One long text in every row: 10,000 MiB, of which no more than a piece is ever there."""
    monkeypatch.setattr(bounded, "FILE_BYTES", 64 << 20)
    monkeypatch.setattr(bounded, "BLOCK_BYTES", 16 << 20)
    zone = clean(tmp_path)
    text = pa.DictionaryArray.from_arrays(np.zeros(10_000, np.int32), pa.array(["x" * (1 << 20)]))
    columns = {"id": pa.array(range(10_000)), "v": text}
    zone.describe("bomb", keyColumns=["id"])
    file = zone.land("bomb", 1, pa.table(columns), store_schema=False)
    assert file.stat().st_size < 1 << 20
    before = pa.total_allocated_bytes()
    result = zone.lint()
    assert keys(result) == {"LZ-267/refused"}
    assert pa.total_allocated_bytes() - before < 64 << 20
    assert "take more than" in result.findings[0].found
