"""`mirrorlake backfill` while capture runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.storage.lease import holder_of
from mirrorlake.storage.local import LocalStore
from tests.conformance.scene import until
from tests.conftest import Database
from tests.crash.project import CHANGES, Project, assert_landed, mirrorlake, new_project

pytestmark = [pytest.mark.postgres, pytest.mark.full]


@pytest.fixture
def project(database: Database, tmp_path: Path) -> Project:
    return new_project(tmp_path, database)


def job(project: Project, *arguments: str) -> dict[str, Any]:
    process = project.start("backfill", "a.orders", *arguments, "--json")
    output, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    found: dict[str, Any] = json.loads(output)
    return found


@contextmanager
def capturing(project: Project) -> Iterator[None]:
    """Capture runs, so that the command waits for the end of a backfill."""
    store = LocalStore(project.root)
    with project.started("capture"):
        until(lambda: holder_of(store, "capture", datetime.now(UTC)))
        yield


def test_a_range_of_the_key_is_read(project: Project) -> None:
    project.run("capture", "--once")
    project.database.execute(CHANGES)
    with capturing(project):
        found = job(project, "--where-key", "20", "30")
    assert found["state"] == "COMPLETED"
    assert found["keys"] == ["20", "30"]
    assert_landed(project)


def test_a_backfill_is_stopped_while_it_reads(project: Project) -> None:
    project.run("capture", "--once")
    project.database.execute(CHANGES)
    with capturing(project):
        begun = job(project, "--max-rows-per-second", "2", "--no-wait")
        stopped = job(project, "--stop")
        assert stopped["id"] == begun["id"]
        assert stopped["state"] == "STOPPED"
        assert job(project)["state"] == "COMPLETED"
    assert_landed(project)


def test_to_stop_takes_no_other_option(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_URL", project.database.url)
    file = ("-c", str(project.file))
    done = mirrorlake("backfill", "a.orders", "--stop", "--where-key", "1", "2", *file)
    assert done.code == 2
    assert "--stop takes no other option" in done.error
