"""A batch of 1,000 keys on a table of 100,000 files: how long it takes, and how much memory.

The table has one data file, which has all keys of the batches, and 99,999 entries of its log for
files whose bounds exclude them, so nobody looks whether they are there. The mirror goes on running,
as `mirrorlake run` does: what is timed is a cycle with one new landed file, from the look at the
landing zone to the end of its cleanup. The first round reads the log of the table, and does not
count. Nothing is compared; peak and current memory are those of the driver's Python, of the JVM's
heap after a collection, and of the Python workers together, in MiB.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import time
from pathlib import Path

import duckdb

from bench import usage
from bench.result import Result
from bench.rounds import WARM, Plan, say, timed
from bench.spark import session
from mirrorlake.app.mirror import Mirror
from mirrorlake.config import Project
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.delta.write.commit import write_commit
from mirrorlake.landing.metadata import Metadata, encode
from mirrorlake.model.change import MARKER_COLUMN, Marker
from mirrorlake.model.landed import FileName

FILES = 100_000
ROWS = 1_000_000
KEYS = 1_000
BEYOND = 1_000_000_000
"""Keys from which on the other files have theirs."""

_ROW = "g::bigint as id, md5((g + {salt})::varchar) as reference, (g % 97)::integer as status"


def run(plan: Plan) -> list[Result]:
    files, rows = plan.sized(FILES), plan.sized(ROWS, KEYS)
    root = plan.folder / "root"
    table = root / "Tables/ledger"
    project = Project.of_root(root)
    mirror = dataclasses.replace(project.mirror, compaction=False)
    seconds = []
    with session() as spark:
        _land(root, 1, rows, 0)
        with Mirror(dataclasses.replace(project, mirror=mirror), spark=spark) as running:
            _apply(running)
            _add(table, files - len(TableLog(table).snapshot().files))
            for number in plan.all_rounds:
                _land(root, number + 2, KEYS, number + 1)
                with timed() as watch:
                    _apply(running)
                said = "warming" if number == WARM else f"round {number} of {plan.rounds}"
                say(f"  {said}: {watch.seconds:.2f} s")
                if number != WARM:
                    seconds.append(watch.seconds)
            used = usage.usage()
    more = {"files": files, "driver": used.driver, "heap": used.heap, "workers": used.workers}
    return [Result("files", statistics.median(seconds), more=more)]


def _apply(mirror: Mirror) -> None:
    report = mirror.apply_once()
    if report.errors:
        raise report.errors[0]


def _land(root: Path, number: int, rows: int, salt: int) -> None:
    folder = root / "Files/LandingZone/ledger"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "_metadata.json").write_bytes(encode(Metadata(key_columns=("id",))))
    marker = int(Marker.UPSERT if salt else Marker.INSERT)
    duckdb.sql(
        f"copy (select {_ROW.format(salt=salt)}, {marker}::tinyint as {MARKER_COLUMN} "
        f"from range({rows}) r(g)) to '{folder / str(FileName(number))}' (format parquet)"
    )


def _add(table: Path, count: int) -> None:
    """Commit entries for files that nobody will read."""
    actions = []
    for number in range(count):
        low = BEYOND + number * 1_000
        stats = {
            "numRecords": 1_000,
            "minValues": {"id": low, "reference": "0" * 32, "status": 0},
            "maxValues": {"id": low + 999, "reference": "f" * 32, "status": 96},
            "nullCount": {"id": 0, "reference": 0, "status": 0},
        }
        add = {"path": f"part-{number:08d}.parquet", "size": 64 << 20, "modificationTime": number}
        add |= {"partitionValues": {}, "dataChange": False, "stats": json.dumps(stats)}
        actions.append({"add": add})
    version, now = TableLog(table).snapshot().version + 1, int(time.time() * 1000)
    write_commit(str(table), version, actions, inCommitTimestamp=now)
