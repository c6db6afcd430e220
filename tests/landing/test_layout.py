"""Where things lie below the root."""

from __future__ import annotations

import pytest

from mirrorlake import root
from mirrorlake.landing import layout
from mirrorlake.landing.layout import TableFolder, folder_of
from mirrorlake.landing.scan import Scanner
from mirrorlake.model.table import TableId
from mirrorlake.root import delta_path
from mirrorlake.storage.store import Store
from tests.doubles.clock import SteppedClock
from tests.doubles.memory_store import MemoryStore

ZONE = root.LANDING


@pytest.fixture
def store() -> Store:
    return MemoryStore(SteppedClock())


def tables(store: Store, zone: str = ZONE) -> list[str]:
    return [str(folder.table) for folder in layout.table_folders(store, zone)]


def make(store: Store, *folders: str) -> None:
    for folder in folders:
        store.create(f"{ZONE}/{folder}/_metadata.json", b"{}")


class TestZone:
    @pytest.mark.clause("LZ-007", "LZ-009")
    def test_the_zone_is_found_below_files(self, store: Store) -> None:
        store.create("Files/LandingZone/t/_metadata.json", b"{}")
        assert Scanner(store).zone() == "Files/LandingZone"

    @pytest.mark.clause("LZ-008", "LZ-009")
    def test_the_zone_is_found_without_files(self, store: Store) -> None:
        store.create("LandingZone/t/_metadata.json", b"{}")
        assert Scanner(store).zone() == "LandingZone"

    @pytest.mark.clause("LZ-009")
    def test_with_two_zones_the_one_below_files_is_used(self, store: Store) -> None:
        store.create("LandingZone/t/_metadata.json", b"{}")
        store.create("Files/LandingZone/t/_metadata.json", b"{}")
        assert Scanner(store).zone() == "Files/LandingZone"

    @pytest.mark.clause("LZ-010")
    def test_a_new_zone_is_below_files(self, store: Store) -> None:
        assert Scanner(store).zone() == "Files/LandingZone"


class TestTables:
    @pytest.mark.clause("LZ-006")
    def test_a_folder_is_a_table_of_its_name(self, store: Store) -> None:
        make(store, "orders")
        assert list(layout.table_folders(store, ZONE)) == [
            TableFolder(TableId("", "orders"), f"{ZONE}/orders")
        ]

    @pytest.mark.clause("LZ-008")
    def test_tables_are_found_in_a_zone_without_files(self, store: Store) -> None:
        store.create("LandingZone/S.schema/t/_metadata.json", b"{}")
        assert tables(store, "LandingZone") == ["S.t"]

    @pytest.mark.clause("LZ-013", "LZ-014", "LZ-015")
    @pytest.mark.parametrize("zone", [root.LANDING, root.LANDING_V1])
    def test_schema_folders_hold_tables(self, store: Store, zone: str) -> None:
        for location in ("Schema1.schema/TableA", "Schema1.schema/TableB", "Schema2.schema/TableC"):
            store.create(f"{zone}/{location}/_metadata.json", b"{}")
        assert [folder.table for folder in layout.table_folders(store, Scanner(store).zone())] == [
            TableId("Schema1", "TableA"),
            TableId("Schema1", "TableB"),
            TableId("Schema2", "TableC"),
        ]

    def test_tables_outside_a_schema_come_first(self, store: Store) -> None:
        make(store, "A.schema/t", "z")
        assert tables(store) == ["z", "A.t"]

    @pytest.mark.clause("LZ-016")
    def test_a_schema_folder_is_not_a_table(self, store: Store) -> None:
        store.create(f"{ZONE}/S.schema/_metadata.json", b"{}")
        store.create(f"{ZONE}/S.schema/00000000000000000001.parquet", b"x")
        assert tables(store) == []

    @pytest.mark.clause("LZ-016")
    def test_a_schema_folder_in_a_schema_folder_is_not_a_table(self, store: Store) -> None:
        make(store, "S.schema/T.schema/t")
        assert tables(store) == []

    @pytest.mark.clause("LZ-013")
    @pytest.mark.parametrize("folder", ["S", "S.schemas", "schema", "S.schema.old"])
    def test_a_folder_of_another_name_is_not_a_schema(self, store: Store, folder: str) -> None:
        make(store, f"{folder}/t")
        assert [one.table for one in layout.table_folders(store, ZONE)] == [TableId("", folder)]

    def test_a_schema_needs_a_name(self, store: Store) -> None:
        make(store, ".schema/t")
        assert tables(store) == []

    @pytest.mark.clause("LZ-021")
    def test_folders_that_begin_with_an_underscore_are_ignored(self, store: Store) -> None:
        make(store, "_t", "_S.schema/t", "S.schema/_t")
        assert tables(store) == []

    @pytest.mark.clause("LZ-022")
    def test_the_scratch_pad_is_not_a_table(self, store: Store) -> None:
        make(store, "_scratchPad", "S.schema/_scratchPad")
        assert tables(store) == []

    @pytest.mark.clause("LZ-025")
    def test_files_in_the_zone_are_not_tables(self, store: Store) -> None:
        make(store, "t")
        store.create(f"{ZONE}/00000000000000000001.parquet", b"x")
        store.create(f"{ZONE}/_partnerEvents.json", b"{}")
        store.create(f"{ZONE}/notes.txt", b"x")
        assert tables(store) == ["t"]

    def test_a_zone_that_is_not_there_has_no_tables(self, store: Store) -> None:
        assert tables(store) == []


class TestLocations:
    @pytest.mark.clause("LZ-017")
    def test_a_table_of_a_schema_is_written_below_it(self) -> None:
        assert delta_path(TableId("X", "T"), None) == "Tables/X/T"

    @pytest.mark.clause("LZ-017")
    def test_the_default_schema_does_not_move_a_table_that_has_one(self) -> None:
        assert delta_path(TableId("X", "T"), "dbo") == "Tables/X/T"

    @pytest.mark.clause("LZ-018")
    def test_a_table_without_a_schema_is_written_to_the_default_one(self) -> None:
        assert delta_path(TableId("", "T"), "dbo") == "Tables/dbo/T"

    @pytest.mark.clause("LZ-019")
    def test_without_a_default_schema_a_table_has_no_schema(self) -> None:
        assert delta_path(TableId("", "T"), None) == "Tables/T"

    @pytest.mark.clause("LZ-006", "LZ-010", "LZ-013")
    @pytest.mark.parametrize(
        ("table", "path"),
        [
            (TableId("", "t"), "Files/LandingZone/t"),
            (TableId("sales", "t"), "Files/LandingZone/sales.schema/t"),
            (TableId("_s", "x.schema"), "Files/LandingZone/%5Fs.schema/x%2Eschema"),
        ],
    )
    def test_our_publisher_lands_a_table_in_its_folder(self, table: TableId, path: str) -> None:
        assert folder_of(ZONE, table) == path

    def test_folders_of_our_publisher_are_found(self, store: Store) -> None:
        paths = [
            folder_of(ZONE, TableId(s, n)) for s in ("", "_s", "a.b") for n in ("t", "_t", ".")
        ]
        for path in paths:
            store.create(f"{path}/_metadata.json", b"{}")
        found = [location.path for location in layout.table_folders(store, ZONE)]
        assert sorted(found) == sorted(paths)


def folder(schema: str, name: str) -> TableFolder:
    return TableFolder(TableId(schema, name), "somewhere")
