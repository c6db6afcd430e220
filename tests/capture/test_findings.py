"""What a look at the source finds is logged once, and says what is to be done."""

from __future__ import annotations

from pathlib import Path

from structlog.testing import capture_logs

from mirrorlake import root
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.watch.findings import Findings
from mirrorlake.model.clock import WallClock
from mirrorlake.model.table import TableId
from mirrorlake.sources.base import DIFFERS, UNFOLLOWED, CheckResult, CheckSeverity
from mirrorlake.storage.local import LocalStore

TABLE = TableId("public", "t")


def test_each_finding_is_logged_once_and_resets_no_table_that_is_read_again(
    tmp_path: Path,
) -> None:
    records = Records(LocalStore(tmp_path), root.LANDING)
    findings = Findings(records, WallClock())
    differs = CheckResult(DIFFERS, CheckSeverity.WARNING, "rows", "Run `reset`.", TABLE)
    slot = CheckResult("slot", CheckSeverity.WARNING, "behind", "Wait.")
    fine = CheckResult("wal", CheckSeverity.OK, "")
    with capture_logs() as logged:
        for _look in range(2):
            assert list(findings.told([differs, fine, slot])) == [differs, slot]
    assert [entry["check"] for entry in logged] == [DIFFERS, "slot"]
    assert "read again by itself" in logged[0]["hint"]
    assert logged[1]["hint"] == "Wait."


def test_a_table_is_unfollowed_from_the_first_look_to_the_last(tmp_path: Path) -> None:
    records = Records(LocalStore(tmp_path), root.LANDING)
    findings = Findings(records, WallClock())
    altered = CheckResult(UNFOLLOWED, CheckSeverity.WARNING, "renamed", "", TABLE)
    list(findings.told([altered]))
    first = records.unfollowed()
    assert first["public.t"].change == "renamed"
    list(findings.told([altered]))
    assert records.unfollowed() == first
    list(findings.told([]))
    assert records.unfollowed() == {}
