"""Vacuum waits for subscriptions, for as long as is allowed, and says for which."""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from structlog.testing import capture_logs

from mirrorlake import FeedError, Mirror, Project, archive, history, subscribe
from mirrorlake.app import subscribe as subscriptions
from mirrorlake.app.maintenance.vacuum import (
    LOG_HELD,
    RETENTION_CHANGED,
    SUBSCRIPTION_CUT_OFF,
    VACUUM_HELD,
    ReadersOf,
    Vacuums,
    no_readers,
)
from mirrorlake.app.targets.target_status import readers_of, targets_of
from mirrorlake.apply.engine import Engine
from mirrorlake.apply.in_process.committer import LogCommitter
from mirrorlake.apply.in_process.runner import InProcessRunner
from mirrorlake.apply.in_process.tables import LogTables
from mirrorlake.config import load
from mirrorlake.delta.log import checkpoint
from mirrorlake.delta.log.retention import RetentionTimes
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.feed.commits.history import CommitHistory
from mirrorlake.feed.subscriptions.retention import KEEPS
from mirrorlake.storage.local import LocalStore
from tests.doubles.clock import SteppedClock
from tests.feed.handmade_feed import DELETE, INSERT, UPDATE, FeedTable

PATH = "Tables/s/t"


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


def vacuums(
    root: Path,
    days: float,
    hold: float = 14,
    after: float | None = 7,
    readers: ReadersOf = no_readers,
) -> Vacuums:
    """So many days from now, of what is older than `after`."""
    store = LocalStore(root)
    engine = Engine(store, InProcessRunner(), LogCommitter(), LogTables(store))
    clock = SteppedClock(datetime.now(UTC) + timedelta(days=days))
    vacuum = None if after is None else timedelta(days=after)
    return Vacuums(store, engine, clock, vacuum, timedelta(days=hold), readers)


def vacuum(
    root: Path,
    days: float,
    hold: float = 14,
    after: float | None = 7,
    readers: ReadersOf = no_readers,
) -> list[dict[str, Any]]:
    """Vacuum so many days from now what is older than `after`; returns what is logged."""
    with capture_logs() as logs:
        vacuums(root, days, hold, after, readers).vacuum(PATH, lambda: None)
    return [dict(entry) for entry in logs]


def read(table: FeedTable) -> list[int]:
    with subscribe("audit", table.path) as subscription:
        return [one.version for one in subscription]


@pytest.mark.clause("CF-187", "CF-062")
def test_vacuum_does_not_cut_a_subscription_off_and_names_it(
    table: FeedTable, tmp_path: Path
) -> None:
    before = len(list(table.path.rglob("_change_data/*")))
    entry, change = vacuum(tmp_path, days=8)
    assert (entry["event"], entry["subscriptions"]) == (VACUUM_HELD, ["audit"])
    assert change["event"] == RETENTION_CHANGED
    assert len(list(table.path.rglob("_change_data/*"))) == before > 0
    assert read(table) == [2]
    events = [entry["event"] for entry in vacuum(tmp_path, days=8)]
    assert events == [RETENTION_CHANGED, "table_vacuumed"]
    assert not list(table.path.rglob("_change_data/*"))


@pytest.mark.parametrize(("days", "hold"), [(15, 14), (8, 0), (366, 365)])
def test_a_reader_that_is_too_slow_holds_nothing(
    table: FeedTable, tmp_path: Path, days: float, hold: float
) -> None:
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
    assert [entry["event"] for entry in vacuum(tmp_path, days=6.2)] == ["table_vacuumed"]


def test_a_reader_is_held_before_the_files_of_its_commit_are_too_old(
    table: FeedTable, tmp_path: Path
) -> None:
    # A batch writes its files up to hours before its commit, and vacuum counts from then on.
    assert vacuum(tmp_path, days=6.9)[0]["event"] == VACUUM_HELD
    assert read(table) == [2]


@pytest.mark.clause("CF-187")
@pytest.mark.parametrize("after", [7, None])
def test_the_log_is_not_cleaned_before_the_table_says_that_it_is_kept(
    table: FeedTable, tmp_path: Path, after: float | None
) -> None:
    assert vacuums(tmp_path, days=20, hold=60).may_clean_log(PATH)
    late = vacuums(tmp_path, days=35, hold=60, after=after)
    with capture_logs() as logs:
        assert not late.may_clean_log(PATH)
    assert [(one["event"], one["subscriptions"]) for one in logs] == [(LOG_HELD, ["audit"])]
    late.vacuum(PATH, lambda: None)
    assert says(table)[1] == timedelta(days=60)
    assert late.may_clean_log(PATH)
    assert read(table) == [2]
    late.vacuum(PATH, lambda: None)
    assert says(table) == days(7, 30)
    record = tmp_path / "Files/Mirrorlake/subscriptions/audit.json"
    record.write_text("{")
    assert late.may_clean_log(PATH), "it was looked at a moment ago"
    assert not vacuums(tmp_path, days=0).may_clean_log(PATH)


def test_without_vacuum_only_the_log_is_kept_for_readers(table: FeedTable, tmp_path: Path) -> None:
    files = sorted(table.path.rglob("*.parquet"))
    assert vacuum(tmp_path, days=20, hold=60, after=None) == []
    held = vacuum(tmp_path, days=35, hold=60, after=None)
    assert [entry["event"] for entry in held] == [VACUUM_HELD, RETENTION_CHANGED]
    assert says(table) == days(7, 60)
    assert sorted(table.path.rglob("*.parquet")) == files
    late = vacuums(tmp_path, days=35, hold=60, after=None)
    assert late.next([PATH], [PATH]) is None  # its day begins
    late._clock.advance(86_400)  # type: ignore[attr-defined]
    assert late.next([PATH], [PATH]) == PATH
    assert vacuums(tmp_path, days=35, after=None).next([PATH], [PATH]) is None


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


@pytest.mark.clause("CF-062")
def test_the_settings_are_read(tmp_path: Path) -> None:
    path = tmp_path / "mirrorlake.yaml"
    path.write_text("name: a\nroot: b\nmirror: {subscription_days: 2, subscription_warning: 0.5}\n")
    found = load(path, {}).mirror
    assert (found.subscription_hold, found.subscription_warning) == (timedelta(days=2), 0.5)


def says(table: FeedTable) -> tuple[timedelta, timedelta]:
    keeps = RetentionTimes.of(TableLog(table.path).snapshot().properties)
    return keeps.files, keeps.log


def days(files: float, log: float) -> tuple[timedelta, timedelta]:
    return timedelta(days=files), timedelta(days=log)


@pytest.mark.clause("CF-186")
def test_a_table_says_how_long_it_is_kept_by_the_setting(tmp_path: Path) -> None:
    table = FeedTable(tmp_path / PATH)
    table.change((INSERT, (1, "a")))
    for setting, files, log in ((7, 7, 30), (60, 60, 60), (10, 10, 30), (2.5, 2.5, 30), (7, 7, 30)):
        before = table.log.snapshot().version
        vacuum(tmp_path, 0, after=setting)
        assert says(table) == days(files, log)
        vacuum(tmp_path, 0, after=setting)
        assert table.log.snapshot().version - before <= 1, "said once"
    for version in table.log.versions():
        for action in table.log.actions(version):
            if described := action.get("metaData"):
                keeps = RetentionTimes.of(described["configuration"])
                assert keeps.files <= keeps.log


def test_a_longer_time_that_somebody_else_has_set_stays(tmp_path: Path) -> None:
    theirs = {"delta.deletedFileRetentionDuration": "interval 6 weeks", "other": "x"}
    table = FeedTable(tmp_path / PATH, **theirs)
    vacuum(tmp_path, 0)
    assert says(table) == days(42, 42)
    vacuum(tmp_path, 0, after=50)
    assert says(table) == days(50, 50)
    vacuum(tmp_path, 0, after=7)
    assert says(table) == days(7, 30)  # what the mirror has set it may shorten
    assert TableLog(table.path).snapshot().properties["other"] == "x"


@pytest.mark.clause("CF-187")
@pytest.mark.parametrize("time", ["interval 0 hours", "interval 999 milliseconds", "1.5 seconds"])
def test_a_table_that_keeps_nothing_is_kept_for_its_readers(tmp_path: Path, time: str) -> None:
    theirs = {"delta.logRetentionDuration": time, "delta.deletedFileRetentionDuration": time}
    table = FeedTable(tmp_path / PATH, **theirs)
    table.change((INSERT, (1, "a")))
    with subscribe("audit", table.path, start="beginning") as subscription:
        list(subscription)
    table.change((UPDATE, (1, "b")))
    with capture_logs() as logs:
        assert not vacuums(tmp_path, days=1).may_clean_log(PATH)
    assert [(one["event"], one["subscriptions"]) for one in logs] == [(LOG_HELD, ["audit"])]
    vacuum(tmp_path, days=1)
    assert says(table) == days(14, 30)
    assert vacuums(tmp_path, days=1).may_clean_log(PATH)
    assert read(table) == [2]
    vacuum(tmp_path, days=1)
    assert says(table) == days(7, 30)


@pytest.mark.clause("CF-187")
def test_a_log_that_is_kept_for_an_hour_is_looked_at_in_time(tmp_path: Path) -> None:
    table = FeedTable(tmp_path / PATH, **{"delta.logRetentionDuration": "interval 1 hour"})
    table.change((INSERT, (1, "a")))
    with subscribe("audit", table.path, start="beginning") as subscription:
        list(subscription)
    table.change((UPDATE, (1, "b")))
    committed = CommitHistory(table.log).time(table.log.snapshot().version)
    clock = SteppedClock(committed + timedelta(minutes=50))
    store = LocalStore(tmp_path)
    engine = Engine(store, InProcessRunner(), LogCommitter(), LogTables(store))
    vacuums = Vacuums(store, engine, clock, None, timedelta(days=14))
    assert vacuums.may_clean_log(PATH)
    clock.advance(5 * 60)
    assert not vacuums.may_clean_log(PATH)


@pytest.mark.clause("CF-188")
def test_the_table_is_kept_for_longer_while_a_reader_holds_it(
    table: FeedTable, tmp_path: Path
) -> None:
    vacuum(tmp_path, days=8, hold=90)
    assert says(table) == days(90, 90)
    vacuum(tmp_path, days=31, hold=90)  # beyond what the log keeps by itself
    assert read(table) == [2]
    vacuum(tmp_path, days=31, hold=90)
    assert says(table) == days(7, 30)


@pytest.mark.clause("CF-187")
def test_a_lowered_retention_waits_for_a_reader_too(table: FeedTable, tmp_path: Path) -> None:
    sixty = RetentionTimes(*days(60, 60)).properties()
    ours = {KEEPS: ", ".join(sixty.values())}
    LogTables(LocalStore(tmp_path)).set_properties(PATH, sixty | ours)
    entry, change = vacuum(tmp_path, days=10, after=7)
    assert (entry["subscriptions"], change["files"]) == (["audit"], "interval 14 days")
    read(table)
    vacuum(tmp_path, days=10, after=7)
    assert says(table) == days(7, 30)


def test_a_checkpoint_keeps_what_a_table_with_another_time_needs(tmp_path: Path) -> None:
    table = FeedTable(tmp_path / PATH, **RetentionTimes(timedelta(days=90)).properties())
    table.change((INSERT, (1, "a")))
    table.change((DELETE, (1, None)))
    month = datetime.now(UTC).timestamp() + 30 * 86_400
    checkpoint.write(table.path, month)
    (path,) = (table.path / "_delta_log").glob("*.checkpoint.parquet")
    assert len(pq.read_table(path)["remove"].drop_null()) == 1


@pytest.mark.clause("CF-187", "CF-189")
def test_vacuum_waits_for_the_tables_that_a_project_builds(tmp_path: Path) -> None:
    table = FeedTable(tmp_path / PATH)
    table.change((INSERT, (1, "a")))
    (tmp_path / "mirrorlake.yaml").write_text(
        "name: shop\nroot: .\nhistories:\n- table: s.t\narchives:\n- table: s.t\n- table: s.u\n"
    )
    project = load(tmp_path / "mirrorlake.yaml", {})
    readers = partial(readers_of, project)
    assert readers(PATH) == []
    history(table.path, tmp_path / "Tables/s/t_history")
    archive(table.path, tmp_path / "Tables/s/t_archive")
    table.change((UPDATE, (1, "b")))
    history(table.path, tmp_path / "Tables/s/t_history")
    assert [(one.name, one.next) for one in readers(PATH)] == [
        ("table s.t_history", 3),
        ("table s.t_archive", 2),
    ]
    entry = vacuum(tmp_path, days=8, readers=readers)[0]
    assert (entry["event"], entry["subscriptions"]) == (VACUUM_HELD, ["table s.t_archive"])
    now = datetime.now(UTC)
    found = {one.target: one for one in targets_of(project, now + timedelta(days=11))}
    assert found["s.u_archive"].left_seconds is None
    left = found["s.t_archive"].left_seconds
    assert left is not None
    assert (2.9 < left / 86_400 <= 3, found["s.t_archive"].is_late) == (True, True)
    for build, target in ((archive, "t_archive"), (history, "t_history")):
        build(table.path, tmp_path / f"Tables/s/{target}")
    assert vacuum(tmp_path, days=8, readers=readers)[-1]["event"] == "table_vacuumed"
    shutil.rmtree(tmp_path / "Tables/s/t_archive/_delta_log")
    (tmp_path / "Tables/s/t_archive/_delta_log").mkdir()
    (tmp_path / f"Tables/s/t_archive/_delta_log/{0:020d}.json").write_text("{")
    (entry,) = vacuum(tmp_path, days=8, readers=readers)
    assert (entry["event"], entry["subscriptions"]) == (VACUUM_HELD, None)
