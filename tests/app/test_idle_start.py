"""A mirror with nothing to write starts no JVM to find that out."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirrorlake.app.mirror import Mirror
from mirrorlake.config import Project
from mirrorlake.errors import SparkUnavailable
from tests.app.zones import MARKER, Zone


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


def test_with_something_landed_it_starts_one(zone: Zone) -> None:
    zone.land("orders", 2, {"id": [2], "v": ["second"], MARKER: [0]})
    mirror = Mirror(Project.of_root(zone.root))
    with pytest.raises(SparkUnavailable, match=r"bin/java cannot be started"):
        mirror.apply_once()
