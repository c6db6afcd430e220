"""Start and end of commands that are run now and then, as by cron.

`start-idle` and `start-run`: `apply --once` and `run --once` where nothing is new, which start no
JVM. `start-cold`: `apply --once` of one small file into a root without tables, which starts one,
makes the table and writes the first rows. Each is a process, from its start to its end. Nothing is
compared; the limits are for a machine with two cores on which nothing else runs. Equal: the rows.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench import server as servers
from bench.equality import delta, rows
from bench.result import Result
from bench.rounds import WARM, Plan, say, timed

ROWS = 1_000
LIMITS = {"start-idle": 2.0, "start-run": 2.0, "start-cold": 8.0}
"""Seconds."""


def run(plan: Plan) -> list[Result]:
    return [_idle(plan), _run(plan), _cold(plan)]


def _idle(plan: Plan) -> Result:
    root = _landed(plan.folder / "idle")
    _command("apply", "--once", "--root", str(root))
    seconds = [
        _command("apply", "--once", "--root", str(root), number=number)
        for number in plan.all_rounds
    ]
    return _result("start-idle", seconds, equal=rows(delta(root / "Tables/t")) == ROWS)


def _run(plan: Plan) -> Result:
    folder = plan.folder / "run"
    folder.mkdir()
    project = folder / "mirrorlake.yaml"
    with servers.started() as (server, sql):
        sql.execute("create table public.t (id bigint primary key)")
        sql.execute(f"insert into public.t select generate_series(1, {ROWS})")
        source = {"type": "postgresql", "url": server.url, "tables": ["public.t"]}
        settings = {"name": "start", "root": "lake", "source": source}
        project.write_text(json.dumps(settings))
        command = ("run", "--once", "--config", str(project))
        _command(*command)
        seconds = [_command(*command, number=number) for number in plan.all_rounds]
    equal = rows(delta(folder / "lake/Tables/public/t")) == ROWS
    return _result("start-run", seconds, equal=equal)


def _cold(plan: Plan) -> Result:
    seconds, equal = [], True
    for number in plan.all_rounds:
        root = _landed(plan.folder / f"cold-{number}")
        seconds.append(_command("apply", "--once", "--root", str(root), number=number))
        equal &= rows(delta(root / "Tables/t")) == ROWS
    return _result("start-cold", seconds, equal=equal)


def _result(name: str, seconds: list[float], *, equal: bool) -> Result:
    """seconds: of each round, the first of which does not count."""
    median, limit = statistics.median(seconds[WARM + 1 :]), LIMITS[name]
    over = f"{median:.2f} s, the limit is {limit:g} s" if median > limit else ""
    return Result(name, median, over=over, equal=equal, more={"limit": limit})


def _landed(root: Path) -> Path:
    folder = root / "Files/LandingZone/t"
    folder.mkdir(parents=True)
    (folder / "_metadata.json").write_text('{"keyColumns": ["id"]}')
    numbers = pa.table({"id": range(1, ROWS + 1)})
    pq.write_table(numbers, folder / "00000000000000000001.parquet")
    return root


def _command(*words: str, number: int | None = None) -> float:
    """Run it to its end. number: of the round, to be told. Returns the seconds."""
    program = str(Path(sys.executable).with_name("mirrorlake"))
    with timed() as watch:
        subprocess.run([program, *words], check=True, capture_output=True)
    if number is not None:
        say(f"  {' '.join(words[:2])}: round {number}: {watch.seconds:.2f} s")
    return watch.seconds
