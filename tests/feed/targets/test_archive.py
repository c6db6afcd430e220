"""Archives, clause by clause, on tables made by hand."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from mirrorlake import FeedError, FeedTargetError, UsageError, archive, read_feed
from mirrorlake.app.targets.target_status import targets_of
from mirrorlake.config import Project
from mirrorlake.feed.archive.settings import ArchiveSettings
from mirrorlake.feed.targets.settings import TargetSettings
from mirrorlake.mirror.compaction.small_files import SMALLEST
from mirrorlake.model import types
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.model.table import Column, Schema, TableId
from tests.delta.handmade import HandmadeTable
from tests.feed.handmade_feed import DELETE, INSERT, SHAPE, UPDATE, FeedTable, time_of
from tests.feed.targets.test_history import _put


@pytest.fixture
def orders(tmp_path: Path) -> FeedTable:
    table = FeedTable(tmp_path / "orders")
    table.change((INSERT, (1, "a")), (INSERT, (2, "b")))
    table.change((UPDATE, (1, "c")))
    table.change((DELETE, (2, None)))
    return table


def stored_rows(target: Path, *names: str) -> list[tuple[Any, ...]]:
    table = HandmadeTable(target)
    at = [table.schema.schema.names.index(name) for name in names]
    return sorted((tuple(row[i] for i in at) for row in table.rows()), key=repr)


CHANGES = [
    (1, "a", "insert", 1),
    (1, "a", "update_preimage", 2),
    (1, "c", "update_postimage", 2),
    (2, "b", "delete", 3),
    (2, "b", "insert", 1),
]
COLUMNS = ("id", "name", "change_type", "commit_version")


def as_of(target: Path, version: int, snapshot: int = -1) -> Counter[tuple[Any, ...]]:
    """The table as the archive tells it: rows of the snapshot, and changes after it (CF-196)."""
    rows: Counter[tuple[Any, ...]] = Counter()
    for *row, kind, at, origin in stored_rows(target, "id", "name", *COLUMNS[2:], "origin"):
        if origin == "snapshot" or snapshot < at <= version:
            rows[tuple(row)] += 1 if kind in {"insert", "update_postimage"} else -1
    assert not -rows
    return +rows


@pytest.mark.clause("CF-190", "CF-192", "CF-063")
def test_it_has_every_change_under_other_names(orders: FeedTable, tmp_path: Path) -> None:
    (report,) = archive(orders.path, tmp_path / "a")
    assert (report.covered, report.inserted) == (3, 5)
    assert stored_rows(tmp_path / "a", *COLUMNS) == CHANGES
    times = {
        (row[0], row[1])
        for row in stored_rows(tmp_path / "a", "commit_version", "commit_timestamp")
    }
    assert times == {(n, time_of(n)) for n in (1, 2, 3)}
    table_id = orders.log.snapshot().metadata["id"]
    assert set(stored_rows(tmp_path / "a", "origin", "source_id")) == {("change", table_id)}
    # With other names it can have a feed itself.
    assert HandmadeTable(tmp_path / "a").log.snapshot().properties["delta.enableChangeDataFeed"]


@pytest.mark.clause("CF-191", "CF-190")
def test_a_name_that_is_a_column_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    schema = Schema.of([*SHAPE.schema, Column("Origin", types.STRING)])
    table = FeedTable(tmp_path / "t", schema)
    _put(table, (1, "a", "here"))
    with pytest.raises(FeedTargetError, match=r"has a column Origin.*--name"):
        archive(table.path, tmp_path / "a")
    assert not (tmp_path / "a").exists()
    archive(table.path, tmp_path / "a", names={"origin": "row_origin"})
    assert stored_rows(tmp_path / "a", "Origin", "row_origin") == [("here", "change")]
    for names in ({"origin": "change_type"}, {"origin": "_change_type"}, {"colour": "c"}):
        with pytest.raises(UsageError):
            archive(table.path, tmp_path / "b", names=names)


@pytest.mark.clause("CF-193", "CF-064")
@pytest.mark.parametrize("cuts", [(), (1, 2), (0, 1, 2, 3)])
def test_it_has_every_change_once_however_often_it_runs(
    orders: FeedTable, tmp_path: Path, cuts: tuple[int, ...]
) -> None:
    for last in (*cuts, None, None):
        archive(orders.path, tmp_path / "a", to_version=last)
    assert stored_rows(tmp_path / "a", *COLUMNS) == CHANGES
    log = HandmadeTable(tmp_path / "a").log
    assert [n for app, n in log.snapshot().transactions.items() if "feed" in app] == [3]
    said = [a["commitInfo"] for v in log.versions() for a in log.actions(v) if "commitInfo" in a]
    covered = [json.loads(info["userMetadata"])["versions"] for info in said]
    assert covered[0][0] == 0
    assert all(before[1] + 1 == after[0] for before, after in pairwise(covered))


@pytest.mark.clause("CF-196")
def test_it_rebuilds_the_table_as_of_each_version(orders: FeedTable, tmp_path: Path) -> None:
    expected = {
        1: {(1, "a"): 1, (2, "b"): 1},
        2: {(1, "c"): 1, (2, "b"): 1},
        3: {(1, "c"): 1},
    }
    archive(orders.path, tmp_path / "whole")
    archive(orders.path, tmp_path / "late", from_version=1)
    for version, rows in expected.items():
        assert as_of(tmp_path / "whole", version) == rows
        assert as_of(tmp_path / "late", version, 1) == rows
    origins = Counter(stored_rows(tmp_path / "late", "origin", "commit_version"))
    # The changes of the first version are there beside its rows.
    assert origins == {("snapshot", 1): 2, ("change", 1): 2, ("change", 2): 2, ("change", 3): 1}


@pytest.mark.clause("CF-194")
def test_a_gap_stops_it_until_it_is_accepted_and_recorded(
    orders: FeedTable, tmp_path: Path
) -> None:
    archive(orders.path, tmp_path / "a")
    orders.record(is_on=False)
    orders.change((INSERT, (3, "lost")))
    orders.record(is_on=True)
    orders.change((INSERT, (4, "d")))
    with pytest.raises(FeedError, match=r"version 4 to 5 were not recorded.*accept_gap"):
        archive(orders.path, tmp_path / "a")
    assert stored_rows(tmp_path / "a", *COLUMNS) == CHANGES
    archive(orders.path, tmp_path / "a", accept_gap=True)
    archive(orders.path, tmp_path / "a")
    assert stored_rows(tmp_path / "a", *COLUMNS) == CHANGES
    assert as_of(tmp_path / "a_2", 7, 6) == {(1, "c"): 1, (3, "lost"): 1, (4, "d"): 1}
    parts = parts_of(orders, tmp_path / "a")
    assert parts == [("a", 0, 3, None), ("a_2", 6, 7, (4, 5))]


@pytest.mark.clause("CF-169", "CF-194")
@pytest.mark.parametrize("is_begin_lost", [False, True])
def test_changes_whose_files_are_gone_are_a_gap_too(
    orders: FeedTable, tmp_path: Path, is_begin_lost: bool
) -> None:
    archive(orders.path, tmp_path / "a")
    orders.change((INSERT, (3, "d")))
    orders.change((UPDATE, (1, "e")))
    orders.change((INSERT, (4, "f")))
    orders.change((UPDATE, (1, "g")))
    lost = ["cdc", "add"] if is_begin_lost else ["cdc"]  # version 6 has the row of version 5, too
    for kind, file in (one for action in orders.log.actions(5) for one in action.items()):
        if kind in lost and "deletionVector" not in file:
            (orders.path / file["path"]).unlink()
    for _run in range(2):
        with pytest.raises(FeedError, match=r"for version 5 .*5 to 5 are missing.*accept_gap"):
            archive(orders.path, tmp_path / "a")
        assert stored_rows(tmp_path / "a", *COLUMNS) == sorted(
            [*CHANGES, (3, "d", "insert", 4)], key=repr
        )
    archive(orders.path, tmp_path / "a", accept_gap=True)
    assert archive(orders.path, tmp_path / "a")[-1].commits == 0
    begin = 7 if is_begin_lost else 6
    rows = {(1, "g"): 1, (3, "d"): 1, (4, "f"): 1}
    assert as_of(tmp_path / "a_2", 7, begin) == rows
    assert parts_of(orders, tmp_path / "a") == [
        ("a", 0, 4, None),
        ("a_2", begin, 7, (5, begin - 1)),
    ]


@pytest.mark.clause("CF-194")
def test_a_gap_can_be_accepted_before_there_is_anything_after_it(
    orders: FeedTable, tmp_path: Path
) -> None:
    """It goes on with the rows of the latest version, whose own changes are missing."""
    archive(orders.path, tmp_path / "a")
    orders.change((UPDATE, (1, "lost")))
    orders.change((UPDATE, (1, "lost, too")))
    for file in orders.path.glob("_change_data/*"):
        file.unlink()
    for _run in range(2):
        with pytest.raises(FeedError, match=r"for version 4.*4 to 5 are missing.*accept_gap"):
            archive(orders.path, tmp_path / "a")
    archive(orders.path, tmp_path / "a", accept_gap=True)
    assert as_of(tmp_path / "a_2", 5, 5) == {(1, "lost, too"): 1}
    assert archive(orders.path, tmp_path / "a")[-1].commits == 0
    orders.change((INSERT, (5, "e")))
    archive(orders.path, tmp_path / "a")
    assert as_of(tmp_path / "a_2", 6, 5) == {(1, "lost, too"): 1, (5, "e"): 1}
    assert parts_of(orders, tmp_path / "a") == [("a", 0, 3, None), ("a_2", 5, 6, (4, 5))]


@pytest.mark.clause("CF-194")
def test_a_gap_that_goes_on_cannot_be_accepted(orders: FeedTable, tmp_path: Path) -> None:
    archive(orders.path, tmp_path / "a")
    orders.record(is_on=False)
    orders.change((INSERT, (3, "lost")))
    with pytest.raises(FeedError, match="version 4 to 5 were not recorded"):
        archive(orders.path, tmp_path / "a", accept_gap=True)
    assert not (tmp_path / "a_2").exists()


@pytest.mark.clause("CF-194")
def test_a_gap_whose_rows_are_lost_as_well_cannot_be_accepted(
    orders: FeedTable, tmp_path: Path
) -> None:
    archive(orders.path, tmp_path / "a")
    orders.change((UPDATE, (1, "lost")))
    for file in [*orders.path.glob("_change_data/*"), *orders.path.glob("*.parquet")]:
        file.unlink()
    with pytest.raises(FeedError, match="no longer there"):
        archive(orders.path, tmp_path / "a", accept_gap=True)
    assert not (tmp_path / "a_2/_delta_log").exists()


def parts_of(source: FeedTable, target: Path) -> list[tuple[Any, ...]]:
    """As `status` lists them, for a project in which the archive is."""
    folder = target.parent / "Tables"
    folder.symlink_to(target.parent) if not folder.exists() else None
    asked = TargetSettings(TableId("", source.path.name), TableId("", "a"), ArchiveSettings())
    found = targets_of(Project("p", target.parent, targets=(asked,)))
    assert [one.behind for one in found] == [None] * (len(found) - 1) + [0]
    return [(one.target, one.first, one.covered, one.gap) for one in found]


@pytest.mark.clause("CF-195")
def test_added_columns_are_added_and_another_change_begins_another_table(tmp_path: Path) -> None:
    wide = Schema.of([*SHAPE.schema, Column("note", types.STRING)])
    table, target = FeedTable(tmp_path / "t"), tmp_path / "a"
    table.change((INSERT, (1, "a")))
    archive(table.path, target)
    table.describe(wide)
    _put(table, (2, "b", "new"))
    archive(table.path, target)
    assert stored_rows(target, "id", "note") == [(1, None), (2, "new")]
    table.describe(Schema.of([*SHAPE.schema, Column("remark", types.STRING)]))
    _put(table, (3, "c", "x"))
    reports = archive(table.path, target)
    assert [(Path(r.target).name, r.covered) for r in reports] == [("a_2", 5)]
    assert stored_rows(target, "id", "note") == [(1, None), (2, "new")]
    found = stored_rows(tmp_path / "a_2", "id", "origin", "commit_version")
    assert found == [(1, "snapshot", 4), (2, "snapshot", 4), (3, "change", 5)]
    _put(table, (4, "d", "y"))
    archive(table.path, target)
    assert parts_of(table, target) == [("a", 0, 3, None), ("a_2", 4, 6, None)]


def test_a_table_without_a_key_is_archived_too(tmp_path: Path) -> None:
    table = FeedTable(tmp_path / "t", **{"mirrorlake.keyColumns": "[]"})
    table.change((INSERT, (1, "a")), (INSERT, (1, "a")))
    archive(table.path, tmp_path / "a")
    assert as_of(tmp_path / "a", 1) == {(1, "a"): 2}


def test_another_target_of_the_same_name_is_left_alone(orders: FeedTable, tmp_path: Path) -> None:
    from mirrorlake import history

    history(orders.path, tmp_path / "h")
    orders.change((INSERT, (9, "x")))
    with pytest.raises(FeedTargetError, match="it is a history of type 2, and not an archive"):
        archive(orders.path, tmp_path / "h")


class Killed(Exception):
    """Stands for the end of a process."""


@pytest.mark.clause("CF-095", "CF-193")
def test_many_small_commits_leave_few_files_whatever_is_killed(tmp_path: Path) -> None:
    orders, target = FeedTable(tmp_path / "orders"), tmp_path / "a"
    points = [CrashPoint.FILES_COMPACTED, CrashPoint.COMPACTION_COMMITTED]
    killed_at: list[CrashPoint] = []

    def die(reached: CrashPoint) -> None:
        if reached in points:
            points.remove(reached)
            killed_at.append(reached)
            raise Killed

    for number in range(40):
        orders.change((INSERT, (number, "a")))
        with suppress(Killed):
            archive(orders.path, target, reached=die)
    assert len(killed_at) == 2
    log = HandmadeTable(target).log.snapshot()
    assert len(log.files) < 2 * SMALLEST
    assert sorted(stored_rows(target, *COLUMNS)) == [(n, "a", "insert", n + 1) for n in range(40)]
    feed = read_feed(target, from_beginning=True).to_arrow()
    assert sorted(feed["id"].to_pylist()) == list(range(40))
