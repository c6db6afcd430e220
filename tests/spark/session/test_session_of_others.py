"""A session with Delta that somebody else started: refused where its commits can overwrite others,
used where they cannot, and in both cases neither changed nor stopped."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.spark.session import class_path, jars, log_store
from mirrorlake.spark.session.spark_session import CATALOG, EXTENSION
from mirrorlake.spark.settings import SparkSettings
from tests.spark.session.test_session import BY_DELTA, in_a_process_of_its_own

pytestmark = [pytest.mark.spark, pytest.mark.full]

SETTING = f"spark.delta.logStore.file.impl={log_store.LOCAL}"

WITH_DELTA = {
    "spark.sql.extensions": EXTENSION,
    "spark.sql.catalog.spark_catalog": CATALOG,
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",  # starts sooner
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
}

SCRIPT = """
import json, os, sys
from dataclasses import replace
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from mirrorlake.app.mirror import Mirror
from mirrorlake.config.project import Project
from mirrorlake.errors import MirrorlakeError
from mirrorlake.landing import Publisher
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.spark.settings import SparkSettings

root = Path(sys.argv[1])
os.environ["PYSPARK_PYTHON"] = sys.executable
settings = SparkSettings("local[1]", conf={"spark.sql.shuffle.partitions": "3"})
project = replace(Project.of_root(root), spark=settings)
builder = SparkSession.builder.master("local[2]")
for name, value in json.loads(sys.argv[2]).items():
    builder = builder.config(name, value)


def settings_of(session):
    noted = json.loads(sys.argv[3])
    conf = {name: value for name, value in session.conf.getAll.items() if name not in noted}
    return conf, sorted(session.sparkContext.getConf().getAll())


def is_as_it_was(session, before):
    return settings_of(session) == before and session.range(3).count() == 3


def refusal(**given):
    try:
        with Mirror.open(project, **given) as mirror:
            mirror.engine()
    except MirrorlakeError as error:
        return {"code": error.code, "text": str(error)}


def apply(*ids, **given):
    with Publisher(root) as publisher:
        publisher.publish("orders", [{"id": id} for id in ids], operation="upsert", key="id")
    with Mirror.open(project, **given) as mirror:
        mirror.apply_once()


def rows(session):
    found = session.read.format("delta").load(str(root / "Tables" / "orders")).collect()
    return sorted(row.id for row in found)


found = {}
"""


def played(root: Path, conf: dict[str, str], script: str) -> dict[str, Any]:
    """What a script finds in a process whose session has these settings besides Delta's."""
    delta = class_path.recorded(jars.configuration(SparkSettings()))
    brought = {**WITH_DELTA, **conf}
    brought["spark.jars"] = ",".join([*delta, *filter(None, [conf.get("spark.jars")])])
    full = SCRIPT + textwrap.dedent(script) + "\nprint(json.dumps(found))\n"
    return in_a_process_of_its_own(full, str(root), json.dumps(brought), json.dumps([*BY_DELTA]))


def test_one_that_could_overwrite_commits_is_refused_and_left_alone(tmp_path: Path) -> None:
    found = played(
        tmp_path,
        {},
        """
        session = builder.getOrCreate()
        before = settings_of(session)
        found["asked for our own"] = refusal()
        found["handed in"] = refusal(spark=session)
        found["as it was"] = is_as_it_was(session, before)
        session.range(2).write.format("delta").save(str(root / "theirs"))
        session.stop()
        # The remedy without a change of the session: the JVM has the jars of Delta alone.
        with Spark.start(settings) as ours:
            apply(1, 2)  # by a second user of the session, who ends before the first
            found["rows of our own"] = rows(ours.session)
        found["stopped"] = SparkContext._active_spark_context is None
        """,
    )
    for way in ("asked for our own", "handed in"):
        refused = found.pop(way)
        assert refused["code"] == "unsafe_storage"
        assert "can overwrite the commit of another process" in refused["text"]
        assert f"spark.jars={log_store.JAR} and {SETTING}" in refused["text"]
    assert found == {"as it was": True, "rows of our own": [1, 2], "stopped": True}


def test_one_with_the_settings_of_the_hint_is_used_and_left_alone(tmp_path: Path) -> None:
    name, store = SETTING.split("=")
    found = played(
        tmp_path,
        {"spark.jars": str(log_store.JAR), name: store},
        """
        session = builder.getOrCreate()
        before = settings_of(session)
        apply(1, 2, spark=session)
        found["as it was, handed in"] = is_as_it_was(session, before)
        apply(2, 3)
        found["as it was, found"] = is_as_it_was(session, before)
        found["rows"] = rows(session)
        said = []
        with Spark.start(settings, said.append) as used:
            found["the same"] = used.session.sparkContext is session.sparkContext
        found["said"] = said
        """,
    )
    assert found == {
        "as it was, handed in": True,
        "as it was, found": True,
        "rows": [1, 2, 3],
        "the same": True,
        "said": ["Using the Spark session of this process, without the settings of the project"],
    }
