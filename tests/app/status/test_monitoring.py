"""Status files and operation log: what they say is what the tables record."""

from __future__ import annotations

import json
import uuid
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from mirrorlake import root
from mirrorlake.app.status import mirror_status, operation_log, table_status_file
from mirrorlake.app.status.operation_log import (
    FILE_BYTES,
    MOST_RECORDS,
    Item,
    LoggedOperation,
    OperationLog,
    error_type,
)
from mirrorlake.app.status.table_status import View, tables_of
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.records.source_state import Outage
from mirrorlake.config import Project
from mirrorlake.errors import BadFile, BadValue
from mirrorlake.mirror.batch_limits import BatchLimits
from mirrorlake.mirror.faults import TableFault
from mirrorlake.model.landed import FileKind, Footer, parse_time
from mirrorlake.model.table import TableId
from mirrorlake.storage.lease import Lease
from mirrorlake.storage.local import LocalStore
from tests.app.operated import Operated, logged
from tests.app.zones import MARKER, Zone
from tests.doubles.clock import START, SteppedClock
from tests.landing.files import encoded

ITEM = Item("3f6d0f0c-8d8a-4d6c-9a55-3c1df1a5b7a1", "shop")
TABLE = TableId("s", "t")
MONITORING = "Files/Monitoring"
SECRET = "s3cret"


@pytest.fixture
def mirror(tmp_path: Path) -> Operated:
    mirror = Operated(tmp_path / "root")
    mirror.table("t", "a", "b")
    return mirror


def replicator(mirror: Operated) -> dict[str, Any]:
    return dict(json.loads((mirror.root / MONITORING / "replicator.json").read_text()))


class TestStatusFiles:
    @pytest.mark.clause("LZ-307")
    def test_the_mirror_says_that_it_runs_and_when_it_last_said_so(self, mirror: Operated) -> None:
        with mirror.running() as loop:
            loop.cycle(None)
            said = replicator(mirror)
            assert set(said) == {"status", "errorCode", "errorMessage", "lastHeartbeatTime"}
            assert said["status"] == "Running"
            mirror.cycles(loop, 60)
            passed = parse_time(replicator(mirror)["lastHeartbeatTime"]) - START
            assert passed >= timedelta(seconds=55)
        assert replicator(mirror)["status"] == "Stopped"

    def test_a_source_that_does_not_answer_is_told_within_seconds(self, mirror: Operated) -> None:
        records = Records(mirror.store, root.LANDING)
        with mirror.running() as loop:
            mirror.cycles(loop, 5)
            Lease(mirror.store, "capture", mirror.clock).take()
            now = mirror.clock.now()
            records.begin_outage(Outage(now, now, "PostgreSQL does not answer"))
            mirror.cycles(loop, 2, every=1)
            said = replicator(mirror)
            assert (said["status"], said["errorCode"]) == ("Running", "source_unavailable")
            assert "unreachable since 2026-01-01" in said["errorMessage"]
            records.end_outage()
            mirror.cycles(loop, 2, every=1)
            assert replicator(mirror)["errorCode"] == ""

    @pytest.mark.clause("LZ-308", "LZ-310")
    def test_each_table_has_an_entry_of_the_documented_shape(self, mirror: Operated) -> None:
        mirror.clock.advance(90)
        mirror.once()
        size = sum(path.stat().st_size for path in mirror.zone.folder("t").rglob("*.parquet"))
        entry = mirror.shown("t")
        assert uuid.UUID(entry.pop("id"))
        assert entry == {
            "status": "Stopped",
            "errorCode": "",
            "errorMessage": "",
            "normalizedTableName": "s.t",
            "sourceTableName": "t",
            "sourceSchemaName": "s",
            "sourceObjectType": "Table",
            "metrics": {
                "processedRowCount": 2,
                "processedByte": size,
                "lastSourceCommitTimeUtc": "0001-01-01T00:00:00",
                "lastSyncTimeUtc": "2026-01-01T00:01:30.000000Z",
            },
        }

    def test_a_table_that_was_never_mirrored_was_never_synced(self, mirror: Operated) -> None:
        mirror.zone.table("empty", "id")
        mirror.once()
        metrics = mirror.shown("empty")["metrics"]
        assert (metrics["processedRowCount"], metrics["lastSyncTimeUtc"][:4]) == (0, "0001")

    def test_a_table_keeps_its_id_when_it_begins_anew(self, mirror: Operated) -> None:
        mirror.once()
        before = mirror.shown("t")["id"]
        mirror.delete("t")
        mirror.table("t", "new")
        mirror.once()
        assert mirror.shown("t")["id"] == before

    @pytest.mark.clause("LZ-296", "LZ-270")
    def test_a_failed_table_says_why(self, mirror: Operated) -> None:
        mirror.land("t", 4)
        mirror.once()
        entry = mirror.shown("t")
        assert (entry["status"], entry["errorCode"]) == ("Failed", "missing_file")
        assert "file 3 is missing" in entry["errorMessage"]

    @pytest.mark.clause("LZ-295", "LZ-312")
    def test_stop_and_start_stop_and_start_every_table_that_has_not_failed(
        self, mirror: Operated
    ) -> None:
        mirror.table("failed")
        mirror.land("failed", 2)
        states = []
        for _ in range(2):
            with mirror.running() as loop:
                loop.cycle(None)
                mirror.cycles(loop, 10)
                states += [(mirror.shown("t")["status"], mirror.shown("failed")["status"])]
            states += [(mirror.shown("t")["status"], mirror.shown("failed")["status"])]
        assert states == [("Replicating", "Failed"), ("Stopped", "Failed")] * 2
        assert mirror.operations("t").count("StopTable") == 2
        assert "StopTable" not in mirror.operations("failed")

    @pytest.mark.clause("LZ-309")
    def test_the_file_and_the_status_command_say_the_same(self, mirror: Operated) -> None:
        mirror.table("empty")
        mirror.table("failed", "a")
        mirror.land("failed", 3)
        mirror.zone.folder("undescribed").mkdir()
        with mirror.running() as loop:
            loop.cycle(None)
            mirror.cycles(loop, 10)
            view = View(
                mirror.store,
                mirror.settings,
                loop._scanner,
                loop._planning.names,
                mirror.clock.now(),
                loop._planning._tails,
            )
            found = tables_of(
                view,
                loop._scanner.scan(),
                lambda path, _table: loop._engine.progress(path),
                table_status_file.read(mirror.store),
                {},
            )
            for facts in (table.facts() for table in found):
                entry = mirror.shown(facts["table"].removeprefix("s."))
                assert entry["status"] == facts["status"]
                assert entry["metrics"]["processedRowCount"] == facts["processed_rows"]
                assert entry["metrics"]["processedByte"] == facts["processed_bytes"]
                assert entry["errorCode"] == (facts["error"] or {"code": ""})["code"]
                assert entry["errorMessage"] == (facts["error"] or {"message": ""})["message"]
            assert len(found) == 4

    @pytest.mark.clause("LZ-311")
    def test_a_file_is_replaced_whole(
        self, mirror: Operated, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whatever is below the folder at any moment can be read."""
        seen = []

        def looking(store: LocalStore, path: str, content: bytes) -> None:
            if path.startswith(MONITORING):
                files = (mirror.root / MONITORING).rglob("*.json*")
                seen.extend(json.loads(line) for file in files for line in _documents(file))
            replace(store, path, content)

        replace = LocalStore.replace
        monkeypatch.setattr(LocalStore, "replace", looking)
        with mirror.running() as loop:
            mirror.cycles(loop, 60)
        assert len(seen) > 10
        assert not list((mirror.root / MONITORING).rglob("_*"))

    @pytest.mark.clause("LZ-311")
    def test_who_has_a_file_open_reads_all_of_it_and_nothing_newer(self, mirror: Operated) -> None:
        with mirror.running() as loop, ExitStack() as opened:
            mirror.cycles(loop, 10)
            files = sorted((mirror.root / MONITORING).rglob("*.json*"))
            assert len(files) == 3
            held = [opened.enter_context(file.open()) for file in files]
            texts = [file.read_text() for file in files]
            mirror.land("t", 3)
            mirror.cycles(loop, 10)
            assert all(f.read_text() != text for f, text in zip(files, texts, strict=True))
            assert [handle.read() for handle in held] == texts

    def test_they_are_written_seldom(
        self, mirror: Operated, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        written = []
        replace = LocalStore.replace

        def counting(store: LocalStore, path: str, content: bytes) -> None:
            written.append(path)
            replace(store, path, content)

        monkeypatch.setattr(LocalStore, "replace", counting)
        with mirror.running() as loop:
            mirror.cycles(loop, 30, every=0.1)
            assert written.count(f"{MONITORING}/replicator.json") <= 7
            assert written.count(f"{MONITORING}/tables.json") <= 2

    def test_a_folder_that_cannot_be_written_stops_nothing(self, mirror: Operated) -> None:
        (mirror.root / "Files").mkdir(exist_ok=True)
        (mirror.root / MONITORING).write_text("a file where the folder should be")
        assert not mirror.once().errors
        assert mirror.rows("t") == [(1, "a"), (2, "b")]


@pytest.mark.clause("LZ-266")
def test_totals_are_right_after_a_restart(mirror: Operated) -> None:
    mirror.once()
    for number in range(3, 6):
        mirror.land("t", number)
        mirror.once()
    mirror.zone.land("t", 6, {"id": [1], "v": ["x"], "__rowMarker__": [2]})
    mirror.zone.land("t", 7, {"id": [2, 3], "v": ["y", "z"], "__rowMarker__": [1, 4]})
    mirror.once()
    assert mirror.shown("t")["metrics"]["processedRowCount"] == 8
    assert len(mirror.rows("t") or ()) == 4


@pytest.mark.clause("LZ-275")
def test_a_table_without_a_file_reports_its_age(tmp_path: Path) -> None:
    mirror = Operated(tmp_path)
    mirror.zone.table("t", "id")
    made = (mirror.zone.folder("t") / "_metadata.json").stat().st_mtime
    project = Project(name="p", root=tmp_path)
    for days in (1, 15):
        moment = parse_time("1970-01-01T00:00:00Z") + timedelta(seconds=made, days=days)
        (table,) = mirror_status.read(project, moment).tables
        assert (str(table.state), table.error) == ("Snapshotting", None)
        assert table.waiting.startswith(f"its first data file, for {days} day")


class TestStates:
    @pytest.mark.clause("LZ-099", "LZ-312")
    def test_a_load_is_snapshotting_until_no_file_is_left(self, tmp_path: Path) -> None:
        mirror = Operated(tmp_path, limits=BatchLimits(files=1))
        mirror.table("t")
        for number in (1, 2, 3):
            mirror.land("t", number, marker=None)
        shown = []
        with mirror.running() as loop:
            for _ in range(4):
                mirror.cycles(loop, 5)
                shown.append(mirror.shown("t")["status"])
        assert shown == ["Snapshotting", "Snapshotting", "Replicating", "Replicating"]
        mirror.land("t", 4, marker=None)
        assert [str(table.state) for table in mirror.loop()._planning.whole_plan(None)] == [
            "Replicating"
        ]
        assert mirror.operations("t") == [
            "AddTable",
            "StartSnapshotting",
            *["Snapshotting"] * 3,
            "StartReplicating",
            "StopTable",
        ]


class TestTheOperationLog:
    @pytest.mark.clause("LZ-312")
    def test_operations_are_those_of_the_original(self) -> None:
        assert {str(operation) for operation in LoggedOperation} == {
            *("AddTable", "ReplicatingSchema", "StartSnapshotting", "Snapshotting"),
            *("StartReplicating", "Replicating", "StartReseeding"),
            *("FailTable", "RemoveTable", "StopTable"),
        }

    @pytest.mark.clause("LZ-312")
    def test_a_column_that_comes_later_is_told_before_its_rows(self, tmp_path: Path) -> None:
        zone = Zone(tmp_path / "root")
        zone.table("t", "id")
        zone.land("t", 1, {"id": [1], MARKER: [0]})
        zone.apply()
        begun = len(logged(zone.store))
        zone.land("t", 2, {"id": [2], "more": ["a"], MARKER: [0]})
        zone.apply()
        told = [one["OperationName"] for one in logged(zone.store)[begun:]]
        assert told == ["ReplicatingSchema", "StartReplicating", "Replicating", "StopTable"]

    @pytest.mark.clause("LZ-312")
    def test_the_life_of_a_table(self, mirror: Operated) -> None:
        with mirror.running() as loop:
            mirror.cycles(loop, 10)
            mirror.land("t", 4)
            mirror.cycles(loop, 5)
            mirror.land("t", 3)
            mirror.cycles(loop, 10)
            mirror.delete("t")
            mirror.table("t", "new")
            mirror.cycles(loop, 10)
            mirror.delete("t")
            mirror.cycles(loop, 90)
        assert mirror.operations("t") == [
            *["AddTable", "StartReplicating", "Replicating", "FailTable"],
            *["StartReplicating", "Replicating"],
            *["StartReseeding", "Replicating", "StartReplicating", "RemoveTable"],
        ]

    @pytest.mark.clause("LZ-313")
    def test_a_batch_has_every_named_column(self, mirror: Operated) -> None:
        mirror.once()
        (batch,) = [one for one in logged(mirror.store) if one["OperationName"] == "Replicating"]
        size = sum(path.stat().st_size for path in mirror.zone.folder("t").rglob("*.parquet"))
        assert uuid.UUID(batch.pop("ItemId"))
        assert batch == {
            "Timestamp": "2026-01-01T00:00:00.000000Z",
            "OperationName": "Replicating",
            "ItemKind": "MirroredDatabase",
            "ItemName": "shop",
            "WorkspaceId": "00000000-0000-0000-0000-000000000000",
            "OperationStartTime": "2026-01-01T00:00:00.000000Z",
            "OperationEndTime": "2026-01-01T00:00:00.000000Z",
            "MirroringSourceType": "GenericMirror",
            "SourceTableName": "t",
            "SourceSchemaName": "s",
            "ProcessedRows": 2,
            "ProcessedBytes": size,
            "ReplicatorBatchLatency": None,
            "ErrorType": None,
            "ErrorMessage": None,
        }

    @pytest.mark.clause("LZ-313", "LZ-310")
    def test_the_latency_of_a_batch_is_in_seconds_since_its_source_committed(
        self, mirror: Operated
    ) -> None:
        at = mirror.clock.now()
        footer = Footer(
            "s", FileKind.CHANGES, "0/1:1", "0/2:1", complete=True, commit_times=(at, at)
        )
        content = encoded({"id": [3], "v": ["c"], MARKER: [0]}, footer)
        (mirror.zone.folder("t") / f"{3:020d}.parquet").write_bytes(content)
        mirror.clock.advance(90.5)
        mirror.once()
        (batch,) = [one for one in logged(mirror.store) if one["OperationName"] == "Replicating"]
        assert batch["ReplicatorBatchLatency"] == 90.5
        committed = mirror.shown("t")["metrics"]["lastSourceCommitTimeUtc"]
        assert parse_time(committed) == at

    @pytest.mark.clause("LZ-313")
    def test_a_failure_says_whose_it_is_and_why(self, mirror: Operated) -> None:
        mirror.land("t", 4)
        mirror.once()
        (failed,) = [one for one in logged(mirror.store) if one["OperationName"] == "FailTable"]
        assert failed["ErrorType"] == "UserError"
        assert failed["ErrorMessage"].startswith("missing_file")

    @pytest.mark.clause("LZ-313")
    def test_whose_turn_it_is(self) -> None:
        assert error_type(BadFile("x", table="t")) == "UserError"
        assert error_type(TableFault("x", table="t")) == "SystemError"

    def test_an_error_is_told_without_the_value_of_the_row(self, tmp_path: Path) -> None:
        log = OperationLog(LocalStore(tmp_path), SteppedClock(), ITEM)
        error = BadValue(
            f"{SECRET} is no number", table="s.t", file="f", row=3, column="c", value=SECRET
        )
        log.add(LoggedOperation.FAIL_TABLE, TABLE, error=error)
        log.flush()
        (line,) = logged(LocalStore(tmp_path))
        assert line["ErrorMessage"] == "bad_value (file f, row 3, column c)."
        assert SECRET not in json.dumps(line)

    def test_it_is_rotated_and_bounded(self, tmp_path: Path) -> None:
        store = LocalStore(tmp_path)
        for run in range(MOST_RECORDS + 5):
            log = OperationLog(store, SteppedClock(), ITEM)
            for _ in range(FILE_BYTES // 500):
                log.add(LoggedOperation.REPLICATING, TABLE, rows=run)
            log.flush()
        files = sorted((tmp_path / MONITORING).rglob("*.jsonl"))
        assert len(files) == MOST_RECORDS
        assert all(file.stat().st_size <= FILE_BYTES for file in files)
        assert logged(store)[-1]["ProcessedRows"] == MOST_RECORDS + 4

    def test_what_cannot_be_written_is_bounded_and_comes_later(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(operation_log, "MOST_NEW", 10)
        (tmp_path / "Files").mkdir()
        (tmp_path / MONITORING).write_text("a file where the folder should be")
        log = OperationLog(LocalStore(tmp_path), SteppedClock(), ITEM)
        for rows in range(25):
            log.add(LoggedOperation.REPLICATING, TABLE, rows=rows)
            with pytest.raises(OSError, match="Monitoring"):
                log.flush()
        (tmp_path / MONITORING).unlink()
        log.flush()
        rows = [line["ProcessedRows"] for line in logged(LocalStore(tmp_path))]
        assert rows == list(range(15, 25))

    def test_another_process_goes_on_where_the_last_one_ended(self, tmp_path: Path) -> None:
        store = LocalStore(tmp_path)
        for rows in (1, 2):
            log = OperationLog(store, SteppedClock(), ITEM)
            log.add(LoggedOperation.REPLICATING, TABLE, rows=rows)
            log.flush()
        assert [line["ProcessedRows"] for line in logged(store)] == [1, 2]
        assert len(list((tmp_path / MONITORING).rglob("*.jsonl"))) == 1


def _documents(file: Path) -> list[str]:
    text = file.read_text()
    return text.splitlines() if file.suffix == ".jsonl" else [text]
