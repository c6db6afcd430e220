"""What the service keeps is locked, full, damaged or lost: requests are refused, nothing ends, and
streams come back."""

from __future__ import annotations

import resource
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.app.streams.projects import ServiceFolders
from mirrorlake.app.streams.service import opened
from mirrorlake.control.names import ResourceKind, ResourceName
from mirrorlake.control.requests import Asked
from mirrorlake.control.states import StreamMove, StreamState
from mirrorlake.errors import MirrorlakeError, StorageUnavailable
from mirrorlake.model.landed import LaterFormat
from tests.server.service import PARENT, Served, wait
from tests.server.test_faults_of_streams import ONE, TWO, stream

PROFILES = f"/v1/{PARENT}/connectionProfiles"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    service = Served(tmp_path / "service", "--no-apply").start()
    yield service
    service.stop()


def create(served: Served, name: str) -> tuple[int, Any]:
    profile = {"fileSystemProfile": {"rootPath": name}}
    return served.call("POST", f"{PROFILES}?connectionProfileId={name}", profile)


def is_refused(answer: tuple[int, Any]) -> bool:
    code, body = answer
    return code == 503 and body["error"]["status"] == "UNAVAILABLE"


def names(served: Served) -> list[str]:
    found = served.call("GET", PROFILES)[1]["connectionProfiles"]
    return [one["name"].rpartition("/")[2] for one in found]


@pytest.mark.full
def test_a_locked_database_refuses_changes_and_is_read(served: Served) -> None:
    assert create(served, "one")[0] == 200
    database = served.folder / "streams.sqlite"
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("begin immediate")
        assert is_refused(create(served, "two"))
        assert names(served) == ["one"]
    assert create(served, "two")[0] == 200
    wait(lambda: served.call("GET", "/readyz")[0] == 200, 120)


@pytest.mark.full
def test_streams_are_supervised_again_after_a_full_disk_under_database_and_log(
    served: Served,
) -> None:
    nowhere = {"hostname": "127.0.0.1", "port": 1, "username": "u", "database": "d"}
    for name, profile in (
        ("open", {"postgresqlProfile": nowhere}),
        ("folder", {"fileSystemProfile": {"rootPath": "zones"}}),
    ):
        served.call("POST", f"{PROFILES}?connectionProfileId={name}&force=true", profile)
    served.call("POST", f"/v1/{PARENT}/streams?streamId=one&force=true", stream())
    served.call("POST", f"/v1/{ONE}:run", {"force": True})
    assert served.process
    _soft, hard = resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, (1, hard))
    for _round in range(2):
        _code, body = wait(lambda: (found := served.call("GET", "/readyz"))[0] == 503 and found, 60)
        assert "the supervisor of the streams failed" in body["reason"]
        wait(lambda: served.call("GET", "/readyz")[0] == 200, 60)
    resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
    wait(lambda: served.call("GET", "/readyz")[0] == 200, 120)
    wait(lambda: served.call("GET", f"/v1/{ONE}")[1].get("errors"), 120)


@pytest.mark.full
def test_a_full_disk_refuses_changes_and_loses_nothing(served: Served) -> None:
    assert create(served, "one")[0] == 200
    assert served.process
    _soft, hard = resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, (1, hard))
    assert is_refused(create(served, "two"))
    assert names(served) == ["one"]
    resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
    assert create(served, "two")[0] == 200
    served.kill()
    served.start()
    assert names(served) == ["one", "two"]


@pytest.mark.full
def test_damaged_secrets_refuse_what_needs_them(served: Served) -> None:
    (served.folder / "secrets.json").write_text("{")
    assert is_refused(create(served, "one"))
    assert served.call("GET", PROFILES)[0] == 200
    (served.folder / "secrets.json").unlink()
    assert create(served, "one")[0] == 200


@pytest.mark.full
def test_a_service_with_a_damaged_database_says_so_and_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "service"
    folder.mkdir()
    damaged = folder / "streams.sqlite"
    damaged.write_bytes(b"no database" * 1_000)
    done = subprocess.run(
        [sys.executable, "-m", "mirrorlake.cli.main", "serve", "--folder", folder, "--port", "0"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == StorageUnavailable.exit_code
    assert "the database of the streams returned an error" in done.stderr
    assert "Traceback" not in done.stderr
    assert damaged.read_bytes() == b"no database" * 1_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a service that had a stream which runs, and has lost its database."""
    places = ServiceFolders(tmp_path / "service", tmp_path / "data")
    asked = Asked(force=True)
    with opened(places, threading.Event(), applies=False) as service:
        profiles, streams = service.control.profiles, service.control.streams
        database = {"hostname": "127.0.0.1", "port": 1, "username": "u", "database": "d"}
        secret = {"postgresqlProfile": {**database, "password": "p"}}
        profiles.create(PARENT, "source", secret, asked)
        profiles.create(PARENT, "folder", {"fileSystemProfile": {"rootPath": "zones"}}, asked)
        for name in ("one", "two"):
            streams.create(PARENT, name, stream("source", name) | {"labels": {"a": name}}, asked)
        for move in (StreamMove.START, StreamMove.VALID, StreamMove.PAUSE, StreamMove.DRAINED):
            service.control.supervision.observe(ONE, move)
        streams.delete(TWO, Asked())
        service.supervisor.tick()
    for file in places.folder.glob("streams.sqlite*"):
        file.unlink()
    return places.folder


def test_with_the_database_lost_streams_come_back_as_they_were_wanted(folder: Path) -> None:
    places = ServiceFolders(folder, folder.parent / "data")
    with opened(places, threading.Event(), applies=False) as service:
        (found,) = (one for one in service.control.supervision.supervised() if not one.is_deleted)
        assert found.name == ONE
        assert found.document["labels"] == {"a": "one"}
        assert found.state is StreamState.PAUSED
        shape, secrets = service.control.profiles.of(f"{PARENT}/connectionProfiles/source")
        assert shape.postgresql_profile is not None
        assert secrets == {"postgresqlProfile.password": "p"}
        assert service.control.activity(ONE) == []  # history does not
        service.control.streams.delete(ONE, Asked())
        wait(lambda: service.supervisor.tick() or not service.control.supervision.supervised(), 60)
        for name in ("source", "folder"):
            service.control.profiles.delete(
                ResourceName.parse(f"{PARENT}/connectionProfiles/{name}"), Asked()
            )
        service.supervisor.tick()
    with opened(places, threading.Event(), applies=False) as service:
        assert service.control.page(ResourceKind.PROFILE, PARENT) == ([], "")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{", StorageUnavailable),
        ('{"format": 1, "resources": [{}]}', StorageUnavailable),
        ('{"format": 2}', LaterFormat),
    ],
)
def test_definitions_that_cannot_be_read_are_named_and_kept(
    folder: Path, text: str, error: type[MirrorlakeError]
) -> None:
    (folder / "definitions.json").write_text(text)
    places = ServiceFolders(folder, folder.parent / "data")
    with pytest.raises(error, match="definitions"), opened(places, threading.Event()):
        pass
    assert (folder / "definitions.json").read_text() == text


def test_what_still_runs_when_a_service_has_ended_opens_no_database(tmp_path: Path) -> None:
    """Work of a stream in another thread, for example what a removal asks of its profile."""
    places = ServiceFolders(tmp_path / "service", tmp_path / "data")
    with opened(places, threading.Event(), applies=False) as service:
        pass
    for file in places.folder.glob("streams.sqlite*"):
        file.unlink()
    with pytest.raises(StorageUnavailable, match="closed"):
        service.control.profiles.of(f"{PARENT}/connectionProfiles/source")
    assert not list(places.folder.glob("streams.sqlite*"))
