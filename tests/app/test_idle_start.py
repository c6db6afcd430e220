"""A mirror with nothing to write starts no JVM to find that out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mirrorlake.app.mirror import Mirror
from mirrorlake.config import Project, load
from mirrorlake.errors import SparkUnavailable
from tests.app.applying import Applying
from tests.app.zones import MARKER, Zone
from tests.conftest import Database


@pytest.fixture
def zone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Zone:
    """One file is applied, and there is no Java."""
    zone = Zone(tmp_path / "root")
    zone.table("orders", "id")
    zone.land("orders", 1, {"id": [1], "v": ["first"], MARKER: [0]})
    loop = zone.loop()
    loop.open()
    assert [table.inserts for table in loop.once().tables.values()] == [1]
    loop.close()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    return zone


def test_with_nothing_landed_it_ends_without_java(zone: Zone) -> None:
    with Mirror(Project.of_root(zone.root)) as mirror:
        report = mirror.apply_once()
    assert [table.commits for table in report.tables.values()] == [0]
    assert report.errors == []


@pytest.mark.full
def test_with_nothing_landed_it_does_not_even_load_pyspark(zone: Zone) -> None:
    """To load it takes a fifth of the time."""
    _without_pyspark("apply", "--once", "--root", str(zone.root))


@pytest.mark.full
@pytest.mark.postgres
def test_with_nothing_new_in_the_source_neither(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute("create table t as select 1 as id", "alter table t add primary key (id)")
    source = {"type": "postgresql", "url": database.url, "slot": database.name}
    file = tmp_path / "mirrorlake.yaml"
    file.write_text(json.dumps({"name": "p", "root": "lake", "source": source}))
    project = load(file)
    Mirror(project).capture_once()
    assert [one.inserts for one in Applying(project).apply().tables.values()] == [1]
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    _without_pyspark("run", "--once", "--config", str(file))


def _without_pyspark(*command: str) -> None:
    script = f"""
import sys
from mirrorlake.cli.main import app
sys.argv = {["mirrorlake", *command]!r}
app(standalone_mode=False)
assert "pyspark" not in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_with_something_landed_it_starts_one(zone: Zone) -> None:
    zone.land("orders", 2, {"id": [2], "v": ["second"], MARKER: [0]})
    mirror = Mirror(Project.of_root(zone.root))
    with pytest.raises(SparkUnavailable, match=r"bin/java cannot be started"):
        mirror.apply_once()
