"""How a mirror stands, told from zone and tables alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mirrorlake import root
from mirrorlake.app.mirror import Mirror
from mirrorlake.app.status import mirror_status
from mirrorlake.app.status.table_status import TableStatus
from mirrorlake.app.status.table_status_file import PATH
from mirrorlake.capture.records.records import Records
from mirrorlake.config import Project
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.model.clock import WallClock
from mirrorlake.model.state import TableState
from mirrorlake.sources.postgresql.settings import PostgresSettings
from mirrorlake.storage.lease import Lease
from mirrorlake.storage.local import LocalStore
from tests.app.zones import Zone

GOOD = {"id": [1]}
SOURCE = PostgresSettings(url="postgresql://nobody@nowhere/none")


@pytest.fixture
def zone(tmp_path: Path) -> Zone:
    return Zone(tmp_path, None)  # type: ignore[arg-type]


def found(zone: Zone, **settings: Any) -> dict[str, TableStatus]:
    project = Project(name="p", root=zone.root, **settings)
    return {table.table: table for table in mirror_status.read(project).tables}


class TestStates:
    @pytest.mark.clause("LZ-040")
    def test_without_metadata_files_are_not_read_and_the_table_waits(self, zone: Zone) -> None:
        zone.folder("t").mkdir(parents=True)
        zone.land("t", 1, GOOD)
        table = found(zone)["s.t"]
        assert (table.state, table.pending_files) == (TableState.INITIALIZED, 1)
        assert table.waiting == "_metadata.json is missing (LZ-040)"

    @pytest.mark.clause("LZ-040")
    def test_without_metadata_the_table_begins_when_so_configured(self, zone: Zone) -> None:
        zone.folder("t").mkdir(parents=True)
        zone.land("t", 1, GOOD)
        table = found(zone, mirror=MirrorSettings(metadata_required=False))["s.t"]
        assert (table.state, table.waiting) == (TableState.SNAPSHOTTING, "")

    @pytest.mark.clause("LZ-275")
    def test_with_metadata_and_no_file_the_table_waits_for_one(self, zone: Zone) -> None:
        zone.table("t", "id")
        assert found(zone)["s.t"].state is TableState.SNAPSHOTTING

    def test_a_folder_that_cannot_be_read_tells_why(self, zone: Zone) -> None:
        zone.table("t", "id")
        (zone.folder("t") / "_metadata.json").write_text("{")
        table = found(zone)["s.t"]
        assert table.state is TableState.FAILED
        assert table.error is not None
        assert table.error["code"] == "bad_metadata"

    def test_it_tells_for_what_a_table_waits(self, zone: Zone) -> None:
        zone.table("t", "id")
        zone.land("t", 1, GOOD)
        LocalStore(zone.root).replace(
            PATH, b'{"tables": {"s.t": {"error": null, "waiting": "its transaction"}}}'
        )
        assert found(zone)["s.t"].waiting == "its transaction"


@pytest.mark.parametrize("version", [0, 1], ids=["garbage", "gap"])
class TestATableWhoseLogIsDamaged:
    @pytest.fixture(autouse=True)
    def damaged(self, zone: Zone, version: int) -> None:
        for name in ("a", "b"):
            zone.table(name, "id")
            zone.land(name, 1, GOOD)
        log = zone.root / "Tables/s/a/_delta_log"
        log.mkdir(parents=True)
        (log / f"{version:020d}.json").write_text("garbage\n")

    def test_status_shows_it_and_the_others(self, zone: Zone) -> None:
        tables = found(zone)
        assert tables["s.a"].state is TableState.FAILED
        assert tables["s.a"].error is not None
        assert tables["s.a"].error["code"] == "foreign_table"
        assert "_delta_log" in tables["s.a"].error["message"] or "commit 0" in str(tables["s.a"])
        assert "mirrorlake reset s.a" in tables["s.a"].error["hint"]
        assert (tables["s.b"].state, tables["s.b"].error) == (TableState.SNAPSHOTTING, None)

    def test_plan_tells_it_and_plans_the_others(self, zone: Zone) -> None:
        plans = {str(t.table): t for t in Mirror(Project(name="p", root=zone.root)).plan()}
        error = plans["s.a"].error
        assert error is not None
        assert (error.code, error.table) == ("foreign_table", "s.a")
        assert plans["s.b"].steps


class TestLag:
    @pytest.fixture(autouse=True)
    def table(self, zone: Zone) -> None:
        zone.table("t", "id")

    @pytest.mark.clause("CF-084")
    def test_nobody_knows_it_while_no_capture_runs(self, zone: Zone) -> None:
        assert found(zone, source=SOURCE)["s.t"].lag_seconds is None

    def test_it_is_zero_when_all_that_capture_landed_is_applied(self, zone: Zone) -> None:
        lease = Lease(LocalStore(zone.root), "capture", WallClock())
        lease.take()
        assert found(zone, source=SOURCE)["s.t"].lag_seconds == 0.0
        lease.release()

    def test_a_zone_that_others_fill_is_as_they_left_it(self, zone: Zone) -> None:
        assert found(zone)["s.t"].lag_seconds == 0.0


def test_a_table_that_capture_stopped_is_shown_with_its_error(zone: Zone) -> None:
    Records(LocalStore(zone.root), root.LANDING).stop(
        "s.gone", {"code": "table_error", "message": "it broke", "hint": ""}
    )
    table = found(zone)["s.gone"]
    assert (table.state, table.error and table.error["message"]) == (TableState.FAILED, "it broke")


class TestPartner:
    @pytest.mark.clause("LZ-068")
    def test_what_the_publisher_says_of_itself_is_told(self, zone: Zone) -> None:
        zone.table("t", "id")
        source = {
            "sourceType": "Oracle",
            "sourceVersion": "19",
            "additionalInformation": {"a": [1]},
        }
        record = {"partnerName": "p", "sourceInfo": source}
        landing = zone.root / "Files/LandingZone"
        (landing / "_partnerEvents.json").write_text(json.dumps(record))
        found = mirror_status.read(Project(name="p", root=zone.root))
        assert found.facts()["partner"] == {
            "partner": "p",
            "source_type": "Oracle",
            "source_version": "19",
            "additional_information": {"a": [1]},
            "problem": None,
        }

    @pytest.mark.clause("LZ-067")
    def test_a_damaged_file_is_told_and_the_tables_are_as_they_are(self, zone: Zone) -> None:
        zone.table("t", "id")
        before = found(zone)
        (zone.root / "Files/LandingZone/_partnerEvents.json").write_text("{")
        told = mirror_status.read(Project(name="p", root=zone.root))
        assert told.partner.problem
        assert {table.table: table for table in told.tables} == before

    def test_without_one_nothing_is_told(self, zone: Zone) -> None:
        zone.table("t", "id")
        assert mirror_status.read(Project(name="p", root=zone.root)).facts()["partner"] is None


class TestTexts:
    @pytest.mark.clause("LZ-042")
    def test_a_text_waits_for_its_description_whatever_is_configured(self, zone: Zone) -> None:
        zone.folder("t").mkdir(parents=True)
        (zone.folder("t") / f"{1:020d}.csv").write_text("id\n1\n")
        table = found(zone, mirror=MirrorSettings(metadata_required=False))["s.t"]
        assert (table.state, table.pending_files) == (TableState.INITIALIZED, 1)
        assert "_metadata.json is missing" in table.waiting

    @pytest.mark.clause("CF-084")
    def test_the_age_of_a_text_is_not_known(self, zone: Zone) -> None:
        zone.table("t", "id")
        (zone.folder("t") / f"{1:020d}.csv").write_text("id\n1\n")
        assert found(zone)["s.t"].lag_seconds is None
