"""Histories, clause by clause, on tables made by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from mirrorlake import (
    FeedError,
    FeedTargetError,
    TargetReport,
    UsageError,
    archive,
    history,
    replay,
)
from mirrorlake.delta.log.names import LAST
from mirrorlake.delta.write.rewrite import rewrite, write_data_files
from mirrorlake.feed.targets.target import TargetTable
from mirrorlake.model import types
from mirrorlake.model.arrow import arrow_schema
from mirrorlake.model.table import Column, Schema
from tests.delta.handmade import HandmadeTable
from tests.delta.readers import rows_by_delta_rs, rows_by_duckdb
from tests.feed.handmade_feed import DELETE, INSERT, SHAPE, UPDATE, FeedTable, time_of

NAMED = Schema.of([*SHAPE.schema, Column("note", types.STRING)])
WIDE = {"mirrorlake.keyColumns": '["id"]'}


@pytest.fixture
def orders(tmp_path: Path) -> FeedTable:
    return FeedTable(tmp_path / "orders")


@pytest.fixture
def filled(orders: FeedTable) -> FeedTable:
    """Versions 1 to 4: two keys, one of which is changed, deleted and inserted again."""
    orders.change((INSERT, (1, "a")), (INSERT, (2, "b")), position="0/A:1")
    orders.change((UPDATE, (1, "c")), position="0/B:1")
    orders.change((DELETE, (1, None)), position="0/C:1")
    orders.change((INSERT, (1, "d")), position="0/D:1")
    return orders


def stored_rows(target: Path) -> list[tuple[Any, ...]]:
    return sorted(HandmadeTable(target).rows(), key=repr)


def built(table: FeedTable, **asked: Any) -> list[tuple[Any, ...]]:
    """The rows of a history of its own."""
    target = table.path.parent / f"history-{len(list(table.path.parent.iterdir()))}"
    history(table.path, target, **asked)
    return stored_rows(target)


@pytest.mark.clause("CF-203", "CF-205", "CF-204", "CF-074")
def test_type_2_keeps_each_row_with_its_interval(filled: FeedTable) -> None:
    assert built(filled) == [
        (1, "a", 1, 2, False),
        (1, "c", 2, 3, False),
        (1, "d", 4, None, False),
        (2, "b", 1, None, False),
    ]


@pytest.mark.clause("CF-197", "CF-073")
def test_type_1_keeps_the_newest_row(filled: FeedTable) -> None:
    assert built(filled, type=1) == [(1, "d"), (2, "b")]
    filled.change((DELETE, (2, None)), (UPDATE, (1, "e")))
    assert built(filled, type=1) == [(1, "e")]
    flagged = [(1, "e", False), (2, "b", True)]
    assert built(filled, type=1, deletes="flag") == flagged


@pytest.mark.clause("CF-197")
def test_a_flag_stays_with_the_last_row_until_the_key_comes_back(
    filled: FeedTable, tmp_path: Path
) -> None:
    target = tmp_path / "flagged"
    for last, expected in ((3, (1, "c", True)), (4, (1, "d", False))):
        history(filled.path, target, type=1, deletes="flag", to_version=last)
        assert stored_rows(target) == [expected, (2, "b", False)]


@pytest.mark.clause("CF-198")
def test_a_delete_and_an_insert_in_one_version_are_an_update(orders: FeedTable) -> None:
    orders.change((INSERT, (1, "a")))
    told_apart = arrow_schema(SHAPE.schema)
    # As apply mode `replace` leaves it: the file goes, another comes, and no change file tells it.
    (old,) = orders.files
    row = told_apart.empty_table().from_pylist([{"id": 1, "name": "b"}], told_apart)
    new = write_data_files(orders.path, orders.schema, row, ["id"])
    gone = {"path": old["path"], "dataChange": True, "deletionTimestamp": 1}
    orders.commit([{"remove": gone}, *new])
    assert built(orders) == [(1, "a", 1, 2, False), (1, "b", 2, None, False)]
    assert built(orders, type=1) == [(1, "b")]


@pytest.mark.clause("CF-199")
def test_a_changed_key_ends_one_row_and_opens_another(orders: FeedTable) -> None:
    orders.change((INSERT, (1, "a")))
    images = _change_file(orders, [(1, "a", "update_preimage"), (2, "a", "update_postimage")])
    orders.commit(images)
    assert built(orders) == [(1, "a", 1, 2, False), (2, "a", 2, None, False)]
    assert built(orders, type=1) == [(2, "a")]


def _change_file(table: FeedTable, rows: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """The actions of a commit that tells these changes; its data files are not looked at."""
    import pyarrow as pa

    from mirrorlake.delta.write.rewrite import write_changes as changed

    schema = arrow_schema(SHAPE.schema)
    images = pa.Table.from_pylist([{"id": r[0], "name": r[1]} for r in rows], schema)
    return changed(table.path, images, pa.array([r[2] for r in rows]), table.schema)


@pytest.mark.clause("CF-199")
def test_a_null_is_a_key_like_others(orders: FeedTable) -> None:
    orders.change((INSERT, (None, "a")))
    orders.change((UPDATE, (None, "b")))
    assert built(orders) == [(None, "a", 1, 2, False), (None, "b", 2, None, False)]
    assert built(orders, type=1) == [(None, "b")]


@pytest.mark.clause("CF-199", "CF-200")
def test_a_table_without_a_key_is_refused_until_one_is_given(tmp_path: Path) -> None:
    table = FeedTable(tmp_path / "t", **{"mirrorlake.keyColumns": "[]"})
    table.change((INSERT, (1, "a")))
    for kind in (1, 2):
        with pytest.raises(UsageError, match="no key"):
            history(table.path, tmp_path / "h", type=kind)
    with pytest.raises(UsageError, match="nothing, which is no column"):
        history(table.path, tmp_path / "h", key=["nothing"])
    assert not (tmp_path / "h").exists()
    assert built(table, key=["id"]) == [(1, "a", 1, None, False)]


@pytest.mark.clause("CF-200")
@pytest.mark.parametrize("type_", [1, 2])
@pytest.mark.parametrize("apart", ["one commit", "two commits", "two runs", "snapshot", "after it"])
def test_a_key_that_is_there_twice_is_named(tmp_path: Path, type_: Any, apart: str) -> None:
    table = FeedTable(tmp_path / "t")
    first, second = (INSERT, (7, "a")), (INSERT, (7, "b"))
    target = tmp_path / "h"
    start = None
    if apart in {"one commit", "snapshot"}:
        table.change(first, second)
        start = 1 if apart == "snapshot" else None
    else:
        table.change(first)
        if apart != "two commits":
            history(table.path, target, type=type_, from_latest=apart == "after it")
        table.change(second)
    with pytest.raises(FeedTargetError, match=r"key id = 7 occurs twice in version \d"):
        history(table.path, target, type=type_, from_version=start)


@pytest.mark.clause("CF-201")
@pytest.mark.parametrize("type_", [1, 2])
def test_a_range_that_is_applied_is_not_applied_again(
    filled: FeedTable, tmp_path: Path, type_: Any
) -> None:
    target = tmp_path / "h"
    history(filled.path, target, type=type_, to_version=2)
    rows, version = stored_rows(target), HandmadeTable(target).log.snapshot().version
    again = history(filled.path, target, type=type_, from_version=0, to_version=2)
    assert (again.commits, again.version, stored_rows(target)) == (0, version, rows)
    with pytest.raises(FeedTargetError, match="up to version 2, so that version 4"):
        history(filled.path, target, type=type_, from_version=4)
    partly = history(filled.path, target, type=type_, from_version=1)
    assert (partly.commits, partly.covered) == (1, 4)
    assert stored_rows(target) == built(filled, type=type_)


@pytest.mark.clause("CF-201")
def test_one_of_two_builders_is_faster_and_nothing_is_doubled(
    filled: FeedTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "h"
    history(filled.path, target, to_version=1)
    commit, others = TargetTable.commit, [True]

    def slower(self: TargetTable, *given: Any) -> bool:
        if others:
            others.clear()
            history(filled.path, target)  # the other one, whole, just before
        return commit(self, *given)

    monkeypatch.setattr(TargetTable, "commit", slower)
    report = history(filled.path, target)
    assert (report.commits, report.covered) == (0, 4)
    assert stored_rows(target) == built(filled)


@pytest.mark.clause("CF-206")
def test_a_column_marks_the_current_row(filled: FeedTable) -> None:
    rows = built(filled, current=True)
    assert {(row[1], row[4]) for row in rows} == {
        ("a", False),
        ("c", False),
        ("d", True),
        ("b", True),
    }
    assert all(row[4] == (row[3] is None) for row in rows)


@pytest.mark.clause("CF-207")
@pytest.mark.parametrize("in_runs", [False, True])
def test_other_columns_than_tracked_ones_are_written_over(tmp_path: Path, in_runs: bool) -> None:
    table = FeedTable(tmp_path / "t", NAMED)

    def put(*rows: tuple[Any, ...]) -> None:
        _put(table, *rows)
        if in_runs:
            history(table.path, tmp_path / "h", track=["name"])

    put((1, "a", "x"), (2, "b", "x"))
    put((1, "a", "y"), (2, "b", "x"))  # of 1 an untracked column, of 2 nothing
    put((1, "c", "y"), (2, "b", "z"))
    history(table.path, tmp_path / "h", track=["name"])
    assert stored_rows(tmp_path / "h") == [
        (1, "a", "y", 1, 3, False),
        (1, "c", "y", 3, None, False),
        (2, "b", "z", 1, None, False),
    ]
    assert len(built(table)) == 5
    with pytest.raises(UsageError, match=r"where is no column.*Name one of id, "):
        history(table.path, tmp_path / "other", track=["where"])


def _put(table: FeedTable, *rows: tuple[Any, ...]) -> None:
    from tests.delta.write.test_rewrite import net_of
    from tests.histories import Landing, Shape
    from tests.reference import Change

    changes = tuple(Change(4, row) for row in rows)  # type: ignore[arg-type]
    shape = Shape(table.schema.schema, ("id",))
    net = net_of(shape, Landing((changes,)))
    table.commit(rewrite(table.path, table.files, table.schema, net, 1).actions)


@pytest.mark.clause("CF-208")
def test_rows_of_a_first_snapshot_are_marked(filled: FeedTable) -> None:
    assert built(filled, from_version=1) == [
        (1, "a", 1, 2, True),
        (1, "c", 2, 3, False),
        (1, "d", 4, None, False),
        (2, "b", 1, None, True),
    ]
    latest = [(1, "d", 4, None, True), (2, "b", 4, None, True)]
    assert built(filled, from_latest=True) == latest
    assert built(filled, type=1, from_version=2) == [(1, "d"), (2, "b")]


@pytest.mark.clause("CF-208", "CF-075")
def test_a_table_whose_first_changes_are_gone_begins_with_a_snapshot(tmp_path: Path) -> None:
    table = FeedTable(tmp_path / "t", **{"delta.enableChangeDataFeed": "false"})
    table.change((INSERT, (1, "a")))
    table.record(is_on=True)
    table.change((INSERT, (2, "b")))
    assert built(table) == [(1, "a", 2, None, True), (2, "b", 3, None, False)]
    never = FeedTable(tmp_path / "n", **{"delta.enableChangeDataFeed": "false"})
    with pytest.raises(FeedError, match="not recorded"):
        history(never.path, tmp_path / "h")


@pytest.mark.clause("CF-204")
def test_intervals_have_the_chosen_unit(tmp_path: Path) -> None:
    table = FeedTable(tmp_path / "t")
    noon = datetime(2026, 11, 23, 12, tzinfo=UTC)
    table.change((INSERT, (1, "a")), position="0/A:1", source_time=noon)
    table.change((UPDATE, (1, "b")), position="0/B:1", source_time=noon + timedelta(seconds=5))
    for bounds, first, second in (
        ("version", 1, 2),
        ("commit_time", time_of(1), time_of(2)),
        ("source_time", noon, noon + timedelta(seconds=5)),
        ("source_position", "0/A:1", "0/B:1"),
    ):
        expected = [(1, "a", first, second, False), (1, "b", second, None, False)]
        assert built(table, bounds=bounds) == expected
    table.change((UPDATE, (1, "c")))
    for bounds in ("source_time", "source_position"):
        with pytest.raises(FeedTargetError, match="version 3 of its source does not name a source"):
            built(table, bounds=bounds)


@pytest.mark.clause("CF-204")
def test_a_snapshot_has_the_position_of_the_batch_before(tmp_path: Path) -> None:
    table = FeedTable(tmp_path / "t")
    table.change((INSERT, (1, "a")), position="0/A:1")
    table.record(is_on=True)  # as a vacuum or another property, a commit that names no source
    table.record(is_on=True)
    assert built(table, bounds="source_position", from_latest=True) == [
        (1, "a", "0/A:1", None, True)
    ]
    with pytest.raises(FeedTargetError, match="version 0 of its source does not name"):
        built(table, bounds="source_position", from_version=0, to_version=0)


@pytest.mark.clause("CF-204", "CF-205", "CF-211")
@pytest.mark.parametrize("runs", [(), (1, 2, 3)])
def test_versions_of_one_time_stay_in_their_order(tmp_path: Path, runs: tuple[int, ...]) -> None:
    table = FeedTable(tmp_path / "t")
    noon = datetime(2026, 11, 23, 12, tzinfo=UTC)
    for name, time in (("a", noon), ("b", noon), ("c", noon - timedelta(hours=1))):
        table.change((UPDATE, (1, name)), source_time=time)
    target = tmp_path / "h"
    for last in (*runs, None):
        history(table.path, target, bounds="source_time", to_version=last)
    # The time of version 3 is before that of version 2, and counts as the same.
    assert stored_rows(target) == [
        (1, "a", noon, noon, False),
        (1, "b", noon, noon, False),
        (1, "c", noon, None, False),
    ]


@pytest.mark.clause("CF-210")
@pytest.mark.parametrize("type_", [1, 2])
def test_an_added_column_is_added_and_another_change_stops(tmp_path: Path, type_: Any) -> None:
    table, target = FeedTable(tmp_path / "t"), tmp_path / "h"
    table.change((INSERT, (1, "a")))
    history(table.path, target, type=type_)
    table.describe(NAMED)
    _put(table, (2, "b", "new"))
    history(table.path, target, type=type_)
    names = HandmadeTable(target).schema.schema.names
    at = names.index("note")
    assert sorted((row[0], row[at]) for row in stored_rows(target)) == [(1, None), (2, "new")]
    renamed = Schema.of([*SHAPE.schema, Column("remark", types.STRING)])
    table.describe(renamed)
    _put(table, (3, "c", "x"))
    with pytest.raises(FeedTargetError, match="version 4 of its source changed column note"):
        history(table.path, target, type=type_)


@pytest.mark.clause("CF-210")
def test_changes_before_another_schema_are_applied_and_then_it_stops(tmp_path: Path) -> None:
    table, target = FeedTable(tmp_path / "t", NAMED), tmp_path / "h"
    _put(table, (1, "a", "x"))
    table.describe(SHAPE.schema)
    with pytest.raises(FeedTargetError, match="version 2 of its source changed column note"):
        history(table.path, target)
    assert stored_rows(target) == [(1, "a", "x", 1, None, False)]


@pytest.mark.clause("CF-210")
def test_a_column_of_the_name_of_an_own_one_is_refused(tmp_path: Path) -> None:
    for name in ("__START_AT", "__end_at"):
        table = FeedTable(tmp_path / name, Schema.of([*SHAPE.schema, Column(name, types.LONG)]))
        with pytest.raises(FeedTargetError, match=f"has a column {name}"):
            history(table.path, tmp_path / "h")
    assert not (tmp_path / "h").exists()


def test_a_source_that_was_made_anew_is_recognised(filled: FeedTable, tmp_path: Path) -> None:
    history(filled.path, tmp_path / "h")
    filled.path.rename(tmp_path / "old")
    anew = FeedTable(filled.path)
    for n in range(5):
        anew.change((INSERT, (n, "x")))
    with pytest.raises(FeedTargetError, match="made anew"):
        history(filled.path, tmp_path / "h")


def test_a_gap_stops_it(orders: FeedTable, tmp_path: Path) -> None:
    orders.change((INSERT, (1, "a")))
    history(orders.path, tmp_path / "h")
    orders.record(is_on=False)
    orders.change((INSERT, (2, "b")))
    orders.record(is_on=True)
    with pytest.raises(FeedError, match="were not recorded") as refused:
        history(orders.path, tmp_path / "h")
    assert refused.value.reason == "not_recorded"


@pytest.mark.clause("CF-208", "CF-170")
@pytest.mark.parametrize("asked", [{}, {"from_latest": True}, {"from_version": 2}], ids=str)
def test_a_table_without_changes_for_long_begins_with_its_rows(
    tmp_path: Path, asked: dict[str, Any]
) -> None:
    kept = "delta.deletedFileRetentionDuration"
    table = FeedTable(tmp_path / "t", **{kept: "interval 1 minutes"})
    table.change((INSERT, (1, "a")))
    table.change((UPDATE, (1, "b")))
    with pytest.raises(FeedError, match="no longer kept"):
        history(table.path, tmp_path / "h", from_version=1)
    builds: list[tuple[Callable[..., Any], Path]] = [
        (history, tmp_path / "h"),
        (archive, tmp_path / "a"),
        (replay, tmp_path / "r"),
    ]
    for build, target in builds:
        build(table.path, target, **asked)
    assert stored_rows(tmp_path / "h") == [(1, "b", 2, None, True)]
    known = table.log.snapshot().metadata
    longer = known["configuration"] | {kept: "interval 7 days"}
    table.commit([{"metaData": known | {"configuration": longer}}])
    table.change((INSERT, (2, "c")))
    for build, target in builds:
        build(table.path, target)
    assert stored_rows(tmp_path / "h")[1] == (2, "c", 4, None, False)
    assert stored_rows(tmp_path / "r") == [(1, "b"), (2, "c")]
    assert len(stored_rows(tmp_path / "a")) == 2
    off = FeedTable(tmp_path / "off", **{"delta.enableChangeDataFeed": "false"})
    with pytest.raises(FeedError, match="not recorded"):
        history(off.path, tmp_path / "o")


@pytest.mark.clause("CF-169")
def test_commits_before_one_whose_files_are_gone_are_applied(
    orders: FeedTable, tmp_path: Path
) -> None:
    history(orders.path, tmp_path / "h")
    covered = orders.change((INSERT, (11, "a")), (INSERT, (12, "b")))
    orders.change((UPDATE, (11, "c")))
    for action in orders.log.actions(covered + 1):
        if "cdc" in action:
            (orders.path / action["cdc"]["path"]).unlink()
    with pytest.raises(FeedError, match=f"Begin after version {covered + 1}"):
        history(orders.path, tmp_path / "h")
    assert history(orders.path, tmp_path / "h", to_version=covered).covered == covered


@pytest.mark.parametrize(
    ("asked", "what"),
    [
        ({"type": 3}, "type is 3"),
        ({"type": True}, "type is True"),
        ({"deletes": "flag"}, "deletes has no meaning for a history of type 2"),
        ({"type": 1, "track": ["name"]}, "track has no meaning"),
        ({"type": 1, "current": True}, "current has no meaning"),
        ({"bounds": "when"}, "bounds is 'when'"),
        ({"current": "no"}, "current is 'no'"),
        ({"key": "id"}, "key must be a list"),
        ({"track": []}, "track must be a list"),
        ({"colour": 1}, "colour is no argument"),
    ],
)
def test_wrong_arguments_are_named(tmp_path: Path, asked: Any, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        history(tmp_path / "none", tmp_path / "h", **asked)


def test_other_settings_than_those_it_was_built_with_are_named(
    filled: FeedTable, tmp_path: Path
) -> None:
    target = tmp_path / "h"
    history(filled.path, target, to_version=2)
    for asked, what in (
        ({"bounds": "commit_time"}, "with bounds 'version', and not 'commit_time'"),
        ({"track": ["name"]}, "track None"),
        ({"type": 1}, "it is a history of type 2"),
        ({"key": ["name"]}, r"key \['id'\]"),
    ):
        with pytest.raises(FeedTargetError, match=what):
            history(filled.path, target, **asked)


@pytest.mark.parametrize(
    ("asked", "what"),
    [
        ({"from_version": "1"}, "from_version"),
        ({"from_version": -1}, "from_version"),
        ({"to_version": -1}, "to_version"),
        ({"from_version": 3, "to_version": 2}, "before the start"),
        ({"from_version": 1, "from_latest": True}, "both are given"),
        ({"from_version": 99}, "after the latest.*Begin with a version"),
    ],
)
def test_wrong_versions_are_refused_and_nothing_is_made(
    filled: FeedTable, tmp_path: Path, asked: Any, what: str
) -> None:
    with pytest.raises((FeedError, UsageError), match=what):
        history(filled.path, tmp_path / "h", **asked)
    assert not (tmp_path / "h").exists()


def test_a_target_is_what_it_was_though_there_is_nothing_to_do(
    filled: FeedTable, tmp_path: Path
) -> None:
    history(filled.path, tmp_path / "h")
    with pytest.raises(FeedTargetError, match="and not a copy"):
        replay(filled.path, tmp_path / "h")
    with pytest.raises(FeedTargetError, match="with current False"):
        history(filled.path, tmp_path / "h", current=True)
    (tmp_path / "file").touch()
    with pytest.raises(FeedTargetError, match="there is a file"):
        history(filled.path, tmp_path / "file")


@pytest.mark.parametrize("inside", ["orders/history", "."])
def test_a_target_inside_its_source_or_around_it_is_refused(
    filled: FeedTable, tmp_path: Path, inside: str
) -> None:
    with pytest.raises(UsageError, match="cannot lie inside it"):
        history(filled.path, tmp_path / inside)


def test_a_table_that_is_something_else_is_left_alone(filled: FeedTable, tmp_path: Path) -> None:
    other = FeedTable(tmp_path / "other")
    other.change((INSERT, (1, "mine")))
    with pytest.raises(FeedTargetError, match="not built from a change feed"):
        history(filled.path, other.path)
    assert stored_rows(other.path) == [(1, "mine")]


def _undo(target: Path) -> None:
    """Somebody removes a row of the history."""
    table = HandmadeTable(target)
    table.commit([{"remove": {**add, "deletionTimestamp": 1}} for add in table.files])


def _damage(target: Path) -> None:
    table = HandmadeTable(target)
    known = table.log.snapshot().metadata
    said = {**known["configuration"], "mirrorlake.builtFrom": "{}"}
    table.commit([{"metaData": {**known, "configuration": said}}])


def _check(target: Path) -> None:
    table = HandmadeTable(target)
    known = table.log.snapshot().metadata
    said = {**known["configuration"], "delta.constraints.c": "id > 0"}
    table.commit([{"metaData": {**known, "configuration": said}}])


@pytest.mark.parametrize(
    ("harm", "what"),
    [
        (_undo, "0 rows of key id = 1"),
        (_damage, "cannot be read"),
        (_check, "has the constraint c"),
    ],
)
@pytest.mark.parametrize("type_", [1, 2])
def test_what_others_did_to_it_stops_it(
    filled: FeedTable, tmp_path: Path, harm: Callable[[Path], None], what: str, type_: Any
) -> None:
    target = tmp_path / "h"
    history(filled.path, target, type=type_)
    filled.change((UPDATE, (1, "e")))
    harm(target)
    with pytest.raises(FeedTargetError, match=what):
        history(filled.path, target, type=type_)


def test_columns_of_any_name_and_readers_of_others(tmp_path: Path) -> None:
    schema = Schema.of([Column("id", types.LONG), Column("a b;c", types.STRING)])
    table = FeedTable(tmp_path / "t", schema)
    table.change((INSERT, (1, "x")))
    table.change((UPDATE, (1, "y")))
    expected = [(1, "x", 1, 2, False), (1, "y", 2, None, False)]
    assert built(table) == expected
    table.describe(Schema.of([*schema, Column("d e", types.LONG)]))
    target = tmp_path / "h"
    history(table.path, target)
    plain = FeedTable(tmp_path / "p")
    plain.change((INSERT, (1, "x")))
    history(plain.path, tmp_path / "q", to_version=1)
    plain.change((UPDATE, (1, "y")))
    history(plain.path, tmp_path / "q")
    for rows in (rows_by_delta_rs(tmp_path / "q"), rows_by_duckdb(tmp_path / "q")):
        assert sorted(rows, key=repr) == expected


@pytest.mark.full
def test_many_small_commits_leave_few_files_and_checkpoints(tmp_path: Path) -> None:
    table, target = FeedTable(tmp_path / "t"), tmp_path / "h"
    reports: list[TargetReport] = []
    for n in range(55):
        table.change((UPDATE, (n % 7, str(n))))
        reports.append(history(table.path, target))
    assert len(stored_rows(target)) == 55
    log = HandmadeTable(target).log
    assert len(log.snapshot().files) <= 32
    assert (target / "_delta_log" / LAST).exists()
    assert [r.commits for r in reports] == [1] * 55
    assert stored_rows(target) == built(table)


def test_the_commit_says_which_versions_it_covers(filled: FeedTable, tmp_path: Path) -> None:
    history(filled.path, tmp_path / "h")
    (info,) = [
        a["commitInfo"] for a in HandmadeTable(tmp_path / "h").log.actions(0) if "commitInfo" in a
    ]
    assert json.loads(info["userMetadata"])["versions"] == [0, 4]
