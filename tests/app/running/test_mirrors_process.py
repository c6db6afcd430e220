"""All mirrors of a service in one process: what goes wrong in one stops no other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from mirrorlake.app.mirror import Mirror
from mirrorlake.app.running.mirrors_process import MirrorsProcess
from mirrorlake.app.status import mirror_status
from mirrorlake.config import Project
from mirrorlake.errors import InternalError
from mirrorlake.spark.settings import SparkSettings
from tests.app.zones import Zone
from tests.server.service import wait

pytestmark = [pytest.mark.spark, pytest.mark.full]


def poison() -> None:
    """Let the mirror `bad` fail in a way that nobody foresaw."""
    apply = Mirror.apply_run

    def poisoned(self: Mirror, *arguments: Any) -> Any:
        if self.project.name == "bad":
            raise ValueError("a value of a row")
        return apply(self, *arguments)

    Mirror.apply_run = poisoned  # type: ignore[method-assign]


def project(root: Path) -> Project:
    zone = Zone(root)
    zone.table("t", "id")
    zone.land("t", 1, {"id": [1, 2, 3]})
    spark = SparkSettings(master="local[2]", driver_memory="1g")
    return replace(Project.of_root(root), spark=spark)


def jvms() -> list[psutil.Process]:
    return [one for one in psutil.Process().children(recursive=True) if one.name() == "java"]


def test_a_fault_of_one_mirror_ends_no_other_and_a_lost_spark_ends_the_process(
    tmp_path: Path,
) -> None:
    good, bad = project(tmp_path / "good"), project(tmp_path / "bad")
    other_jvms = set(jvms())  # this process may have a Spark of its own
    process = MirrorsProcess(poison)

    def applied() -> int:
        process.look()
        return sum(table.total.rows for table in mirror_status.read(good).tables)

    try:
        process.want({"bad": bad})
        wait(lambda: process.look() or "bad" in process.errors, 240)
        assert isinstance(process.errors["bad"], InternalError)
        assert "a value" not in str(process.errors["bad"])
        process.want({"bad": bad, "good": good})
        wait(lambda: applied() == 3, 240)
        assert process.is_alive
        (jvm,) = set(jvms()) - other_jvms
        jvm.kill()
        wait(lambda: not process.is_alive, 120)
    finally:
        process.stop()
