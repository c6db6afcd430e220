"""A process that ended with an error is told of, until the next one works."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from errno import ENOSPC
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.app.mirror import Mirror
from mirrorlake.app.status import ended, mirror_status
from mirrorlake.config import Project
from mirrorlake.errors import LeaseHeld, StorageUnavailable
from mirrorlake.model.clock import WallClock
from mirrorlake.storage.lease import TERM, Lease
from mirrorlake.storage.local import LocalStore

SECRET = "s3cret"
LEASES = "Files/Mirrorlake/leases/mirror"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    folder = tmp_path / "Files/LandingZone/s.schema/t"
    folder.mkdir(parents=True)
    (folder / "_metadata.json").write_text('{"keyColumns": ["id"]}')
    return Project("p", tmp_path)


def errors(project: Project) -> list[dict[str, Any]]:
    return mirror_status.read(project).errors


def crash(project: Project, error: Exception) -> None:
    def fail(*_: object) -> None:
        raise error

    with pytest.raises(type(error)):
        Mirror(project).apply_once(fail)


def test_a_crashed_cycle_is_told_without_its_text_until_one_works(project: Project) -> None:
    crash(project, ValueError(SECRET))
    (error,) = errors(project)
    assert (error["command"], error["code"]) == ("apply", "internal")
    assert "ValueError" in error["message"]
    assert SECRET not in str(error)
    said = json.loads((project.root / "Files/Monitoring/replicator.json").read_text())
    assert (said["status"], said["errorCode"]) == ("Stopped", "internal")
    Mirror(project).apply_once()
    assert errors(project) == []
    said = json.loads((project.root / "Files/Monitoring/replicator.json").read_text())
    assert said["errorCode"] == ""


def test_an_error_of_the_storage_is_told_with_what_to_do(project: Project) -> None:
    crash(project, OSError(ENOSPC, "No space left on device"))
    (error,) = errors(project)
    assert error["code"] == "storage_unavailable"
    assert "no space left on device" in error["message"]
    assert error["hint"].startswith("Free space")


def test_an_error_of_ours_is_told_whole(project: Project) -> None:
    crash(project, StorageUnavailable("the disk is full", where="/x", hint="Free space."))
    (error,) = errors(project)
    assert error["code"] == "storage_unavailable"
    assert error["message"] == "the disk is full (/x). Free space."


def test_who_was_told_to_stop_ended_well(project: Project) -> None:
    mirror = Mirror(project)

    def fail(*_: object) -> None:
        mirror.stop.set()
        raise RuntimeError

    with pytest.raises(RuntimeError):
        mirror.apply_once(fail)
    assert errors(project) == []


def holding(project: Project, then: str) -> list[str]:
    """The command of a process that takes the lease of the mirror."""
    code = (
        "import os, pathlib, signal, time\n"
        "from mirrorlake.model.clock import WallClock\n"
        "from mirrorlake.storage.lease import Lease\n"
        "from mirrorlake.storage.local import LocalStore\n"
        f"Lease(LocalStore(pathlib.Path({str(project.root)!r})), 'mirror', WallClock()).take()\n"
        f"{then}\n"
    )
    return [sys.executable, "-c", code]


def test_a_process_that_was_killed_is_told(project: Project) -> None:
    subprocess.run(holding(project, "os._exit(9)"), check=False)
    (error,) = errors(project)
    assert error["code"] == "process_lost"
    assert "was killed, or its machine went down" in error["message"]
    assert "Start it again" in ended.said(error)
    Mirror(project).apply_once()
    assert errors(project) == []


LATER = TERM + timedelta(seconds=5)


@pytest.fixture
def holder(project: Project) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has the lease, and is suspended."""
    process = subprocess.Popen(
        holding(project, "os.kill(0, signal.SIGSTOP); time.sleep(600)"), start_new_session=True
    )
    try:
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_process_that_is_suspended_is_no_process_that_ended(
    project: Project, holder: subprocess.Popen[bytes]
) -> None:
    later = datetime.now(UTC) + LATER
    (error,) = mirror_status.read(project, later).errors
    assert error["code"] == "process_suspended"
    assert f"process {holder.pid} on " in error["message"]
    assert f"`kill -CONT {holder.pid}`" in error["hint"]
    assert ended.said(error).startswith("apply has not ended, but does nothing: process ")
    holder.send_signal(signal.SIGCONT)
    os.waitid(os.P_PID, holder.pid, os.WCONTINUED)
    (error,) = mirror_status.read(project, later).errors
    assert error["code"] == "process_silent"
    assert "but runs" in error["message"]


def test_of_another_machine_it_is_not_known_how_its_process_ended(project: Project) -> None:
    store = LocalStore(project.root)
    Lease(store, "mirror", WallClock()).take()
    (name,) = (entry.name for entry in store.list(LEASES).files)
    record = json.loads(store.read(f"{LEASES}/{name}")) | {"host": "elsewhere"}
    store.replace(f"{LEASES}/{name}", json.dumps(record).encode())
    (error,) = mirror_status.read(project, datetime.now(UTC) + LATER).errors
    assert error["code"] == "process_lost"
    assert "on elsewhere has not renewed its lease since" in error["message"]
    assert "killed or suspended" in error["message"]


def test_a_second_run_is_refused_before_spark_starts_and_is_no_end_of_the_first(
    project: Project,
) -> None:
    first = Lease(LocalStore(project.root), "mirror", WallClock())
    first.take()
    with pytest.raises(LeaseHeld, match="already active here"):
        Mirror(project).apply_run()
    assert errors(project) == []
