"""The Spark session: our own is started and stopped, one that is given is left as it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mirrorlake.delta.lookup import page_checksums
from mirrorlake.delta.lookup.page_checksums import DamagedPage
from mirrorlake.errors import SparkUnavailable
from mirrorlake.landing.scan import Landed
from mirrorlake.mirror.steps import ApplyFiles
from mirrorlake.model import types
from mirrorlake.model.change import Marker
from mirrorlake.model.landed import FileName
from mirrorlake.model.table import Column
from mirrorlake.spark.engine import spark_engine
from mirrorlake.spark.session import class_path, jars, spark_session
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.spark.settings import SparkSettings
from mirrorlake.storage.local import LocalStore
from tests.conformance.mirrored import Mirrored
from tests.histories import Shape
from tests.spark.test_apply import SparkReader

pytestmark = pytest.mark.spark

SHAPE = Shape.of(["id"], id=types.LONG)


NAMELESS = [
    *("unshare", "--uts", "env", "--unset=AWS_ACCESS_KEY_ID", "--unset=AWS_SECRET_ACCESS_KEY"),
    *("sh", "-c", 'hostname nowhere.invalid && exec "$@"', "sh"),
]
"""Runs a command on a machine whose name is in no DNS. With keys of S3 in the environment Spark
itself looks its name up."""


def in_a_process_of_its_own(
    script: str, *arguments: str, under: Sequence[str] = ()
) -> dict[str, Any]:
    """Run a script; it prints what it found as JSON."""
    done = subprocess.run(
        [
            *under,
            sys.executable,
            "-W",
            "error",
            "-W",
            "ignore::ResourceWarning",
            "-c",
            script,
            *arguments,
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


# -- a session that is given ------------------------------------------------------------------


BY_DELTA = frozenset(
    {
        "spark.databricks.delta.lastCommitVersionInSession",
        "spark.sql.parquet.fieldId.read.enabled",
        "spark.sql.parquet.fieldId.write.enabled",
    }
)
"""What Delta itself notes in a session that it is used in."""


def settings_of(session: SparkSession) -> tuple[Any, ...]:
    """Everything that a session says of itself."""
    context = session.sparkContext
    return (
        {name: value for name, value in session.conf.getAll.items() if name not in BY_DELTA},
        sorted(context.getConf().getAll()),
        context.getJobTags(),
        context.getLocalProperty("spark.job.description"),
        SparkSession.getActiveSession() is not None,
        [view.name for view in session.catalog.listTables()],
    )


@pytest.mark.full
def test_a_given_session_is_neither_changed_nor_stopped(spark: Spark, store: LocalStore) -> None:
    session = spark.session
    before = settings_of(session)
    with Spark.given(session) as given:
        reader = SparkReader(session, store)
        table = Mirrored(spark_engine(given, store), store, reader, SHAPE).create()
        table.apply([(Marker.INSERT, (1,))])
        table.add_columns(Column("more", types.LONG))
        table.apply([(Marker.UPDATE, (1, 2))])
    assert settings_of(session) == before
    assert session.range(3).count() == 3


WITHOUT_DELTA = """
import json
from pyspark.sql import SparkSession
from mirrorlake.errors import SparkUnavailable
from mirrorlake.spark.session.spark_session import Spark

conf = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"}
builder = SparkSession.builder.master("local[1]")
for name, value in conf.items():
    builder = builder.config(name, value)
session = builder.getOrCreate()
before = dict(session.conf.getAll)
found = {}
try:
    Spark.given(session)
except SparkUnavailable as error:
    found = {"what": error.what, "hint": error.hint}
found["unchanged"] = dict(session.conf.getAll) == before
found["alive"] = session.range(3).count() == 3
session.stop()
print(json.dumps(found))
"""


@pytest.mark.full
def test_a_given_session_without_delta_is_refused_and_left_alone() -> None:
    found = in_a_process_of_its_own(WITHOUT_DELTA)
    assert found == {
        "what": "the session was created without Delta",
        "hint": "Create it with spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension and "
        "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog.",
        "unchanged": True,
        "alive": True,
    }


def test_what_is_no_session_is_refused() -> None:
    with pytest.raises(
        SparkUnavailable, match=r"this is not a classic Spark session.*a classic session"
    ):
        Spark.given(object())


def test_a_session_of_spark_connect_is_refused_by_its_name() -> None:
    # Its own class needs a package that nothing else here does.
    remote = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})
    with pytest.raises(SparkUnavailable, match=r"this is a Spark Connect session.*a classic"):
        Spark.given(remote())


def test_a_master_of_spark_connect_is_refused_without_its_token() -> None:
    settings = SparkSettings(master="sc://there:15002/;token=hidden")
    with pytest.raises(SparkUnavailable, match="is a Spark Connect URL") as refused:
        Spark.start(settings)
    assert "hidden" not in str(refused.value)


def test_without_a_master_the_active_session_is_taken(spark: Spark) -> None:
    assert Spark.start(SparkSettings(master=None)).session is spark.session


def test_without_a_master_and_a_session_there_is_a_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    with pytest.raises(SparkUnavailable, match=r"spark\.master is not set.*Set spark\.master"):
        Spark.start(SparkSettings(master=None))


# -- a session of our own ---------------------------------------------------------------------

OF_OUR_OWN = """
import json, signal, sys
from pathlib import Path
from pyspark import SparkContext
from mirrorlake.errors import SparkUnavailable
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.spark.settings import SparkSettings

handler = signal.getsignal(signal.SIGINT)
conf = {"spark.sql.shuffle.partitions": "3"}
settings = SparkSettings("local[1]", Path(sys.argv[1]), conf, driver_memory="512m", brief=True)
with Spark.start(settings) as spark:
    session, log = spark.session, spark.log
    found = {
        "handler kept": signal.getsignal(signal.SIGINT) is handler,
        "zone": session.conf.get("spark.sql.session.timeZone"),
        "jvm zone": session._jvm.java.util.TimeZone.getDefault().getID(),
        "ours wins": session.conf.get("spark.sql.shuffle.partitions"),
        "delta": session.sql("select 1").count(),
        "java": session.conf.get("spark.driver.extraJavaOptions"),
    }
found["stopped"] = SparkContext._active_spark_context is None
found["log removed"] = not log.exists()
found["warehouse here"] = Path("spark-warehouse").exists()
print(json.dumps(found))
"""


@pytest.mark.full
def test_our_own_session_starts_from_a_folder_of_jars_and_is_stopped(tmp_path: Path) -> None:
    for jar in class_path.recorded(jars.configuration(SparkSettings())):
        (tmp_path / Path(jar).name).symlink_to(jar)
    may = subprocess.run([*NAMELESS, "true"], check=False, capture_output=True).returncode == 0
    found = in_a_process_of_its_own(OF_OUR_OWN, str(tmp_path), under=NAMELESS if may else ())
    assert "-XX:TieredStopAtLevel=1" in found.pop("java")
    assert found == {
        "handler kept": True,
        "zone": "UTC",
        "jvm zone": "UTC",
        "ours wins": "3",
        "delta": 1,
        "stopped": True,
        "log removed": True,
        "warehouse here": False,
    }


@pytest.mark.full
def test_a_master_that_does_not_exist_is_named() -> None:
    found = in_a_process_of_its_own(
        """
import json
from mirrorlake.errors import SparkUnavailable
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.spark.settings import SparkSettings
try:
    Spark.start(SparkSettings(master="nonsense"))
except SparkUnavailable as error:
    print(json.dumps({"what": error.what}))
"""
    )
    assert found["what"].startswith("Spark did not start on nonsense")


@pytest.mark.full
def test_our_own_session_with_a_log_store_that_overwrites_is_refused() -> None:
    found = in_a_process_of_its_own(
        """
import json
from mirrorlake.errors import UnsafeStorage
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.spark.settings import SparkSettings
conf = {"spark.delta.logStore.file.impl": "io.delta.storage.HDFSLogStore"}
try:
    Spark.start(SparkSettings(master="local[1]", conf=conf))
except UnsafeStorage as error:
    print(json.dumps({"what": error.what, "hint": error.hint}))
"""
    )
    assert "can overwrite the commit of another process" in found["what"]
    assert "spark.conf" in found["hint"]


# -- cancelling -------------------------------------------------------------------------------


@pytest.fixture
def pipe(tmp_path: Path) -> Callable[[str], Path]:
    """Makes a file that a reader waits for."""

    def make(name: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(path)
        return path

    return make


def test_cancelling_ends_our_own_jobs_only(
    spark: Spark, store: LocalStore, pipe: Callable[[str], Path]
) -> None:
    engine = spark_engine(spark, store)
    table = Mirrored(engine, store, SparkReader(spark.session, store), SHAPE).create()
    pipe(f"root/ours/{FileName(1)}")
    theirs = pipe("theirs")
    landed = Landed(FileName(1), "ours", 1, 0.0, "")
    step = ApplyFiles(table.table, table.path, "", (landed,), 1, 1, ("id",), Marker.INSERT)
    context = spark.session.sparkContext

    def foreign() -> list[str]:
        name = str(theirs)
        return context.parallelize([0], 1).map(lambda _: Path(name).read_text()).collect()

    with ThreadPoolExecutor(2) as pool:
        other = pool.submit(foreign)
        mine = pool.submit(engine.apply, [step], lambda: None)
        # Both tasks wait for somebody to write to their pipes.
        while len(context.statusTracker().getActiveJobsIds()) < 2:
            time.sleep(0.01)
        while not mine.done():  # one of the two jobs may have been another one, before ours
            engine.cancel()
            time.sleep(0.1)
        assert mine.exception() is not None
        theirs.write_text("undisturbed")
        assert other.result() == ["undisturbed"]
    assert engine.progress(table.path).recorded == 0


def test_tasks_keep_memory_from_one_batch_to_the_next(spark: Spark) -> None:
    context = spark.session.sparkContext
    (found,) = context.parallelize([0], 1).map(lambda _: dict(os.environ)).collect()
    assert found["MIMALLOC_PURGE_DELAY"] == "10000"  # milliseconds
    assert int(found["MALLOC_MMAP_THRESHOLD_"]) > int(found["MALLOC_TRIM_THRESHOLD_"]) > 0


def test_our_session_writes_page_checksums_and_verifies_them(spark: Spark, tmp_path: Path) -> None:
    rows = spark.session.createDataFrame([("some text",)], "name string").coalesce(1)
    rows.write.option("compression", "none").parquet(str(tmp_path / "t"))
    (path,) = (tmp_path / "t").glob("*.parquet")
    path.write_bytes(path.read_bytes().replace(b"some text", b"same text", 1))
    path.with_name(f".{path.name}.crc").unlink()  # of Hadoop, for local files alone
    with pytest.raises(DamagedPage):
        page_checksums.verify(path)
    with pytest.raises(Exception, match=r"could not verify|CRC|corrupted"):
        spark.session.read.parquet(str(path)).collect()


def test_nobody_waits_for_the_server_of_accumulators() -> None:
    asked, ended = threading.Event(), threading.Event()

    def shutdown() -> None:
        asked.set()
        ended.wait()

    context: Any = SimpleNamespace(_accumulatorServer=SimpleNamespace(shutdown=shutdown))
    spark_session._leave_accumulators(context)
    assert asked.wait(10)
    assert context._accumulatorServer is None
    ended.set()
    spark_session._leave_accumulators(context)
    spark_session._leave_accumulators(SimpleNamespace())  # type: ignore[arg-type]  # another release
