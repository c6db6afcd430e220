"""`maintain`: all that tables need at once, and what is shown of it before."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from mirrorlake import Mirror, Project, history, read_feed, subscribe
from mirrorlake.app.loop.apply_loop import ApplyLoop
from mirrorlake.app.maintenance.maintain import TableMaintenance, maintained, tables_of
from mirrorlake.app.maintenance.vacuum import Vacuums
from mirrorlake.app.targets.target_status import readers_of
from mirrorlake.apply.in_process.tables import LogTables
from mirrorlake.apply.logs.table_reader import LogReader
from mirrorlake.config import load
from mirrorlake.delta.log.retention import RetentionTimes
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.delta.schema import parse
from mirrorlake.delta.statistics import candidates
from mirrorlake.errors import LeaseHeld, UsageError
from mirrorlake.feed.commits.position_map import PositionMap
from mirrorlake.mirror.compaction import clustering, small_files
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.model.clock import WallClock
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.storage.lease import Lease
from tests.app.zones import MARKER, Zone
from tests.cli.conftest import Run, run
from tests.delta.handmade import HandmadeTable
from tests.doubles.clock import SteppedClock
from tests.doubles.handmade_engine import HandmadeReader, in_process_engine
from tests.histories import counted

__all__ = ["run"]

PATH = "Tables/s/t"
DAY = timedelta(days=1)


class Kept:
    """A table of many small files, made by a mirror that compacts nothing."""

    def __init__(self, root: Path) -> None:
        self.root, self.project = root, Project.of_root(root)
        self.zone = Zone(root)
        self.zone.table("t", "id")
        store = self.zone.store
        engine = in_process_engine(store, compaction=False)
        settings = MirrorSettings(compaction=False)
        loop = ApplyLoop(store, engine, settings, WallClock())
        loop.open()
        for number in range(1, 20):
            rows = {"id": [number, 1], "v": ["x", str(number)], MARKER: [4, 4]}
            self.zone.land("t", number, rows)
            loop.once()
        loop.close()
        self.engine = in_process_engine(store, tables=LogTables(store))

    def maintenance(self, days: float = 0, hold: float = 14) -> TableMaintenance:
        store, clock = self.zone.store, SteppedClock(datetime.now(UTC) + timedelta(days=days))
        readers = partial(readers_of, self.project)
        vacuums = Vacuums(store, self.engine, clock, 7 * DAY, hold * DAY, readers)
        return TableMaintenance(self.engine, vacuums, lambda: None)

    def files(self) -> int:
        return len(self.engine._logs.log(PATH).snapshot().files)

    def content(self) -> tuple[Counter[tuple[Any, ...]], list[Any]]:
        rows = Counter(map(tuple, HandmadeReader(self.zone.store).rows(PATH)))
        return rows, read_feed(self.root / PATH, from_beginning=True).to_arrow().to_pylist()


@pytest.fixture
def table(tmp_path: Path) -> Kept:
    return Kept(tmp_path / "root")


@pytest.mark.clause("CF-156")
def test_a_table_is_compacted_with_a_checkpoint_and_says_the_same(table: Kept) -> None:
    before, files = table.content(), table.files()
    planned = [step.act for step in table.maintenance().plan(PATH)]
    assert (planned, table.files()) == (["compact", "vacuum", "checkpoint"], files)
    done = list(table.maintenance().run(PATH))
    assert table.files() < files
    assert table.content() == before
    assert [step.act for step in done if step.act != "compact"] == planned[1:]
    assert done[0].act == "compact"
    assert not any(step.error or step.held_by for step in done)
    assert list((table.root / PATH / "_delta_log").glob("*.checkpoint.parquet"))
    assert any(PositionMap(table.zone.store, PATH).newest_first(table.engine._logs.log(PATH)))
    again = [step.act for step in table.maintenance().plan(PATH)]
    assert again == planned[1:], "nothing is left to join"


@pytest.mark.clause("CF-095", "CF-156")
def test_files_with_overlapping_keys_are_clustered(
    table: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_files, "SMALLEST", 1_000)
    monkeypatch.setattr(clustering, "CLASSES", (1, 1, 1))
    monkeypatch.setattr(clustering, "FILE_ROWS", 5)
    keys = pa.table({"id": [1]})

    def opened() -> int:
        snapshot = table.engine._logs.log(PATH).snapshot()
        return len(candidates(list(snapshot.files.values()), parse(snapshot.metadata), keys))

    before, version = table.content(), table.engine.progress(PATH).version
    (shown,) = (step for step in table.maintenance().plan(PATH) if step.act == "cluster")
    assert LogReader(table.zone.store).clustering(PATH) == table.engine.clustering(PATH)
    assert "a key is in the bounds of" in shown.detail
    assert (opened() > 10, table.engine.progress(PATH).version) == (True, version)
    done = [step for step in table.maintenance().run(PATH) if step.act == "cluster"]
    assert done[0].detail == shown.detail
    assert done[0].version == version + 1
    assert opened() <= 2
    assert table.files() > 1
    assert table.content() == before
    assert not read_feed(table.root / PATH, from_version=version + 1).to_arrow().num_rows
    assert "cluster" not in [step.act for step in table.maintenance().plan(PATH)]


@pytest.mark.clause("CF-187")
def test_what_readers_need_is_left_and_they_are_named(table: Kept) -> None:
    location = table.root / PATH
    with subscribe("audit", location, start=2):
        pass
    history(location, table.root / "Tables/s/t_history", to_version=3)
    config = table.root / "mirrorlake.yaml"
    config.write_text("name: shop\nroot: .\nhistories: [{table: s.t}]\n")
    table.project = load(config, {})
    before = sorted(path for path in location.rglob("*.parquet") if "_delta_log" not in path.parts)
    planned = next(s for s in table.maintenance(days=8).plan(PATH) if s.act == "vacuum")
    assert planned.held_by == ("audit", "table s.t_history")
    done = next(s for s in table.maintenance(days=8).run(PATH) if s.act == "vacuum")
    assert (done.held_by, done.detail) == (planned.held_by, planned.detail)
    assert all(path.exists() for path in before)
    (table.root / "Files/Mirrorlake/subscriptions/audit.json").write_text("{")
    vacuum, checkpoint = table.maintenance(days=8).run(PATH)
    assert "readers of the table are unknown" in vacuum.detail
    assert checkpoint.detail.startswith("left")
    assert all(path.exists() for path in before)


@pytest.mark.clause("CF-187")
def test_the_log_is_cleaned_when_the_table_says_how_long_readers_need_it(
    table: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    with subscribe("audit", table.root / PATH, start=2):
        pass
    seen: list[timedelta] = []
    checkpoint_of = table.engine.checkpoint

    def clean(path: str) -> None:
        log = TableLog(table.root / path)
        seen.append(RetentionTimes.of(log.snapshot().properties).log)
        checkpoint_of(path)

    monkeypatch.setattr(table.engine, "checkpoint", clean)
    done = list(table.maintenance(days=35, hold=60).run(PATH))
    assert seen == [60 * DAY]
    assert done[-1].detail == "written"


def test_the_command_shows_what_it_would_do(table: Kept, run: Run) -> None:
    files = table.files()
    told = run("maintain", "--root", str(table.root), "--dry-run", "--json").facts()
    assert [step["act"] for step in told["steps"]] == ["compact", "vacuum", "checkpoint"]
    assert "s.t" in run("maintain", "s.t", "--root", str(table.root), "--dry-run").out
    assert table.files() == files
    assert run("maintain", "s.other", "--root", str(table.root), "--dry-run").code == 2
    json.dumps(told)


def test_a_table_of_somebody_else_is_none_of_ours(table: Kept) -> None:
    with pytest.raises(UsageError, match=r"s\.x"):
        tables_of(table.engine, ["s.x"])
    history(table.root / PATH, table.root / "Tables/s/t_history")
    assert tables_of(table.engine) == [PATH]


def with_history(table: Kept) -> Path:
    """The history of the table, which the project builds."""
    config = table.root / "mirrorlake.yaml"
    config.write_text("name: shop\nroot: .\nhistories: [{table: s.t}]\n")
    table.project = load(config, {})
    history(table.root / PATH, built := table.root / "Tables/s/t_history")
    return built


def test_tables_that_are_built_from_the_feed_are_vacuumed_after_a_day_or_later(
    table: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_history(table)
    asked = list[tuple[str, timedelta]]()
    monkeypatch.setattr(
        table.engine, "vacuum", lambda path, retention, _check: asked.append((path, retention))
    )
    clock = SteppedClock(datetime.now(UTC))
    for days in (0, 7):
        project = replace(table.project, mirror=MirrorSettings(vacuum=days * DAY))
        told = maintained(project, table.engine, clock, ["s.t_history"], dry_run=True)
        assert [(one.table, one.act) for one in told] == [
            ("s.t_history", "vacuum"),
            ("s.t_history", "checkpoint"),
        ]
        done = maintained(project, table.engine, clock, ["s.t_history"], dry_run=False)
        assert [one.act for one in done] == [one.act for one in told]
        assert not any(one.error for one in done)
    built = "Tables/s/t_history"
    assert asked == [(built, DAY), (built, 7 * DAY)]
    everything = maintained(table.project, table.engine, clock, [], dry_run=True)
    assert {one.table for one in everything} == {"s.t", "s.t_history"}


def test_it_does_not_work_beside_a_mirror(table: Kept) -> None:
    lease = Lease(table.zone.store, "mirror", SteppedClock(datetime.now(UTC)))
    lease.take()
    with pytest.raises(LeaseHeld):
        Mirror(table.project).maintain()
    lease.release()


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.clause("CF-156")
def test_on_spark_it_does_the_same(table: Kept, spark: Spark) -> None:
    built = with_history(table)
    before, files = table.content(), table.files()
    rows = counted(HandmadeTable(built).rows())
    with Mirror(table.project, spark=spark.session) as mirror:
        done = mirror.maintain()
    acts = ["vacuum", "checkpoint"]
    assert [step.act for step in done if step.act != "compact"] == acts + acts
    assert not any(step.error for step in done)
    assert table.files() < files
    assert table.content() == before
    history(table.root / PATH, built)
    assert counted(HandmadeTable(built).rows()) == rows
