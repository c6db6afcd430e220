"""The scan, again and again: what changed is read again, what goes wrong stays with its table."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from mirrorlake.errors import BadFile, BadMetadata, TableError
from mirrorlake.landing.metadata import Metadata
from mirrorlake.landing.scan import (
    BAD_PARTNER,
    LENIENT,
    UNDECLARED,
    UNKNOWN_MEMBERS,
    WITHOUT_EFFECT,
    Landed,
    Scanner,
)
from mirrorlake.storage.local import LocalStore
from mirrorlake.storage.store import Listing
from tests.doubles.clock import SteppedClock
from tests.doubles.memory_store import File, MemoryStore
from tests.landing.files import encoded
from tests.landing.zone import KEYED, ZONE, name, numbers, only, put

PATH = f"{ZONE}/t/_metadata.json"


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(SteppedClock())


@pytest.fixture
def scanner(store: MemoryStore) -> Scanner:
    return Scanner(store)


class TestMetadata:
    @pytest.mark.clause("LZ-035", "LZ-055")
    def test_metadata_is_read_when_it_appears_and_when_it_changes(
        self, store: MemoryStore, scanner: Scanner
    ) -> None:
        put(store, name(1))
        seen = [only(scanner).metadata]
        for column in (b"a", b"b"):
            put(store, "_metadata.json", content=b'{"keyColumns": ["%s"]}' % column)
            seen.append(only(scanner).metadata)
        assert [found and found.key_columns for found in seen] == [None, ("a",), ("b",)]

    @pytest.mark.clause("LZ-054")
    def test_broken_metadata_stops_its_table_until_it_changes(
        self, store: MemoryStore, scanner: Scanner
    ) -> None:
        put(store, "_metadata.json", content=b"{")
        error = only(scanner).error
        assert isinstance(error, BadMetadata)
        put(store, "_metadata.json", content=KEYED)
        assert only(scanner).error is None

    @pytest.mark.clause("LZ-054", "LZ-055")
    @pytest.mark.parametrize("change", [{"etag": "two"}, {"modified": 2.0}], ids=str)
    @pytest.mark.parametrize("first", [KEYED, b'{"keyColumns": ["id" }'], ids=["good", "broken"])
    def test_another_etag_or_time_is_enough(
        self, store: MemoryStore, scanner: Scanner, first: bytes, change: dict[str, Any]
    ) -> None:
        later = KEYED.replace(b"id", b"no")
        assert len(later) == len(first)
        store.files.content[PATH] = File(first, 1.0, "one")
        assert (only(scanner).error is None) is (first == KEYED)
        store.files.content[PATH] = replace(File(later, 1.0, "one"), **change)
        found = only(scanner)
        assert (found.error, found.metadata) == (None, Metadata(("no",)))

    @pytest.mark.clause("LZ-054")
    def test_another_size_is_enough(self, store: MemoryStore, scanner: Scanner) -> None:
        store.files.content[PATH] = File(b"{", 1.0, "one")
        assert only(scanner).error is not None
        store.files.content[PATH] = File(KEYED, 1.0, "one")
        assert (only(scanner).error, only(scanner).metadata) == (None, Metadata(("id",)))

    @pytest.mark.clause("LZ-051")
    def test_unknown_members_are_reported_once(self, store: MemoryStore, scanner: Scanner) -> None:
        with capture_logs() as lines:
            for _written_again in range(3):
                put(store, "_metadata.json", content=b'{"keyColumns": [], "protocolVersion": "n"}')
                scanner.scan()
                scanner.scan()
        assert lines == [
            {
                "event": UNKNOWN_MEMBERS,
                "log_level": "warning",
                "table": "t",
                "members": ["protocolVersion"],
            }
        ]

    @pytest.mark.clause("LZ-058", "LZ-059")
    def test_members_without_effect_are_reported_once(
        self, store: MemoryStore, scanner: Scanner
    ) -> None:
        put(
            store,
            "_metadata.json",
            content=b'{"ConditionalUpdateColumn": "n", "isPartitionEnabled": "true"}',
        )
        put(store, name(1), f"Day=20260128/{name(2)}")
        with capture_logs() as lines:
            found = [numbers(only(scanner)) for _again in range(2)]
        assert found == [[1], [1]]
        assert [(line["event"], line["log_level"], line["members"]) for line in lines] == [
            (WITHOUT_EFFECT, "warning", ["ConditionalUpdateColumn", "isPartitionEnabled"])
        ]

    @pytest.mark.clause("LZ-052")
    def test_what_was_tolerated_is_reported_with_its_place(
        self, store: MemoryStore, scanner: Scanner
    ) -> None:
        put(store, "_metadata.json", content=b'{"keyColumns": ["id"],}')
        with capture_logs() as lines:
            assert only(scanner).error is None
        assert [(line["event"], line["tolerated"]) for line in lines] == [
            (LENIENT, ["line 1, column 22: a comma before the closing bracket"])
        ]


class TestTexts:
    @pytest.mark.clause("LZ-158", "LZ-189")
    def test_each_file_is_read_by_its_extension(self, store: MemoryStore, scanner: Scanner) -> None:
        put(store, "_metadata.json", content=b'{"FileExtension": ".TSV", "ColumnSeparator": "\\t"}')
        put(store, name(1), content=encoded({"a": [1]}))
        put(store, name(2, "tsv"), content=b"a\tb\n1\t2\n")
        scan = only(scanner)
        parquet, text = (scanner.inspect(scan.table, file) for file in scan.files)
        assert [str(c.type) for c in parquet.schema] == ["long"]
        assert [(c.name, str(c.type)) for c in text.schema] == [("a", "string"), ("b", "string")]

    def test_a_text_is_inspected_again_after_its_format_changed(
        self, store: MemoryStore, scanner: Scanner
    ) -> None:
        put(store, name(1, "csv"), content=b"a;b\n1;2\n")
        widths = []
        for separator in (",", ";"):
            content = json.dumps({"ColumnSeparator": separator}).encode()
            put(store, "_metadata.json", content=content)
            scan = only(scanner)
            widths.append(len(scanner.inspect(scan.table, scan.files[0]).schema))
        assert widths == [1, 2]

    @pytest.mark.clause("LZ-042")
    @pytest.mark.parametrize(("extension", "expected"), [("csv", True), ("parquet", False)])
    def test_text_without_metadata_is_recognized(
        self, store: MemoryStore, scanner: Scanner, extension: str, expected: bool
    ) -> None:
        put(store, name(1, extension))
        assert only(scanner).is_undescribed_text is expected
        put(store, "_metadata.json", content=KEYED)
        assert not only(scanner).is_undescribed_text

    @pytest.mark.clause("LZ-193")
    def test_columns_that_are_not_declared_are_reported_once(
        self, store: MemoryStore, scanner: Scanner
    ) -> None:
        columns = [{"Name": "a", "DataType": "Int32"}]
        put(
            store,
            "_metadata.json",
            content=json.dumps({"SchemaDefinition": {"Columns": columns}}).encode(),
        )
        put(store, name(1, "csv"), name(2, "csv"), content=b"a,seq\n1,2\n")
        scan = only(scanner)
        with capture_logs() as lines:
            found = [scanner.inspect(scan.table, file).ignored for file in scan.files]
        assert found == [("seq",), ("seq",)]
        assert [(line["event"], line["columns"]) for line in lines] == [(UNDECLARED, ["seq"])]


class TestPartner:
    @pytest.mark.clause("LZ-067")
    def test_a_partner_that_cannot_be_read_is_reported_once_and_changes_nothing(
        self, store: MemoryStore, scanner: Scanner
    ) -> None:
        put(store, "_metadata.json", content=KEYED)
        before = scanner.scan()
        store.replace(f"{ZONE}/_partnerEvents.json", b'{"partnerName": [')
        with capture_logs() as lines:
            looked = Scanner(store)
            after = [looked.scan(), looked.scan()][-1]
        warned = [(line["event"], line["log_level"]) for line in lines]
        assert warned == [(BAD_PARTNER, "warning")]
        assert [(s.table, s.files, s.error) for s in after] == [
            (s.table, s.files, s.error) for s in before
        ]


class TestReading:
    @pytest.mark.clause("LZ-021")
    def test_two_names_with_an_underscore_are_read_at_their_levels(
        self, store: MemoryStore
    ) -> None:
        other = b'{"keyColumns": ["other"], "partnerName": "other"}'
        put(store, "_partnerEvents.json", "_state.json", table="t", content=other)
        put(store, "_metadata.json", "_partnerEvents.json", table="S.schema", content=other)
        put(store, "_metadata.json", "_partnerEvents.json", table="t/_inner", content=other)
        put(store, "_partnerEvents.json", table="S.schema/u", content=other)
        store.replace(f"{ZONE}/_metadata.json", other)
        store.replace(f"{ZONE}/_partnerEvents.json", b'{"partnerName": "ours"}')
        put(store, "_metadata.json", table="t", content=KEYED)
        seen = Troubled(store, "read", None)
        scanner = Scanner(seen)
        found = {str(scan.table): scan.metadata for scan in scanner.scan()}
        assert found == {"t": Metadata(("id",)), "S.u": None}
        assert scanner.partner().name == "ours"
        assert set(seen.paths) == {f"{ZONE}/_partnerEvents.json", PATH}


class TestBrokenTables:
    """One table that cannot be read leaves the others alone (LZ-267)."""

    def test_a_broken_table_does_not_affect_others(
        self, store: MemoryStore, scanner: Scanner
    ) -> None:
        put(store, "_metadata.json", table="bad", content=b"{")
        put(store, "_metadata.json", table="good", content=KEYED)
        assert [scan.error is None for scan in scanner.scan()] == [False, True]

    def test_metadata_deleted_during_a_scan_is_missing(self, store: MemoryStore) -> None:
        put(store, "_metadata.json", content=KEYED)
        scan = only(Scanner(Troubled(store, "read", FileNotFoundError())))
        assert (scan.metadata, scan.error) == (None, None)

    @pytest.mark.parametrize("method", ["list", "read"])
    def test_an_unreadable_folder_is_an_error_of_its_table(
        self, store: MemoryStore, method: str
    ) -> None:
        put(store, "_metadata.json", content=KEYED)
        scan = only(Scanner(Troubled(store, method, PermissionError("denied"))))
        assert isinstance(scan.error, TableError)
        assert "denied" in scan.error.what

    def test_a_file_deleted_during_a_scan_is_an_error_of_its_table(
        self, store: MemoryStore, scanner: Scanner
    ) -> None:
        put(store, name(1), content=encoded({"id": [1]}))
        scan = only(scanner)
        store.delete(scan.files[0].path)
        with pytest.raises(BadFile) as caught:
            scanner.inspect(scan.table, scan.files[0])
        assert caught.value.file == name(1)


class TestInspection:
    def test_a_file_is_inspected_once(self, store: MemoryStore) -> None:
        put(store, name(1), content=encoded({"id": [1]}))
        counted = Troubled(store, "open", None)
        scanner = Scanner(counted)
        scan = only(scanner)
        rows = [scanner.inspect(scan.table, scan.files[0]).rows for _again in range(3)]
        assert (rows, len(counted.paths)) == ([1, 1, 1], 1)

    @pytest.mark.clause("LZ-268", "LZ-269", "LZ-276")
    @pytest.mark.parametrize("bad", [b"", encoded({"id": [1]})[:-3]])
    def test_a_bad_file_is_inspected_again_after_it_was_replaced(
        self, store: MemoryStore, scanner: Scanner, bad: bytes
    ) -> None:
        put(store, name(1), content=bad)
        with pytest.raises(BadFile):
            inspect_first(scanner)
        put(store, name(1), content=encoded({"id": [1, 2]}))
        assert inspect_first(scanner) == 2

    @pytest.mark.clause("LZ-269")
    @pytest.mark.parametrize("change", ["size", "time", "identity"])
    def test_a_file_is_inspected_again_after_any_change(self, tmp_path: Path, change: str) -> None:
        store = LocalStore(tmp_path)
        store.create(f"{ZONE}/t/_metadata.json", KEYED)
        file = tmp_path / ZONE / "t" / name(1)
        file.write_bytes(encoded({"id": [1]})[:-3])
        os.utime(file, (1_000, 1_000))
        scanner = Scanner(store)
        before = only(scanner).files[0]
        if change == "identity":  # another file of the same size and time in its place
            (tmp_path / "other").write_bytes(file.read_bytes())
            (tmp_path / "other").replace(file)
        elif change == "size":
            file.write_bytes(file.read_bytes()[:-1])
        os.utime(file, (2_000, 2_000) if change == "time" else (1_000, 1_000))
        after = only(scanner).files[0]
        assert (before.size != after.size) == (change == "size")
        assert (before.modified != after.modified) == (change == "time")
        assert before.fingerprint != after.fingerprint

    def test_a_file_that_was_forgotten_is_inspected_again(self, store: MemoryStore) -> None:
        put(store, name(1), content=encoded({"id": [1]}))
        counted = Troubled(store, "open", None)
        scanner = Scanner(counted)
        inspect_first(scanner)
        scanner.forget(f"{ZONE}/t/{name(1)}")
        inspect_first(scanner)
        assert len(counted.paths) == 2


def inspect_first(scanner: Scanner) -> int:
    scan = only(scanner)
    first: Landed = scan.files[0]
    return scanner.inspect(scan.table, first).rows


class Troubled(MemoryStore):
    """The files of a store, with one method that is watched, and fails, below the zone."""

    def __init__(self, store: MemoryStore, method: str, error: OSError | None) -> None:
        super().__init__(store.files.clock, files=store.files)
        self.method, self.error = method, error
        self.paths: list[str] = []

    def list(self, folder: str) -> Listing:
        self._pass("list", folder)
        return super().list(folder)

    def read(self, path: str) -> bytes:
        self._pass("read", path)
        return super().read(path)

    def open(self, path: str):  # type: ignore[no-untyped-def]
        self._pass("open", path)
        return super().open(path)

    def _pass(self, method: str, path: str) -> None:
        if method == self.method and path.startswith(f"{ZONE}/"):
            self.paths.append(path)
            if self.error:
                raise self.error
