"""The scan: which tables and which files are in the zone now."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from mirrorlake.errors import DuplicateNumber
from mirrorlake.landing.scan import MARKER_NOT_LAST, TWO_ZONES, Scanner, data_files
from mirrorlake.landing.text.format import TextFormat
from mirrorlake.mirror.plan import other_files
from mirrorlake.model.change import MARKER_COLUMN, UNCHANGED_COLUMN
from mirrorlake.model.table import TableId
from mirrorlake.storage.local import LocalStore
from mirrorlake.storage.store import Listing
from tests.doubles.clock import SteppedClock
from tests.doubles.memory_store import MemoryStore
from tests.landing.files import encoded
from tests.landing.zone import KEYED, ZONE, name, numbers, only, ours, put


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(SteppedClock())


@pytest.fixture
def scanner(store: MemoryStore) -> Scanner:
    return Scanner(store)


class TestTables:
    @pytest.mark.clause("LZ-012", "LZ-229")
    def test_every_scan_finds_new_tables(self, store: MemoryStore, scanner: Scanner) -> None:
        put(store, "_metadata.json", content=KEYED)
        scanner.scan()
        put(store, "_metadata.json", table="S.schema/u", content=KEYED)
        assert [str(scan.table) for scan in scanner.scan()] == ["t", "S.u"]

    @pytest.mark.clause("LZ-009")
    def test_two_zones_give_one_warning(self, store: MemoryStore, scanner: Scanner) -> None:
        store.create("LandingZone/t/_metadata.json", KEYED)
        put(store, "_metadata.json", content=KEYED)
        with capture_logs() as lines:
            zones = {scanner.zone(), scanner.zone()}
        assert zones == {"Files/LandingZone"}
        assert [(line["event"], line["log_level"]) for line in lines] == [(TWO_ZONES, "warning")]

    @pytest.mark.clause("LZ-074")
    def test_a_marker_that_is_not_last_gives_one_warning_per_table(
        self, store: MemoryStore, scanner: Scanner
    ) -> None:
        first = encoded({MARKER_COLUMN: [0], "id": [1]})
        last = encoded({"id": [1], MARKER_COLUMN: [0]})
        none = encoded({"id": [1]})
        for table, content in {"a": first, "b": first, "c": last, "d": none}.items():
            put(store, name(1), name(2), table=table, content=content)
        with capture_logs() as lines:
            for scan in scanner.scan():
                for file in scan.files:
                    scanner.inspect(scan.table, file)
        warned = [(line["event"], line["log_level"], line["table"]) for line in lines]
        assert warned == [(MARKER_NOT_LAST, "warning", table) for table in "ab"]

    @pytest.mark.clause("LZ-074")
    def test_a_marker_of_a_text_that_is_not_last_gives_one_warning(
        self, store: MemoryStore, scanner: Scanner
    ) -> None:
        texts = {
            "a": f"{MARKER_COLUMN},id\n0,1\n",
            "b": f"id,{MARKER_COLUMN}\n1,0\n",
            "c": "id\n1\n",
        }
        for table, text in texts.items():
            put(store, name(1, "csv"), name(2, "csv"), table=table, content=text.encode())
        with capture_logs() as lines:
            for scan in scanner.scan():
                for file in scan.files:
                    scanner.inspect(scan.table, file)
        warned = [(line["event"], line["log_level"], line["table"]) for line in lines]
        assert warned == [(MARKER_NOT_LAST, "warning", "a")]

    def test_a_reserved_column_after_the_marker_is_not_data(
        self, store: MemoryStore, scanner: Scanner
    ) -> None:
        put(
            store,
            name(1),
            content=encoded({"id": [1], MARKER_COLUMN: [0], UNCHANGED_COLUMN: [b""]}),
        )
        scan = only(scanner)
        with capture_logs() as lines:
            scanner.inspect(scan.table, scan.files[0])
        assert lines == []

    @pytest.mark.clause("LZ-230")
    def test_a_scan_has_the_folder(self, store: MemoryStore, scanner: Scanner) -> None:
        put(store, "_metadata.json", table="S.schema/u", content=KEYED)
        assert only(scanner).folder.path == f"{ZONE}/S.schema/u"

    def test_a_table_of_ours_has_its_true_name(self, store: MemoryStore, scanner: Scanner) -> None:
        location = "%5Fs.schema/a%2Fb"
        put(store, "_metadata.json", table=location, content=ours("a/b", "_s"))
        assert only(scanner).table == TableId("_s", "a/b")

    def test_copies_of_a_folder_are_separate_tables(
        self, store: MemoryStore, scanner: Scanner
    ) -> None:
        put(store, "_metadata.json", table="orders", content=ours("orders"))
        put(store, "_metadata.json", table="copy", content=ours("orders"))
        assert [str(scan.table) for scan in scanner.scan()] == ["copy", "orders"]


class TestFiles:
    @pytest.mark.clause("LZ-116")
    def test_files_are_in_the_order_of_their_numbers(
        self, store: MemoryStore, scanner: Scanner
    ) -> None:
        put(store, "_metadata.json", content=KEYED)
        for number in (10, 2, 1, 33):
            put(store, name(number))
            store.files.clock.advance(60)
        assert numbers(only(scanner)) == [1, 2, 10, 33]

    @pytest.mark.clause("LZ-021", "LZ-023", "LZ-210", "LZ-339", "LZ-340")
    def test_other_names_are_ignored(self, store: MemoryStore, scanner: Scanner) -> None:
        ignored = [
            "_003.parquet",
            "_scratch/00000000000000000003.parquet",
            "_Temp/_temp_6f1c.parquet",
            "_00000000000000000003.parquet",
            "00000000000000000003.parquet.temp",
            "_00000000000000000003.parquet_TEMP",
            "00000000000000000003.parquet_TEMP",
            "_6f1c.csv.temp",
            "x.csv.temp",
            "_state.pkl",
            "_schema.json",
            "00000000000000000003.json",
            "00000000000000000003.xlsx",
            "3.parquet",
        ]
        put(store, "_metadata.json", content=KEYED)
        put(store, name(1), name(2), *ignored)
        found = only(scanner)
        assert (numbers(found), found.error) == ([1, 2], None)

    @pytest.mark.clause("LZ-339")
    @pytest.mark.parametrize(
        "temporary",
        [
            "_003.parquet",
            "00000000000000000003.parquet.temp",
            "_00000000000000000003.parquet_TEMP",
            "_scratch/3.parquet",
            "_Temp/_temp_6f1c.parquet",
        ],
    )
    def test_a_temporary_name_is_ignored_until_it_is_renamed(
        self, store: MemoryStore, scanner: Scanner, temporary: str
    ) -> None:
        put(store, "_metadata.json", content=KEYED)
        put(store, name(1), name(2), temporary)
        assert numbers(only(scanner)) == [1, 2]
        store.move(f"{ZONE}/t/{temporary}", f"{ZONE}/t/{name(3)}")
        assert numbers(only(scanner)) == [1, 2, 3]

    @pytest.mark.clause("LZ-024")
    def test_folders_in_a_table_folder_are_ignored(
        self, store: MemoryStore, scanner: Scanner
    ) -> None:
        put(store, "_metadata.json", content=KEYED)
        put(store, name(1), f"Day=20260128/{name(2)}", f"_scratch/{name(3)}", f"{name(4)}/part-0")
        assert numbers(only(scanner)) == [1]

    @pytest.mark.clause("LZ-120")
    @pytest.mark.parametrize("extension", ["csv", "csv.gz", "PARQUET"])
    def test_two_files_of_one_number_are_an_error(
        self, store: MemoryStore, scanner: Scanner, extension: str
    ) -> None:
        put(store, "_metadata.json", content=KEYED)
        put(store, name(1), name(2), name(2, extension), name(3))
        error = only(scanner).error
        assert isinstance(error, DuplicateNumber)
        assert "00000000000000000002" in error.what

    def test_an_upload_beside_its_file_is_not_a_second_file(
        self, store: MemoryStore, scanner: Scanner
    ) -> None:
        put(store, "_metadata.json", content=KEYED)
        put(store, name(1), name(1, "parquet.temp"))
        assert only(scanner).error is None

    def test_an_extension_in_capitals_is_parquet(
        self, store: MemoryStore, scanner: Scanner
    ) -> None:
        put(store, "_metadata.json", content=KEYED)
        put(store, name(1, "PARQUET"))
        found = only(scanner)
        assert (found.error, found.files[0].path) == (None, f"{ZONE}/t/{name(1, 'PARQUET')}")

    @pytest.mark.clause("LZ-115", "LZ-158", "LZ-209")
    @pytest.mark.parametrize("extension", ["csv", "csv.gz", "csv.zst"])
    def test_text_is_found_by_its_name(
        self, store: MemoryStore, scanner: Scanner, extension: str
    ) -> None:
        put(store, "_metadata.json", content=KEYED)
        put(store, name(1, extension))
        found = only(scanner)
        assert found.error is None
        assert [file.text for file in found.files] == [TextFormat()]

    @pytest.mark.clause("LZ-158")
    @pytest.mark.parametrize("declared", ["tsv", ".tsv", ".TSV"])
    def test_the_metadata_may_name_another_extension(
        self, store: MemoryStore, scanner: Scanner, declared: str
    ) -> None:
        put(store, "_metadata.json", content=json.dumps({"FileExtension": declared}).encode())
        put(store, name(1), name(2, "tsv"), name(3, "csv"))
        assert numbers(only(scanner)) == [1, 2]

    @pytest.mark.clause("LZ-248")
    def test_moved_files_are_found_in_both_cleanup_folders(
        self, store: MemoryStore, scanner: Scanner
    ) -> None:
        put(store, "_metadata.json", content=KEYED)
        put(store, f"_FilesReadyToDelete/{name(1)}", f"_ProcessedFiles/{name(2)}", name(3))
        put(store, "_FilesReadyToDelete/_FilesReadyToDeleteInfo.json")
        found = only(scanner)
        assert (numbers(found), [file.number for file in found.moved()]) == ([3], [1, 2])

    def test_an_empty_listing_has_no_files(self) -> None:
        assert data_files("t", Listing((), ())) == ()


@pytest.mark.parametrize("kind", ["a folder", "a link", "neither a file nor a folder"])
def test_a_folder_or_link_with_the_name_of_a_data_file_is_reported(
    tmp_path: Path, kind: str
) -> None:
    folder = tmp_path / ZONE / "t"
    folder.mkdir(parents=True)
    (folder / "_metadata.json").write_bytes(KEYED)
    path = folder / f"{1:020d}.parquet"
    if kind == "a folder":
        path.mkdir()
    elif kind == "a link":
        path.symlink_to("_metadata.json")
    else:
        os.mkfifo(path)
    (scan,) = Scanner(LocalStore(tmp_path)).scan()
    assert scan.not_a_file == f"{path.name} is {kind}"
    assert other_files(scan) == f"its first data file: {path.name} is {kind}"
