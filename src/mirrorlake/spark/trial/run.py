"""The self-test of the direct strategy: `python -m mirrorlake.spark.trial.run [JARS]`, or in an
existing session. JARS: the comma-separated `spark.jars` of that session; if empty, Delta's are
downloaded.

Inserts ten rows and changes some, and checks every Delta internal that the direct strategy uses:
rows and change feed read through Spark, deletion through a deletion vector, and that a recorded
number is not applied again. Then it tests optional features (`features`).
"""

from __future__ import annotations

import sys
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from mirrorlake import root
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.errors import MirrorlakeError
from mirrorlake.mirror.engine import AlreadyApplied, Applied
from mirrorlake.mirror.steps import CreateTable
from mirrorlake.mirror.strategy import StrategySetting
from mirrorlake.model import types
from mirrorlake.model.change import Marker
from mirrorlake.model.table import Column, Schema, TableId
from mirrorlake.spark.engine import spark_engine
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.spark.settings import SparkSettings
from mirrorlake.spark.trial import features
from mirrorlake.spark.trial.batches import KEY, LANDED, Change, batch
from mirrorlake.storage.local import LocalStore
from mirrorlake.storage.store import Store
from mirrorlake.storage.urls import StorageLocation, open_store

PATH = "Tables/trial"
SCHEMA = Schema.of([Column("id", types.LONG), Column("name", types.STRING)])
ROWS = 10

FIRST: Sequence[Change] = [(Marker.INSERT, n, "old") for n in range(ROWS)]
SECOND: Sequence[Change] = [
    (Marker.UPDATE, 0, "new"),
    (Marker.DELETE, 1, ""),
    (Marker.UPSERT, ROWS, "new"),
]
EXPECTED = Counter({(n, "old"): 1 for n in range(2, ROWS)} | {(0, "new"): 1, (ROWS, "new"): 1})
GONE = 2
"""Rows of the first file that the second batch deletes from it: the updated and the deleted one."""
FEED = Counter(
    {
        ("update_preimage", 0, "old"): 1,
        ("update_postimage", 0, "new"): 1,
        ("delete", 1, "old"): 1,
        ("insert", ROWS, "new"): 1,
    }
)


def fails(spark: Spark, tables: StorageLocation | None = None) -> str:
    """The failure with ten rows, in words; empty on success. tables: a location on an object store,
    below which the rows are written instead of in a local folder."""
    with _room(tables) as store:
        try:
            return _run(spark, store)
        except MirrorlakeError as error:
            return f"the self-test of direct failed: {error.what}"
        except Exception as error:  # noqa: BLE001  (any error: internals not as expected)
            return f"the self-test of direct failed: {type(error).__name__}"


@contextmanager
def _room(tables: StorageLocation | None) -> Iterator[Store]:
    """A store for the self-test, which is deleted afterwards."""
    if tables is None:
        with tempfile.TemporaryDirectory(prefix="mirrorlake-trial-") as folder:
            yield LocalStore(Path(folder))
        return
    url = f"{tables.url.rstrip('/')}/{root.STATE}/trial-{uuid.uuid4().hex}"
    store = open_store(url, tables.options)
    try:
        yield store
    finally:
        for folder in (LANDED, root.TABLES):
            with suppress(OSError):  # leftovers do no harm
                store.delete_folder(folder)


def _run(spark: Spark, store: Store) -> str:
    engine = spark_engine(spark, store, strategy=StrategySetting.DIRECT)
    new = CreateTable(TableId("", "trial"), PATH, "trial", SCHEMA, KEY, "trial")
    version = 0
    for number, changes in ((1, FIRST), (2, SECOND)):
        step = replace(batch(store, "trial", SCHEMA, number, changes), creates=new)
        (outcome,) = engine.apply([step], lambda: None)
        if not isinstance(outcome, Applied):
            return f"the self-test of direct ended as {type(outcome).__name__}"
        version = outcome.version
    (again,) = spark_engine(spark, store).apply(
        [batch(store, "trial", SCHEMA, 2, SECOND)], lambda: None
    )
    if not isinstance(again, AlreadyApplied):
        return "the self-test of direct applied a batch twice"
    return _differs(spark, store, version) or features.fails(spark, store)


def _differs(spark: Spark, store: Store, version: int) -> str:
    location = store.location(PATH)
    reader = spark.session.newSession().read.format("delta")
    rows = reader.load(location).select("id", "name").collect()
    if Counter(tuple(row) for row in rows) != EXPECTED:
        return "the self-test of direct read other rows than it wrote"
    if _taken_out(store) != [GONE]:
        # Spark has just read the table without these rows, so it knows the vector, if there is one.
        return "the self-test of direct wrote no deletion vector"
    feed = reader.option("readChangeFeed", "true").option("startingVersion", version).load(location)
    changes = feed.select("_change_type", "id", "name").collect()
    if Counter(tuple(row) for row in changes) != FEED:
        return "the self-test of direct read another change feed than it wrote"
    return ""


def _taken_out(store: Store) -> list[int]:
    """The number of rows that each deletion vector of the table deletes from its file."""
    adds = TableLog.below(store, PATH).snapshot().files.values()
    return [int(add["deletionVector"]["cardinality"]) for add in adds if add.get("deletionVector")]


def main(found: str = "") -> int:
    # A session whose jars were downloaded also lists them, with their local paths.
    conf = {"spark.jars": found, "spark.jars.packages": ""} if found else {}
    settings = SparkSettings(master="local[1]", driver_memory="512m", conf=conf)
    try:
        with Spark.start(settings) as spark:
            reason = fails(spark)
    except MirrorlakeError as error:
        reason = str(error)
    if reason:
        print(reason)  # noqa: T201
    return int(bool(reason))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
