"""Change logs: each row of each landed file, once and in order, whatever is folded or killed."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirrorlake import Project
from mirrorlake.app.targets.keeper import TargetKeeper
from mirrorlake.app.targets.target_status import targets_of
from mirrorlake.config import load
from mirrorlake.errors import ConfigError, FeedTargetError
from mirrorlake.feed.targets.settings import ChangeLogSettings, TargetSettings
from mirrorlake.landing.parquet.unchanged import packed
from mirrorlake.model.change import UNCHANGED_COLUMN
from mirrorlake.model.clock import WallClock
from mirrorlake.model.crash_points import CrashHook, CrashPoint, no_crash
from mirrorlake.model.landed import FileKind, Footer
from mirrorlake.model.table import TableId
from tests.app.zones import MARKER, Zone
from tests.delta.handmade import HandmadeTable

TABLE, TARGET = TableId("s", "t"), TableId("s", "t_change_log")


class Killed(BaseException):
    pass


class Logged:
    """A mirrored table with a change log."""

    def __init__(self, root: Path) -> None:
        self.zone = Zone(root)
        self.zone.table("t", "id")
        targets = (TargetSettings(TABLE, TARGET, ChangeLogSettings()),)
        self.project = replace(Project.of_root(root), targets=targets)

    def land(self, number: int, *changes: tuple[int, int, str | None], **more: Any) -> None:
        marker, key, value = zip(*changes, strict=True) if changes else ((), (), ())
        columns = {
            "id": pa.array(key, pa.int64()),
            "v": pa.array(value, pa.string()),
            **more,
            MARKER: pa.array(marker, pa.int32()),
        }
        self.zone.land("t", number, columns)

    def apply(self) -> None:
        assert not self.zone.apply().errors

    def keep(self, reached: CrashHook = no_crash) -> dict[TableId, Any]:
        return TargetKeeper(self.project, WallClock(), reached).once()

    def rows(self) -> list[tuple[Any, ...]]:
        """File, row, change, and the columns of the table."""
        table = HandmadeTable(self.zone.root / "Tables/s/t_change_log")
        names = table.schema.schema.names
        data = [name for name in names if not name.startswith("_mirrorlake_")]
        order = ["_mirrorlake_file", "_mirrorlake_row", "_mirrorlake_change", *data]
        places = [names.index(name) for name in order]
        return sorted((tuple(row[i] for i in places) for row in table.rows()), key=str)


@pytest.fixture
def logged(tmp_path: Path) -> Logged:
    return Logged(tmp_path / "root")


FIRST = [(0, 1, "a"), (1, 1, "b"), (1, 1, "c"), (0, 2, "x"), (2, 2, None)]
LOGGED = [
    (1, 1, "insert", 1, "a"),
    (1, 2, "update", 1, "b"),
    (1, 3, "update", 1, "c"),
    (1, 4, "insert", 2, "x"),
    (1, 5, "delete", 2, None),
]


@pytest.mark.clause("CF-148")
def test_it_has_every_state_in_the_order_of_the_files(logged: Logged) -> None:
    logged.land(1, *FIRST)
    logged.land(2, (4, 1, "d"))
    logged.apply()
    logged.land(3, (1, 1, "e"), (1, 1, "f"))
    logged.apply()
    assert logged.zone.rows("t") == [(1, "f")]
    assert logged.keep() == {}
    expected = [
        *LOGGED,
        (2, 1, "upsert", 1, "d"),
        (3, 1, "update", 1, "e"),
        (3, 2, "update", 1, "f"),
    ]
    assert logged.rows() == expected
    # Again there is nothing to do, and what comes is added.
    assert logged.keep() == {}
    logged.land(4, (2, 1, None))
    logged.apply()
    logged.keep()
    assert logged.rows() == [*expected, (4, 1, "delete", 1, None)]
    (status,) = targets_of(logged.project)
    assert (status.kind, status.behind) == ("a change log", 0)


@pytest.mark.clause("CF-148")
@pytest.mark.parametrize("point", [CrashPoint.TARGET_WRITTEN, CrashPoint.TARGET_COMMITTED])
def test_each_row_is_there_once_whatever_dies(logged: Logged, point: CrashPoint) -> None:
    logged.land(1, *FIRST)
    logged.apply()

    def die(reached: CrashPoint) -> None:
        if reached is point:
            raise Killed

    with pytest.raises(Killed):
        logged.keep(die)
    logged.keep()
    assert logged.rows() == LOGGED


def test_columns_are_added_and_unsent_values_are_listed(logged: Logged) -> None:
    logged.land(1, (0, 1, "a"))
    logged.apply()
    logged.keep()
    mask = packed(np.array([[False, True, False]]))
    logged.land(2, (1, 1, None), more=pa.array([5], pa.int64()), **{UNCHANGED_COLUMN: mask})
    logged.apply()
    logged.keep()
    assert logged.zone.rows("t") == [(1, "a", 5)]
    assert logged.rows() == [(1, 1, "insert", 1, "a", None), (2, 1, "update", 1, None, 5)]
    table = HandmadeTable(logged.zone.root / "Tables/s/t_change_log")
    place = table.schema.schema.names.index("_mirrorlake_unchanged")
    assert sorted(str(row[place]) for row in table.rows()) == ["None", '["v"]']


def test_a_truncation_is_a_row_and_positions_are_those_of_files(logged: Logged) -> None:
    logged.land(1, (0, 1, "a"))
    path = logged.zone.folder("t") / f"{2:020d}.parquet"
    said = Footer("one", FileKind.TRUNCATE, "0/5:1", "0/5:1", complete=True).encode()
    empty = pa.schema([("id", pa.int64()), ("v", pa.string())], metadata=said).empty_table()
    pq.write_table(empty, path)
    logged.land(3, (0, 7, "z"))
    logged.apply()
    logged.keep()
    assert logged.rows() == [
        (1, 1, "insert", 1, "a"),
        (2, 1, "truncate", None, None),
        (3, 1, "insert", 7, "z"),
    ]


def test_of_a_table_whose_first_files_are_gone_it_begins_with_the_next_ones(logged: Logged) -> None:
    logged.land(1, *FIRST)
    logged.apply()
    logged.land(2, (1, 1, "z"))
    logged.apply()
    shutil.rmtree(logged.zone.folder("t") / "_FilesReadyToDelete")
    assert logged.keep() == {}
    assert logged.rows() == []
    logged.land(3, (1, 1, "y"))
    logged.apply()
    logged.keep()
    assert logged.rows() == [(3, 1, "update", 1, "y")]
    # A file that it has not read yet must not be lost.
    logged.land(4, (1, 1, "x"))
    logged.apply()
    logged.land(5, (1, 1, "w"))
    logged.apply()
    shutil.rmtree(logged.zone.folder("t") / "_FilesReadyToDelete")
    (error,) = logged.keep().values()
    assert isinstance(error, FeedTargetError)
    assert "landed file 4 is no longer there" in error.what
    assert logged.rows() == [(3, 1, "update", 1, "y")]


def test_the_option_of_a_table_makes_it_a_target(tmp_path: Path) -> None:
    path = tmp_path / "mirrorlake.yaml"

    def targets(said: str) -> dict[str, str]:
        path.write_text(f"name: a\nroot: b\nmirror: {{{said}}}\n")
        return {str(one.table): str(one.target) for one in load(path, {}).targets}

    assert targets("tables: {s.t: {change_log: true}}") == {"s.t": "s.t_change_log"}
    assert targets("tables: {s.t: {change_log: s.every}}") == {"s.t": "s.every"}
    assert targets("tables: {s.t: {change_log: false}}") == {}
    for refused, what in (
        ("change_feed: false, tables: {s.t: {change_log: true}}", "the table has none"),
        ("tables: {s.t: {change_log: s.t}}", "the name of another table"),
    ):
        with pytest.raises(ConfigError, match=what):
            targets(refused)
