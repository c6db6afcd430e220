"""Switching the change feed of a table on, by a command or by the project file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from mirrorlake import FeedError, Project, read_feed
from mirrorlake.app.loop.apply_loop import ApplyLoop
from mirrorlake.app.loop.table_builder import FEED_SET
from mirrorlake.app.maintenance.feed_switch import enable_feed
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.delta.schema import FeedMode
from mirrorlake.errors import LeaseHeld, UsageError
from mirrorlake.feed.commits.position_map import PositionMap
from mirrorlake.mirror.settings import MirrorSettings, TableOptions
from mirrorlake.model.clock import WallClock
from mirrorlake.storage.lease import Lease
from tests.app.zones import MARKER, Zone
from tests.cli.conftest import Run, run
from tests.doubles.handmade_engine import HandmadeReader, in_process_engine

__all__ = ["run"]

OFF = TableOptions(FeedMode.OFF)
PATH = "Tables/s/t"


class Silent:
    """A table of two files that is mirrored without a change feed."""

    def __init__(self, root: Path) -> None:
        self.root, self.zone = root, Zone(root)
        self.zone.table("t", "id")
        self.engine = in_process_engine(self.zone.store)
        self.apply(1, OFF)
        self.apply(2, OFF)

    def apply(self, number: int, options: TableOptions) -> None:
        if number:
            rows = {"id": [1, number + 10], "v": ["x", str(number)], MARKER: [4, 4]}
            self.zone.land("t", number, rows)
        settings = MirrorSettings(options=options)
        loop = ApplyLoop(self.zone.store, self.engine, settings, WallClock())
        loop.open()
        loop.once()
        loop.close()

    def project(self, options: TableOptions) -> Project:
        found = Project.of_root(self.root)
        return replace(found, mirror=replace(found.mirror, options=options))

    def enable(self, options: TableOptions | None = None) -> tuple[int, bool]:
        project = self.project(options or TableOptions())
        found = enable_feed(project, self.engine, WallClock(), "s.t")
        return found.since, found.was_on

    def recorded(self, first: int) -> list[int]:
        return read_feed(self.root / PATH, from_version=first).to_arrow()["id"].to_pylist()


@pytest.fixture
def silent(tmp_path: Path) -> Silent:
    return Silent(tmp_path / "root")


@pytest.mark.clause("CF-016", "CF-009", "CF-005")
def test_a_command_tells_the_first_version_and_loses_nothing(silent: Silent) -> None:
    with pytest.raises(FeedError) as refused:
        silent.recorded(0)
    assert refused.value.reason == "not_recorded"
    assert silent.enable() == (2, False)
    silent.apply(3, TableOptions())
    assert sorted(set(silent.recorded(2))) == [1, 13]
    rows = HandmadeReader(silent.zone.store).rows(PATH)
    assert sorted(row[0] for row in rows) == [1, 11, 12, 13]
    assert silent.enable() == (2, True)


@pytest.mark.clause("CF-015")
def test_the_project_switches_tables_that_are_idle_too(silent: Silent) -> None:
    with capture_logs() as logs:
        silent.apply(0, TableOptions())
    assert [one["feed"] for one in logs if one["event"] == FEED_SET] == ["images"]
    assert silent.enable() == (2, True)
    silent.apply(0, OFF)
    assert FeedMode.of(silent.engine.progress(PATH).properties) is FeedMode.OFF
    silent.apply(3, TableOptions(FeedMode.REPLACE))
    assert silent.enable() == (4, True)
    assert sorted(silent.recorded(4)) == [1, 1, 13]


@pytest.mark.clause("CF-017", "CF-171")
def test_status_tells_since_when_and_what_is_missing(silent: Silent, run: Run) -> None:
    def told() -> list[Any]:
        done = run("status", "--root", str(silent.root), "--json")
        (table,) = json.loads(done.out)["tables"]
        return list(table["feed"].values())

    assert told() == ["off", None, None, [[0, 1]]]
    silent.enable()
    assert told() == ["images", 2, 2, [[0, 1]]]
    silent.apply(3, TableOptions(FeedMode.REPLACE))
    assert told() == ["replace", 2, 2, [[0, 1]]]
    silent.apply(0, OFF)
    silent.apply(4, TableOptions())
    assert told() == ["images", 6, 6, [[0, 1], [5, 5]]]
    assert PositionMap(silent.zone.store, PATH).keep(TableLog(silent.root / PATH)) == 8
    assert told() == ["images", 6, 6, [[0, 1], [5, 5]]]
    said = "s.t: the change feed does not cover versions 0 to 1, 5 to 5"
    assert said in run("status", "--root", str(silent.root)).out


def test_what_cannot_last_is_refused(silent: Silent) -> None:
    with pytest.raises(UsageError) as refused:
        silent.enable(OFF)
    assert "mirror.tables: {s.t: {change_feed: true}}" in refused.value.hint
    with pytest.raises(UsageError, match=r"there is no table s\.x"):
        enable_feed(silent.project(TableOptions()), silent.engine, WallClock(), "s.x")
    lease = Lease(silent.zone.store, "mirror", WallClock())
    lease.take()
    with pytest.raises(LeaseHeld):
        silent.enable()
    lease.release()
    assert FeedMode.of(silent.engine.progress(PATH).properties) is FeedMode.OFF
