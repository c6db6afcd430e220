"""Later starts know the jars of earlier ones, and begin with the classes that one has written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.spark.session import class_path, fetch, log_store

CONF = {"spark.jars.packages": "io.delta:delta:1", "spark.jars.excludes": "a:b", "other": "1"}


class Session:
    """A session that has resolved its packages to these files."""

    def __init__(self, *files: Path) -> None:
        self._files = files

    @property
    def sparkContext(self) -> Any:  # noqa: N802  (as Spark calls it)
        return self

    def getConf(self) -> dict[str, str]:  # noqa: N802
        return {"spark.jars": ",".join(f"file://{file}" for file in self._files)}


@pytest.fixture
def jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One that a start has fetched into a home where nothing else is."""
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    jar = tmp_path / "delta.jar"
    jar.write_bytes(b"")
    class_path.record(CONF, Session(jar))  # type: ignore[arg-type]
    return jar


def test_what_nobody_has_resolved_is_left_to_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert class_path.resolved(CONF, is_local=True) == CONF


def test_a_local_session_has_the_jars_in_its_class_path(jar: Path) -> None:
    given = {**CONF, "spark.driver.extraClassPath": "/mine.jar"}
    found = class_path.resolved(given, is_local=True)
    path = os.pathsep.join([str(jar), str(log_store.JAR), "/mine.jar"])
    assert found == {"other": "1", "spark.driver.extraClassPath": path}


def test_a_cluster_gets_them_by_name(jar: Path) -> None:
    found = class_path.resolved({**CONF, "spark.jars": "/mine.jar"}, is_local=False)
    assert found == {"other": "1", "spark.jars": f"{jar},{log_store.JAR},/mine.jar"}


def test_jars_of_a_folder_come_with_the_log_store() -> None:
    found = class_path.resolved({"spark.jars": "/a.jar"}, is_local=True)
    assert found == {"spark.jars": f"/a.jar,{log_store.JAR}"}


@pytest.mark.parametrize("spoil", ["gone", "another package", "not JSON"])
def test_what_is_no_longer_so_is_resolved_again(jar: Path, spoil: str) -> None:
    conf = dict(CONF)
    if spoil == "gone":
        jar.unlink()
    elif spoil == "another package":
        conf["spark.jars.packages"] = "io.delta:delta:2"
    else:
        (record,) = jar.parent.rglob("jars-*.json")
        record.write_text("[")
    assert class_path.resolved(conf, is_local=True) == conf


def test_an_archive_is_of_the_jars_as_they_were_then(jar: Path) -> None:
    before = class_path.archive(str(jar))
    assert class_path.archive(str(jar)) == before
    os.utime(jar, (0, 0))  # written anew, as by another installation in the same place
    assert class_path.archive(str(jar)) != before
    jar.unlink()
    assert class_path.archive(str(jar)) != before


def test_archives_that_nobody_used_for_a_month_are_removed(jar: Path) -> None:
    old, young = (jar.parent / f".ivy2.5.2/mirrorlake/classes-{name}.jsa" for name in "ab")
    for path in (old, young):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    os.utime(old, (0, 0))
    class_path.sweep()
    assert (old.exists(), young.exists()) == (False, True)


MAPPED = """
import json
from pathlib import Path
from pyspark import SparkContext
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.spark.settings import SparkSettings
with Spark.start(SparkSettings(master="local[1]", driver_memory="512m")):
    maps = Path(f"/proc/{SparkContext._gateway.proc.pid}/maps").read_text()
print(json.dumps(sorted({line.split()[-1] for line in maps.splitlines() if ".jsa" in line})))
"""


@pytest.mark.full
@pytest.mark.spark
def test_a_session_begins_with_the_classes_that_set_up_has_written() -> None:
    assert fetch.main() == 0  # nothing to do where set-up has just been
    assert fetch.missing() == []
    done = subprocess.run(
        [sys.executable, "-c", MAPPED], capture_output=True, text=True, check=True
    )
    assert str(fetch.classes()) in json.loads(done.stdout.splitlines()[-1])
