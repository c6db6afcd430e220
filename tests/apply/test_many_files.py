"""Batches of tables with many files: tasks get their lists as columns, and do the same."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.app.loop.apply_loop import ApplyLoop
from mirrorlake.apply.engine import Engine
from mirrorlake.apply.in_process.runner import InProcessRunner
from mirrorlake.apply.task.batch import BatchTask
from mirrorlake.delta import file_list
from mirrorlake.delta.file_list import MANY, FileList
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.delta.write.commit import write_commit
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.model.clock import WallClock
from tests.app.zones import MARKER, Zone
from tests.doubles.handmade_engine import in_process_engine

FILES = 2 * MANY


class Recording(InProcessRunner):
    """Keeps what it is given."""

    def __init__(self, slots: int = 1) -> None:
        super().__init__(slots)
        self.tasks: list[Any] = []

    def run(self, work: Any, items: Any, packing: Any = None) -> list[Any]:
        self.tasks += items
        return super().run(work, items, packing)


def apply(zone: Zone, engine: Engine) -> None:
    loop = ApplyLoop(zone.store, engine, zone.settings, WallClock())
    loop.open()
    try:
        assert not loop.once().errors
    finally:
        loop.close()


def filled(zone: Zone) -> None:
    zone.table("t", "id")
    zone.land("t", 1, {"id": range(20), "v": ["old"] * 20, MARKER: [0] * 20})
    assert not zone.apply().errors


def add_many(zone: Zone) -> None:
    """Entries of the log for files that are not there, and whose keys nobody asks for."""
    table = zone.root / "Tables/s/t"
    add = {"partitionValues": {}, "size": 1 << 30, "modificationTime": 1, "dataChange": False}
    stats = {"numRecords": 1, "nullCount": {"id": 0, "v": 0}}
    adds = [
        add | {"path": f"absent-{n}.parquet", "stats": json.dumps(stats | both({"id": n, "v": ""}))}
        for n in range(1_000, 1_000 + FILES)
    ]
    version = TableLog(table).snapshot().version + 1
    assert write_commit(str(table), version, [{"add": one} for one in adds])


def both(values: dict[str, Any]) -> dict[str, Any]:
    return {"minValues": values, "maxValues": values}


@pytest.mark.parametrize("spread", [0, 2])
def test_a_batch_opens_only_the_files_of_its_keys(tmp_path: Path, spread: int) -> None:
    zone = Zone(tmp_path, settings=MirrorSettings(compaction=False))
    filled(zone)
    add_many(zone)
    zone.land("t", 2, {"id": [3, 4, 99], "v": ["new", None, "x"], MARKER: [4, 2, 4]})
    runner = Recording(spread or 1)
    engine = in_process_engine(zone.store, spread=spread, runner=runner, compaction=False)
    apply(zone, engine)
    table = TableLog(zone.root / "Tables/s/t")
    live = [path for path, _vector in table.snapshot().files]
    assert sum(path.startswith("absent-") for path in live) == FILES
    last = [one for one in table.actions(table.snapshot().version) if "add" in one]
    assert len(last) == 2  # the new rows, and the file that some rows have left
    if not spread:
        (task,) = [task for task in runner.tasks if isinstance(task, BatchTask)]
        assert isinstance(task.files, FileList)
        assert len(pickle.dumps(task)) < len(pickle.dumps(list(task.files))) / 3


@pytest.mark.full
@pytest.mark.parametrize("spread", [False, True])
def test_tables_are_equal_with_file_lists_and_dictionaries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spread: bool
) -> None:
    found = []
    for many in (1, 10**9):
        monkeypatch.setattr(file_list, "MANY", many)
        zone = Zone(tmp_path / str(many))
        zone.table("t", "id")
        zone.land("t", 1, {"id": range(50), "v": ["old"] * 50, MARKER: [0] * 50})
        for number in range(2, 8):
            keys = [(number * 7 + n * 5) % 60 for n in range(6)]
            zone.land("t", number, {"id": keys, "v": [f"{number}"] * 6, MARKER: [4, 2, 4, 4, 2, 4]})
            apply(zone, in_process_engine(zone.store, spread=2 if spread else 0))
        found.append(zone.rows("t"))
    assert found[0] == found[1]
