"""Executors that join a cluster while a mirror goes on are checked like those at its start."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mirrorlake.apply.logs.table_reader import LogReader
from tests.app.zones import Zone
from tests.spark.test_cluster import PATIENCE, Cluster, started, until
from tests.standalone import host_of

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("cluster"),
    pytest.mark.timeout(1_800),
    pytest.mark.full,
]

OTHER_NUMPY = """
import os
from importlib import metadata

if os.environ.get("SPARK_LOCAL_IP") == os.environ.get("OTHER_NUMPY_ON"):
    version = metadata.version
    metadata.version = lambda name: "0.1" if name == "numpy" else version(name)
"""
"""In every Python of the executors: on the host OTHER_NUMPY_ON, numpy is of another release."""


def recorded(zone: Zone) -> int:
    return LogReader(zone.store).progress("Tables/s/t").recorded


def land(zone: Zone, number: int) -> None:
    zone.land("t", number, {"id": [number], "v": [f"of {number}"]})


def only_the_last_worker_is_left(cluster: Cluster) -> None:
    """The executors of a worker that is killed end with it."""
    for worker in cluster.workers[:-1]:
        worker.kill()
        worker.wait()


def test_an_executor_that_joins_late_with_another_release_stops_the_mirror_before_its_batch(
    tmp_path: Path,
) -> None:
    with started(tmp_path / "cluster", workers=1) as cluster:
        (cluster.folder / "hooks" / "sitecustomize.py").write_text(OTHER_NUMPY)
        project = cluster.project(tmp_path / "project", OTHER_NUMPY_ON=host_of(1))
        zone = project.zone
        zone.table("t", "id")
        land(zone, 1)
        mirror = project.start("apply")
        until(mirror, lambda: recorded(zone) == 1)
        cluster.standalone.add(1)
        only_the_last_worker_is_left(cluster)
        land(zone, 2)
        assert mirror.wait(PATIENCE) != 0
        said = re.sub(r"\s+", " ", (project.folder / "apply.log").read_text())
        assert f"on an executor numpy is 0.1, not {np.__version__}" in said
        assert recorded(zone) == 1
        replace(project, conf=cluster.project(tmp_path / "again").conf).apply()
    assert recorded(zone) == 2
    assert zone.rows("t") == [(1, "of 1"), (2, "of 2")]
