"""Vacuum waits for subscriptions, for as long as is allowed, and says for which."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from mirrorlake import FeedError, Mirror, Project, subscribe
from mirrorlake.app import subscribe as subscriptions
from mirrorlake.app.maintenance.vacuum import SUBSCRIPTION_CUT_OFF, VACUUM_HELD, Vacuums
from mirrorlake.apply.engine import Engine
from mirrorlake.apply.in_process.committer import LogCommitter
from mirrorlake.apply.in_process.runner import InProcessRunner
from mirrorlake.apply.in_process.tables import LogTables
from mirrorlake.config import load
from mirrorlake.storage.local import LocalStore
from tests.doubles.clock import SteppedClock
from tests.feed.handmade_feed import DELETE, INSERT, UPDATE, FeedTable

WEEK, PATH = timedelta(days=7), "Tables/s/t"


@pytest.fixture
def table(tmp_path: Path) -> FeedTable:
    """Versions 0 to 2, of which a subscription has read those up to 1; the files are old."""
    table = FeedTable(tmp_path / PATH)
    table.change((INSERT, (1, "a")), (INSERT, (2, "b")))
    with subscribe("audit", table.path, start="beginning") as subscription:
        list(subscription)
    table.change((UPDATE, (1, "c")), (DELETE, (2, None)))
    for file in table.path.rglob("*.*"):
        os.utime(file, (0, 0))
    return table


def vacuum(root: Path, days: float, hold: float = 14) -> list[dict[str, Any]]:
    """Vacuum so many days from now; returns what is logged."""
    store = LocalStore(root)
    engine = Engine(store, InProcessRunner(), LogCommitter(), LogTables(store))
    clock = SteppedClock(datetime.now(UTC) + timedelta(days=days))
    with capture_logs() as logs:
        Vacuums(store, engine, clock, WEEK, timedelta(days=hold)).vacuum(PATH, lambda: None)
    return [dict(entry) for entry in logs]


def read(table: FeedTable) -> list[int]:
    with subscribe("audit", table.path) as subscription:
        return [one.version for one in subscription]


def test_vacuum_does_not_cut_a_subscription_off_and_names_it(
    table: FeedTable, tmp_path: Path
) -> None:
    before = len(list(table.path.rglob("_change_data/*")))
    (entry,) = vacuum(tmp_path, days=8)
    assert (entry["event"], entry["subscriptions"]) == (VACUUM_HELD, ["audit"])
    assert len(list(table.path.rglob("_change_data/*"))) == before > 0
    assert read(table) == [2]
    assert [entry["event"] for entry in vacuum(tmp_path, days=8)] == ["table_vacuumed"]
    assert not list(table.path.rglob("_change_data/*"))


@pytest.mark.parametrize(("days", "hold"), [(15, 14), (8, 0), (31, 365)])
def test_a_reader_that_is_too_slow_holds_nothing(
    table: FeedTable, tmp_path: Path, days: float, hold: float
) -> None:
    """Nor does one whose commits the log would remove anyway."""
    entries = vacuum(tmp_path, days, hold)
    assert [entry["event"] for entry in entries] == [SUBSCRIPTION_CUT_OFF, "table_vacuumed"]
    assert (entries[0]["subscription"], entries[0]["version"]) == ("audit", 2)
    with subscribe("audit", table.path) as subscription:
        with pytest.raises(FeedError) as refused:
            list(subscription)
        assert (refused.value.reason, "accept_gap" in refused.value.hint) == ("expired", True)
        gap = subscription.accept_gap()
        assert gap is not None
        assert (gap.first, gap.last) == (2, 2)
        assert list(subscription) == []


def test_changes_that_are_young_enough_hold_nothing(table: FeedTable, tmp_path: Path) -> None:
    assert [entry["event"] for entry in vacuum(tmp_path, days=6)] == ["table_vacuumed"]


def test_a_damaged_record_holds_everything(table: FeedTable, tmp_path: Path) -> None:
    (tmp_path / "Files/Mirrorlake/subscriptions/audit.json").write_text("{")
    (entry,) = vacuum(tmp_path, days=8)
    assert (entry["event"], entry["subscriptions"]) == (VACUUM_HELD, None)
    (state,) = subscriptions.states(Project.of_root(tmp_path))
    assert "cannot be read" in state.problem
    assert table.path.exists()


def test_a_subscription_reads_what_is_held_beyond_the_retention_of_the_table(
    tmp_path: Path,
) -> None:
    kept = {"delta.deletedFileRetentionDuration": "interval 1 minutes"}
    table = FeedTable(tmp_path / PATH, **kept)
    table.change((INSERT, (1, "a")))
    with subscribe("audit", table.path, start="latest"):
        table.change((INSERT, (2, "b")))
    assert read(table) == [2]


@pytest.mark.clause("CF-189")
def test_status_gives_the_time_that_is_left(table: FeedTable, tmp_path: Path) -> None:
    project = Project.of_root(tmp_path)
    for days, left, is_late in ((0, 14, False), (10, 4, False), (11, 3, True), (15, 0, True)):
        now = datetime.now(UTC) + timedelta(days=days)
        (state,) = subscriptions.states(project, now)
        assert state.left_seconds is not None
        assert left - 0.1 < state.left_seconds / 86_400 <= left
        assert (state.behind, state.is_late, state.problem) == (1, is_late, "")
    (state,) = Mirror(project).status().subscriptions
    assert json.loads(json.dumps(state.facts()))["left_seconds"] > 13 * 86_400
    read(table)
    (state,) = subscriptions.states(project)
    assert (state.behind, state.left_seconds, state.is_late) == (0, None, False)


def test_the_settings_are_read(tmp_path: Path) -> None:
    path = tmp_path / "mirrorlake.yaml"
    path.write_text("name: a\nroot: b\nmirror: {subscription_days: 2, subscription_warning: 0.5}\n")
    found = load(path, {}).mirror
    assert (found.subscription_hold, found.subscription_warning) == (timedelta(days=2), 0.5)
