"""Where each table of a stream stands in the zone: its folder, its last file, its checkpoint."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from mirrorlake import root
from mirrorlake.capture.landing import table_positions
from mirrorlake.capture.records.records import Records
from mirrorlake.errors import (
    BadFile,
    BadMetadata,
    KeyColumnsChanged,
    MissingFile,
    SelectionChanged,
    TableError,
)
from mirrorlake.landing.cuts import Cut
from mirrorlake.model.landed import FileKind, Footer
from mirrorlake.model.position import LogPoint, Lsn, Position
from mirrorlake.model.table import TableId
from mirrorlake.sources.base import Source
from mirrorlake.sources.table import SourceTable
from tests.capture.streams import NARROW
from tests.doubles.clock import SteppedClock
from tests.doubles.memory_store import MemoryStore
from tests.landing.files import encoded
from tests.landing.zone import name

ZONE = root.LANDING
FOLDER = f"{ZONE}/shop.schema/orders"
FOOTER = Footer("stream", FileKind.CHANGES, "0/A:1", "0/14:3", complete=True)


class Points:
    """The part of a source that reads its positions."""

    def parse_point(self, text: str) -> LogPoint:
        return Lsn.parse(text)


SOURCE = cast("Source", Points())


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(SteppedClock())


def table(text: str) -> SourceTable:
    return replace(NARROW, table=TableId.parse(text))


def folders(store: MemoryStore, *tables: str) -> list[str]:
    """The folders of these tables, relative to the zone."""
    wanted = [TableId.parse(text) for text in tables]
    found = table_positions.folders(Records(store, ZONE), wanted)
    return [found[one].removeprefix(f"{ZONE}/") for one in wanted]


def describe(store: MemoryStore, one: SourceTable, folder: str = FOLDER) -> None:
    table_positions.describe(Records(store, ZONE), one, folder, {"system": "1"})


def land(store: MemoryStore, number: int, footer: Footer | None, aside: str = "") -> None:
    store.create(f"{FOLDER}{aside}/{name(number)}", encoded({"id": [1]}, footer))


class TestFolders:
    def test_a_new_table_gets_the_folder_of_its_name(self, store: MemoryStore) -> None:
        assert folders(store, "shop.orders", "plain") == ["shop.schema/orders", "plain"]

    def test_tables_that_differ_only_in_case_are_kept_apart(self, store: MemoryStore) -> None:
        found = folders(store, "s.Orders", "s.orders", "s.ORDERS", "s.items")
        assert len({folder.casefold() for folder in found}) == 4

    def test_tables_of_two_schemas_are_no_twins(self, store: MemoryStore) -> None:
        assert folders(store, "a.orders", "b.Orders") == ["a.schema/orders", "b.schema/Orders"]

    def test_a_table_keeps_its_folder_when_a_twin_appears(self, store: MemoryStore) -> None:
        describe(store, table("s.orders"), f"{ZONE}/s.schema/orders")
        own, twin = folders(store, "s.orders", "s.Orders")
        assert own == "s.schema/orders"
        assert twin.casefold() != own

    def test_a_twin_keeps_its_folder_when_the_other_is_gone(self, store: MemoryStore) -> None:
        first, _other = folders(store, "s.orders", "s.Orders")
        describe(store, table("s.orders"), f"{ZONE}/{first}")
        assert folders(store, "s.orders") == [first]

    def test_a_table_is_found_by_its_true_name(self, store: MemoryStore) -> None:
        describe(store, table("_s.a/b"), f"{ZONE}/elsewhere.schema/x")
        assert folders(store, "_s.a/b") == ["elsewhere.schema/x"]

    @pytest.mark.parametrize("copy", ["a copy", "orders-copy"])
    def test_a_copy_of_a_folder_does_not_take_its_place(
        self, store: MemoryStore, copy: str
    ) -> None:
        for folder in ("orders", copy):
            describe(store, table("shop.orders"), f"{ZONE}/shop.schema/{folder}")
        assert folders(store, "shop.orders") == ["shop.schema/orders"]

    def test_folders_of_others_do_not_matter(self, store: MemoryStore) -> None:
        store.create(f"{ZONE}/theirs/_metadata.json", b'{"keyColumns": ["id"]}')
        store.create(f"{ZONE}/broken/_metadata.json", b"{")
        assert folders(store, "orders") == ["orders"]


class TestPlace:
    def test_a_table_without_files_stands_at_the_beginning(self, store: MemoryStore) -> None:
        describe(store, NARROW)
        location = table_positions.find(Records(store, ZONE), SOURCE, NARROW, FOLDER)
        assert (location.number, location.checkpoint) == (0, None)

    def test_an_emptied_table_stands_at_its_truncation(self, store: MemoryStore) -> None:
        since = Position(Lsn(9), 1)
        assert (
            table_positions.find(Records(store, ZONE), SOURCE, NARROW, FOLDER, since).checkpoint
            == since
        )

    def test_a_table_stands_at_the_end_of_its_newest_file(self, store: MemoryStore) -> None:
        describe(store, NARROW)
        land(store, 1, replace(FOOTER, last="0/B:1"))
        land(store, 2, FOOTER)
        location = table_positions.find(Records(store, ZONE), SOURCE, NARROW, FOLDER)
        assert (location.number, location.checkpoint) == (2, Position(Lsn(0x14), 3))

    @pytest.mark.clause("LZ-140")
    def test_the_newest_file_may_have_been_moved_aside(self, store: MemoryStore) -> None:
        describe(store, NARROW)
        land(store, 7, FOOTER, "/_FilesReadyToDelete")
        assert table_positions.find(Records(store, ZONE), SOURCE, NARROW, FOLDER).number == 7

    def test_a_loaded_table_stands_behind_all_that_ends_at_its_snapshot(
        self, store: MemoryStore
    ) -> None:
        describe(store, NARROW)
        land(store, 1, Footer("stream", FileKind.LOAD, "0/A:0", "0/A:0", complete=True))
        location = table_positions.find(Records(store, ZONE), SOURCE, NARROW, FOLDER)
        assert location.checkpoint == Position.after(Lsn(10))

    @pytest.mark.parametrize(
        ("number", "footer", "is_there"),
        [
            (3, FOOTER, True),
            (2, FOOTER, False),
            (2, replace(FOOTER, last="0/1E:3"), True),  # loaded again, and changed since
            (2, replace(FOOTER, last="0/1E:3", complete=False), False),
            (2, replace(FOOTER, last="0/1F:3", complete=False), True),  # the process was killed
            (2, Footer("stream", FileKind.LOAD, "0/1E:0", "0/1E:0", complete=True), True),
            (2, Footer("stream", FileKind.LOAD, "0/1D:0", "0/1D:0", complete=True), False),
        ],
    )
    def test_a_table_whose_last_files_are_gone_stops(
        self, store: MemoryStore, number: int, footer: Footer, *, is_there: bool
    ) -> None:
        """Later changes would get their numbers."""
        describe(store, NARROW)
        land(store, number, footer)
        cut = Cut(9, "stream", "0/1E", None, {str(NARROW.table): 3})
        if is_there:
            found = table_positions.find(Records(store, ZONE), SOURCE, NARROW, FOLDER, cut=cut)
            assert found.number == number
        else:
            with pytest.raises(MissingFile, match="newest file is 2, and files up to 3 were"):
                table_positions.find(Records(store, ZONE), SOURCE, NARROW, FOLDER, cut=cut)

    @pytest.mark.parametrize(
        ("change", "error"),
        [
            ({"key": ("id", "note")}, KeyColumnsChanged),
            ({"key": ()}, KeyColumnsChanged),
            ({"selection": {"rows": "id > 5"}}, SelectionChanged),
        ],
    )
    def test_a_table_that_is_selected_otherwise_stops(
        self, store: MemoryStore, change: dict, error: type[TableError]
    ) -> None:
        describe(store, NARROW)
        land(store, 1, FOOTER)
        with pytest.raises(error, match=r"mirrorlake reset shop\.orders"):
            table_positions.find(Records(store, ZONE), SOURCE, replace(NARROW, **change), FOLDER)

    def test_files_of_another_publisher_stop_the_table(self, store: MemoryStore) -> None:
        land(store, 1, None)
        with pytest.raises(BadFile, match="not written by this capture"):
            table_positions.find(Records(store, ZONE), SOURCE, NARROW, FOLDER)

    def test_broken_metadata_stops_the_table(self, store: MemoryStore) -> None:
        land(store, 1, FOOTER)
        store.create(f"{FOLDER}/_metadata.json", b"{")
        with pytest.raises(BadMetadata):
            table_positions.find(Records(store, ZONE), SOURCE, NARROW, FOLDER)


class TestIdentities:
    @pytest.mark.parametrize(
        "name", [TableId("shop", "a.b"), TableId("a.b", "c"), TableId("", "x")]
    )
    def test_names_with_dots_are_told_apart(self, store: MemoryStore, name: TableId) -> None:
        records = Records(store, ZONE)
        records.truncate(name, "0/14:3", "generation", "17")
        assert table_positions.identities(records) == {name: "17"}

    def test_a_table_has_that_of_its_truncation_while_it_has_no_folder(
        self, store: MemoryStore
    ) -> None:
        """Or one that is created in its place after a crash would be taken for it."""
        records, name = Records(store, ZONE), TableId.parse("shop.orders")
        assert table_positions.identities(records) == {}
        records.truncate(name, "0/14:3", "generation", "17")
        assert table_positions.identities(records) == {name: "17"}
        describe(store, replace(table("shop.orders"), identity="18"))
        assert table_positions.identities(records) == {name: "18"}

    def test_a_truncation_of_an_earlier_release_has_none(self, store: MemoryStore) -> None:
        records = Records(store, ZONE)
        records.truncate(TableId.parse("shop.orders"), "0/14:3", "generation")
        assert table_positions.identities(records) == {}


class TestGenerations:
    def test_a_table_that_begins_anew_has_another_generation(self, store: MemoryStore) -> None:
        seen = set()
        for _turn in range(2):
            describe(store, NARROW)
            seen.add(table_positions.generation_of(store, NARROW.table, FOLDER))
        assert len(seen) == 2
        assert "" not in seen

    def test_a_folder_without_metadata_has_no_generation(self, store: MemoryStore) -> None:
        assert table_positions.generation_of(store, NARROW.table, FOLDER) == ""
