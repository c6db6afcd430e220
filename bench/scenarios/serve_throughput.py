"""Throughput of a mirror in `mirrorlake serve`, whose page and metrics are read all the time,
against the same mirror in `mirrorlake run`.

Both stand beside each other, each on a table of its own of one database. In turn each gets the same
rows, in a series of transactions, and the time counts until all of them are in its Delta table.
Equal: the rows of both tables against PostgreSQL.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import duckdb
import psycopg

from bench import equality
from bench import server as servers
from bench.result import Result
from bench.rounds import Plan, medians, say, timed
from mirrorlake.delta.log.table_log import TableLog

ROWS, TRANSACTIONS = 400_000, 40
TARGET = 0.95
LOOK_SECONDS, READ_SECONDS, PATIENCE_SECONDS = 0.05, 1.0, 300.0
READ = ("/", "/streams/local/local/served", "/metrics")
RUN, SERVE = "alone", "served"


def run(plan: Plan) -> list[Result]:
    rows = plan.sized(ROWS, TRANSACTIONS)
    with servers.started() as (server, sql):
        for name in (RUN, SERVE):
            sql.execute(f"create schema {name}")
            sql.execute(f"create table {name}.t (id bigint primary key, note text, at timestamptz)")
            sql.execute(f"insert into {name}.t values (0, 'first', now())")
            _project(plan.folder / name, server.url, name)
        with _run(plan.folder / RUN), _served(plan.folder / SERVE):
            say("  waiting for both")
            for name in (RUN, SERVE):
                _wait(plan.folder / name, 1)
            sides = {
                name: partial(_burst, sql, plan.folder / name, name, rows) for name in (RUN, SERVE)
            }
            found = medians(plan, sides)
        counted = 1 + rows * len(plan.all_rounds)
        equal = all(_is_equal(sql, plan.folder / name, name, counted) for name in (RUN, SERVE))
    more = {"rows": rows, "rows_per_second": round(rows / found[SERVE])}
    return [
        Result(
            "serve-throughput",
            found[SERVE],
            "run",
            found[RUN],
            target=TARGET,
            equal=equal,
            more=more,
        )
    ]


def _burst(sql: psycopg.Connection, folder: Path, name: str, rows: int, number: int) -> float:
    """Insert rows, and wait until they are in the table. Returns the seconds."""
    first, size = 1 + number * rows, rows // TRANSACTIONS
    with timed() as watch:
        for begun in range(first, first + rows, size):
            last = min(begun + size, first + rows) - 1
            drawn = f"select g, md5(g::text), now() from generate_series({begun}, {last}) g"
            sql.execute(f"insert into {name}.t {drawn}")
        _wait(folder, first + rows)
    return watch.seconds


def _wait(folder: Path, rows: int) -> None:
    log = TableLog(_table(folder))
    until = time.monotonic() + PATIENCE_SECONDS
    while _rows(log) < rows:
        assert time.monotonic() < until, f"{folder.name} has {_rows(log)} of {rows} rows"
        time.sleep(LOOK_SECONDS)


def _rows(log: TableLog) -> int:
    with suppress(FileNotFoundError):
        files = log.snapshot().files.values()
        return sum(json.loads(one.get("stats") or "{}").get("numRecords", 0) for one in files)
    return 0


def _table(folder: Path) -> Path:
    return folder / "lake/Tables" / folder.name / "t"


def _is_equal(sql: psycopg.Connection, folder: Path, name: str, rows: int) -> bool:
    told = "select count(*)::text, md5(string_agg(note, ',' order by id)) from "
    theirs = sql.execute(f"{told} {name}.t").fetchone()
    with duckdb.connect() as connection:
        connection.register("mirror", equality.delta(_table(folder)))
        (ours,) = connection.execute(f"{told} mirror").fetchall()
    return bool(ours == theirs and ours[0] == str(rows))


def _project(folder: Path, url: str, name: str) -> None:
    folder.mkdir()
    source = {"type": "postgresql", "url": url, "tables": [f"{name}.*"]}
    told = {"name": name, "root": "lake", "source": source}
    (folder / "mirrorlake.yaml").write_text(json.dumps(told))


@contextmanager
def _run(folder: Path, *words: str) -> Iterator[None]:
    """A command of ours, until the end."""
    command = [str(Path(sys.executable).with_name("mirrorlake")), *(words or ("run",))]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


@contextmanager
def _served(folder: Path) -> Iterator[None]:
    """The same mirror in a service, of which somebody reads page and metrics."""
    words = ("serve", "--config", "mirrorlake.yaml", "--no-token", "--port", "0")
    done = threading.Event()
    with _run(folder, *words):
        reading = threading.Thread(target=_read, args=[folder / "mirrorlake-streams", done])
        reading.start()
        try:
            yield
        finally:
            done.set()
            reading.join()


def _read(service: Path, done: threading.Event) -> None:
    while not done.wait(READ_SECONDS):
        with suppress(OSError, ValueError):  # it has not begun to listen
            url = json.loads((service / "serve.json").read_text())["url"]
            for path in READ:
                with urllib.request.urlopen(url + path, timeout=30) as answer:
                    answer.read()
