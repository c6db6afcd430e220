"""Where a publisher writes: the zone, schema folders, and names that would lead elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirrorlake.errors import UsageError
from mirrorlake.landing import layout
from mirrorlake.landing.scan import Scanner
from mirrorlake.model.table import TableId
from mirrorlake.publisher import Publisher
from mirrorlake.storage.local import LocalStore
from tests.publisher.mirrored_zone import ZONE, Zone

ROWS = [{"id": 1}]


@pytest.mark.clause("LZ-005", "LZ-006", "LZ-007", "LZ-010")
def test_a_table_has_a_folder_of_its_name(zone: Zone, publisher: Publisher) -> None:
    publisher.load("orders", ROWS, key="id")
    assert zone.names("orders") == ["00000000000000000001.parquet"]
    assert "_metadata.json" in [f.name for f in zone.store.list(f"{ZONE}/orders").files]


@pytest.mark.clause("LZ-008", "LZ-010")
def test_the_other_form_of_the_path_is_written_when_it_is_asked_for(zone: Zone) -> None:
    with zone.publisher(zone="LandingZone") as publisher:
        publisher.load("orders", ROWS, key="id")
    assert zone.store.list("").folders == ("Files", "LandingZone")
    assert zone.store.list("Files").folders == ("Mirrorlake",)
    assert zone.rows("orders") == ROWS


@pytest.mark.clause("LZ-013", "LZ-014", "LZ-015")
def test_schemas_are_folders_of_their_own(zone: Zone, publisher: Publisher) -> None:
    for table in ("Schema1.TableA", "Schema1.TableB", "Schema2.TableC"):
        publisher.load(table, ROWS, key="id")
    folders = [f.path for f in layout.table_folders(zone.store, ZONE)]
    assert folders == [
        f"{ZONE}/Schema1.schema/TableA",
        f"{ZONE}/Schema1.schema/TableB",
        f"{ZONE}/Schema2.schema/TableC",
    ]


@pytest.mark.clause("LZ-026")
def test_what_a_mirror_needs_is_there_before_it_starts(zone: Zone, publisher: Publisher) -> None:
    publisher.load("s.t", ROWS, key="id")
    assert zone.rows("s.t") == ROWS


@pytest.mark.parametrize(
    "name",
    [
        "..", ".", "../../escaped", "/etc/passwd", "a/b", "a\\b", "_scratchPad", "_metadata.json",
        "t.schema", "nul\0", "x" * 255, "ä" * 255, " ", "a ", "a.", "%2e%2e", "CON", "日本",
    ],
)  # fmt: skip
def test_no_name_leads_out_of_the_zone(tmp_path: Path, name: str) -> None:
    root = tmp_path / "in" / "root"
    table = TableId("", name)
    with Publisher(root) as publisher:
        publisher.load(table, ROWS, key="id")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
    assert [path.name for path in (tmp_path / "in").iterdir()] == ["root"]
    (found,) = layout.table_folders(LocalStore(root), ZONE)
    assert (root / found.path / "00000000000000000001.parquet").is_file()


@pytest.mark.parametrize("name", ["../up", "a/b", "_x", "ta\tb", "ü"])
def test_a_table_keeps_its_true_name(zone: Zone, publisher: Publisher, name: str) -> None:
    publisher.load(TableId("s", name), ROWS, key="id")
    (scan,) = Scanner(zone.store).scan()
    assert scan.table == TableId("s", name)


def test_names_that_differ_only_in_case_get_folders_that_differ_in_more(
    zone: Zone, publisher: Publisher
) -> None:
    publisher.load("Orders", ROWS, key="id")
    publisher.load("orders", [{"id": 2}], key="id")
    folders = [folder.casefold() for folder in zone.store.list(ZONE).folders]
    assert len(set(folders)) == 2


def test_a_twin_keeps_its_folder_when_the_other_is_dropped(zone: Zone) -> None:
    with zone.publisher() as publisher:
        publisher.load("Orders", ROWS, key="id")
        publisher.load("orders", ROWS, key="id")
        publisher.drop("Orders")
    with zone.publisher() as publisher:
        again = publisher.publish("orders", [{"id": 2}], operation="insert")
    assert [file.number for file in again.files] == [2]


@pytest.mark.parametrize("zone_name", ["", "Files", "../LandingZone", "Tables"])
def test_no_other_place_is_a_landing_zone(zone: Zone, zone_name: str) -> None:
    with pytest.raises(UsageError):
        zone.publisher(zone=zone_name)


def test_a_link_that_leaves_the_root_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    folder = tmp_path / "root" / ZONE
    folder.mkdir(parents=True)
    (folder / "orders").symlink_to(outside)
    with Publisher(tmp_path / "root") as publisher, pytest.raises(ValueError, match="link"):
        publisher.load("orders", ROWS, key="id")
    assert list(outside.iterdir()) == []


def test_a_table_needs_a_name(publisher: Publisher) -> None:
    with pytest.raises(UsageError):
        publisher.load("", ROWS, key="id")


def test_a_location_that_is_not_a_folder_is_refused() -> None:
    with pytest.raises(UsageError, match="not a supported storage"):
        Publisher("ftp://example.com/database")
