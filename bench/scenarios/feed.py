"""The change feed of a table: read as Arrow, followed, and read from a table with a long log.

`feed`: all versions of a small table as one Arrow table, opened anew each time, by us, by delta-rs
and by Spark; our process still has the rows of the round before in its row cache. `feed-first`: the
same with an empty row cache. `feed-log`: the last ten versions of a table with 100,000 versions,
which is ours, and of one with 100, which is the peer; its older commits change no rows.
`feed-tail`: from the file of a commit to the rows in the hand of a consumer, by a subscription and
by Structured Streaming with the shortest trigger, one after the other on one table; the 99th
percentile.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from tests.feed.handmade_feed import INSERT, UPDATE, FeedTable
from tests.histories import Shape

from bench import equality
from bench.result import Result
from bench.rounds import Plan, cached, medians, say, timed
from bench.spark import session
from mirrorlake import read_feed, subscribe
from mirrorlake.delta.log import checkpoint, listed
from mirrorlake.delta.log.files import FOLDER
from mirrorlake.delta.lookup import row_cache
from mirrorlake.feed.follow import POLL
from mirrorlake.model import types

VERSIONS, CHANGES = 500, 1_000
KEYS = 5
"""Times the changes of a version: how many rows the table has."""
LONG, SHORT, LAST = 100_000, 100, 10
COMMITS, APART = 200, 0.1
"""What is followed: so many commits, with these seconds between two of them."""
WARMING, STARTING = 20, 10.0
"""Commits that do not count, and the seconds that a stream has to start."""

FIRST = "ours, nothing cached"
OURS, DELTA_RS, SPARK, STREAM = "ours", "delta-rs load_cdf", "Spark readChangeFeed", "Spark stream"
SHORT_LOG = "100 versions"
SHAPE = Shape.of(["id"], id=types.LONG, name=types.STRING, amount=types.DOUBLE, note=types.STRING)
COLUMNS = [*SHAPE.schema.names, "_change_type"]


def run(plan: Plan) -> list[Result]:
    with session() as spark:
        return [*_read(plan, spark), _long(plan), _tail(plan, spark)]


# -- all versions ---------------------------------------------------------------------------------


def _read(plan: Plan, spark: SparkSession) -> list[Result]:
    say("  preparing the table")
    versions, changes = plan.sized(VERSIONS, 10), plan.sized(CHANGES, 10)
    table = _filled(plan.folder / "read", versions, changes)
    readers: dict[str, Callable[[], pa.Table]] = {
        OURS: lambda: read_feed(table.path, from_version=1).to_arrow(),
        FIRST: lambda: read_feed(table.path, from_version=1).to_arrow(),
        DELTA_RS: lambda: pa.table(DeltaTable(table.path).load_cdf(starting_version=1).read_all()),
        SPARK: lambda: _frame(spark, table.path).toArrow(),
    }
    found: dict[str, equality.Fingerprint] = {}

    def side(name: str) -> Callable[[int], float]:
        def read(number: int) -> float:
            if name == FIRST:
                row_cache.forget()
            for file in Path(table.path).rglob("*.*"):
                cached(file)
            with timed() as watch:
                rows = readers[name]()
            if number == plan.rounds:
                found[name] = equality.of_rows(rows, [*COLUMNS, "_commit_version"])
            return watch.seconds

        return read

    seconds = medians(plan, {name: side(name) for name in readers})
    more = {"versions": versions, "changes": changes}
    return [
        Result(
            what,
            seconds[ours],
            peer,
            seconds[peer],
            target=target,
            equal=found[ours] == found[peer],
            more=more,
        )
        for what, ours, peer, target in (
            ("feed", OURS, DELTA_RS, 2.0),
            ("feed", OURS, SPARK, 5.0),
            ("feed-first", FIRST, DELTA_RS, 2.0),
        )
    ]


def _filled(path: Path, versions: int, changes: int) -> FeedTable:
    """A table whose first version inserts all rows, and whose others update some each."""
    table = FeedTable(path, SHAPE.schema)
    rows = KEYS * changes
    table.change(*((INSERT, _row(key, 0)) for key in range(rows)))
    for version in range(2, versions + 1):
        keys = ((version * changes + number) % rows for number in range(changes))
        table.change(*((UPDATE, _row(key, version)) for key in keys))
        if version % 50 == 0:
            checkpoint.write(path)
    return table


def _row(key: int, version: int) -> tuple[int, str, float, str]:
    return key, f"customer {key * 7919 % 1_000_003}", key / 64 + version, f"version {version}"


def _frame(spark: SparkSession, path: Path) -> DataFrame:
    reader = spark.read.format("delta").option("readChangeFeed", "true")
    return reader.option("startingVersion", 1).load(str(path))


# -- a long log -----------------------------------------------------------------------------------


def _long(plan: Plan) -> Result:
    say("  preparing the logs")
    long = plan.sized(LONG, SHORT)
    paths = {OURS: plan.folder / "long", SHORT_LOG: plan.folder / "short"}
    for name, versions in ((OURS, long), (SHORT_LOG, SHORT)):
        _aged(paths[name], versions)
    time.sleep(listed.SETTLED / 1e9)  # as most logs are: not changed while they are opened
    found: dict[str, equality.Fingerprint] = {}

    def side(name: str, newest: int) -> Callable[[int], float]:
        def read(number: int) -> float:
            with timed() as watch:
                rows = read_feed(paths[name], from_version=newest - LAST + 1).to_arrow()
            if number == plan.rounds:
                found[name] = equality.of_rows(rows, COLUMNS)
            return watch.seconds

        return read

    seconds = medians(plan, {OURS: side(OURS, long), SHORT_LOG: side(SHORT_LOG, SHORT)})
    return Result(
        "feed-log",
        seconds[OURS],
        SHORT_LOG,
        seconds[SHORT_LOG],
        target=0.5,
        equal=found[OURS] == found[SHORT_LOG],
        more={"versions": long},
    )


def _aged(path: Path, versions: int) -> None:
    """A table with so many versions, of which only the first and the last ten change rows."""
    table = FeedTable(path, SHAPE.schema)
    table.change(*((INSERT, _row(key, 0)) for key in range(100)))
    now = int(time.time() * 1000)
    for version in range(2, versions - LAST + 1):
        said = {"commitInfo": {"timestamp": now, "operation": "WRITE"}}
        recorded = {"txn": {"appId": "bench", "version": version}}
        lines = f"{json.dumps(said)}\n{json.dumps(recorded)}\n"
        (path / FOLDER / f"{version:020d}.json").write_text(lines)
    checkpoint.write(path)
    for number in range(LAST):
        table.change(*((UPDATE, _row(key, number)) for key in range(10)))


# -- followed -------------------------------------------------------------------------------------


def _tail(plan: Plan, spark: SparkSession) -> Result:
    table = FeedTable(plan.folder / "Tables/tail", SHAPE.schema)
    count, state = plan.sized(COMMITS, 20), plan.folder / "checkpoint"
    sides: dict[str, Callable[[Seen], AbstractContextManager[None]]] = {
        OURS: lambda seen: _subscribed(table.path, seen),
        STREAM: lambda seen: _streamed(spark, table.path, state, seen),
    }
    p99, complete = dict[str, float](), list[bool]()
    for name, consumer in sides.items():
        seen = Seen()
        with consumer(seen):
            versions = _commit(table, WARMING + count)[WARMING:]
            complete.append(seen.wait_for(versions))
        ages = [seen.at[v] - _written(table.path, v) for v in versions if v in seen.at]
        p99[name] = float(np.percentile(ages, 99))
        say(f"  {name}: p50 {np.percentile(ages, 50):.3f} s, p99 {p99[name]:.3f} s")
    return Result(
        "feed-tail",
        p99[OURS],
        STREAM,
        p99[STREAM],
        target=3.0,
        equal=all(complete),
        more={"commits": count},
    )


class Seen:
    """When a consumer had the rows of each version."""

    def __init__(self) -> None:
        self.at: dict[int, float] = {}

    def rows(self, versions: Iterable[int]) -> None:
        now = time.time()
        for version in versions:
            self.at.setdefault(version, now)

    def wait_for(self, versions: Sequence[int]) -> bool:
        """Whether all of them are seen within a minute."""
        until = time.monotonic() + 60
        while not self.at.keys() >= set(versions):
            if time.monotonic() > until:
                return False
            time.sleep(APART)
        return True


@contextmanager
def _subscribed(table: Path, seen: Seen) -> Iterator[None]:
    ended = threading.Event()

    def work() -> None:
        with subscribe("bench", table, start="latest") as subscription:
            for delivery in subscription.follow(ended.wait, POLL):
                seen.rows(set(delivery.rows["_commit_version"].to_pylist()))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def _streamed(spark: SparkSession, table: Path, state: Path, seen: Seen) -> Iterator[None]:
    def take(frame: DataFrame, _number: int) -> None:
        seen.rows({row["_commit_version"] for row in frame.collect()})

    reader = spark.readStream.format("delta").option("readChangeFeed", "true")
    writer = reader.option("startingVersion", "latest").load(str(table)).writeStream
    writer = writer.foreachBatch(take).option("checkpointLocation", str(state))
    query = writer.trigger(processingTime="0 seconds").start()
    try:
        time.sleep(STARTING)
        yield
    finally:
        query.stop()


def _commit(table: FeedTable, count: int) -> list[int]:
    """Commit rows, one version after another. Returns the versions."""
    versions = []
    for _number in range(count):
        key = table.log.snapshot().version
        versions.append(table.change((INSERT, _row(key, 0))))
        time.sleep(APART)
    return versions


def _written(table: Path, version: int) -> float:
    return (table / FOLDER / f"{version:020d}.json").stat().st_mtime
