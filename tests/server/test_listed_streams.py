"""Streams that a project file lists, beside those of the API."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mirrorlake import config
from mirrorlake.app.streams.projects import ServiceFolders
from mirrorlake.app.streams.service import Service, opened
from mirrorlake.config import Project
from mirrorlake.control.names import HOME, ResourceKind, ResourceName
from mirrorlake.control.requests import Asked
from mirrorlake.errors import IllegalMove, ResourceExists, ResourceNotFound, UsageError
from mirrorlake.server.application import application
from tests.app.events.test_applier import put
from tests.apply.events.bucket import event
from tests.cli.test_several_mirrors import FILE, keys
from tests.conftest import Database
from tests.server.asgi import TestClient
from tests.server.service import Served, wait

LISTED = "mirrorlake.yaml"
LAKE = ResourceName(HOME, ResourceKind.STREAM, "the-lake")


def lake(folder: Path, name: str = "The lake") -> list[Project]:
    path = folder / LISTED
    path.write_text(f"name: {name}\nroot: ./lake\nsource: {{type: events, url: ./bucket}}\n")
    return config.load_all(path)


@contextmanager
def service(folder: Path, listed: list[Project]) -> Iterator[Service]:
    """A service that starts no process, and supervises when a test says so."""
    places = ServiceFolders(folder / "service", folder / "data")
    stop = threading.Event()
    with opened(places, stop, applies=False, listed=listed, file=LISTED) as found:
        yield found


def state(found: Service) -> str:
    return str(found.control.get(LAKE)["state"])


def runs(found: Service) -> bool:
    found.supervisor.tick()
    return state(found) == "RUNNING"


def test_a_mirror_of_the_project_file_is_a_stream_that_starts_by_itself(tmp_path: Path) -> None:
    put(tmp_path, "a.jsonl", event(1, {"id": 1}))
    with service(tmp_path, lake(tmp_path)) as found:
        assert state(found) == "STARTING"
        wait(lambda: runs(found), 60)
        told = found.control.get(LAKE)
        assert (told["displayName"], told["projectFile"]) == ("The lake", LISTED)
        for refused in (
            lambda: found.control.streams.update(LAKE, {"labels": {}}, "labels", Asked()),
            lambda: found.control.streams.delete(LAKE, Asked()),
        ):
            with pytest.raises(IllegalMove, match="is listed in"):
                refused()
        found.control.streams.update(LAKE, {"state": "PAUSED"}, "state", Asked())
        found.supervisor.tick()
        assert state(found) == "PAUSED"
        asked: Any = {"host": "127.0.0.1"}
        client = TestClient(application(found, None, None), base_url="http://h", headers=asked)
        assert f"<dd>{tmp_path}/bucket</dd>" in client.get("/streams/local/local/the-lake").text
        assert "The lake" in client.get("/").text
        found.control.profiles.create(HOME, "unused", {"bigqueryProfile": {}}, Asked())
        found.control.profiles.delete(ResourceName(HOME, ResourceKind.PROFILE, "unused"), Asked())
    with service(tmp_path, lake(tmp_path, "the LAKE")) as found:
        assert state(found) == "PAUSED"  # as a person has left it
        assert found.control.get(LAKE)["displayName"] == "the LAKE"
    with service(tmp_path, []) as found, pytest.raises(ResourceNotFound):
        found.control.get(LAKE)


def test_a_name_that_would_be_another_stream_is_refused(tmp_path: Path) -> None:
    with service(tmp_path, []) as found:
        profiles = found.control.profiles
        mysql = {"hostname": "h", "username": "u"}
        profiles.create(HOME, "source", {"mysqlProfile": mysql}, Asked(force=True))
        profiles.create(HOME, "tables", {"bigqueryProfile": {}}, Asked(force=True))
        stream = {
            "sourceConfig": {
                "sourceConnectionProfile": f"{HOME}/connectionProfiles/source",
                "mysqlSourceConfig": {},
            },
            "destinationConfig": {
                "destinationConnectionProfile": f"{HOME}/connectionProfiles/tables",
                "bigqueryDestinationConfig": {},
            },
            "backfillAll": {},
        }
        found.control.streams.create(HOME, LAKE.id, stream, Asked(force=True))
    with pytest.raises(ResourceExists, match="made by the API"), service(tmp_path, lake(tmp_path)):
        pass
    both = [*lake(tmp_path, "A b"), *lake(tmp_path, "a/B")]
    with pytest.raises(UsageError, match="would be one stream"), service(tmp_path, both):
        pass


@pytest.mark.full
@pytest.mark.postgres
def test_a_service_runs_the_mirrors_of_a_file_with_their_page(
    tmp_path: Path, database: Database
) -> None:
    database.execute("create table orders (id int primary key)", "insert into orders values (1)")
    path = tmp_path / LISTED
    path.write_text(FILE.format(name="Shop", url=database.url))
    served = Served(tmp_path / "service", "--no-token", config=path)
    served.start()
    try:
        wait(lambda: keys(tmp_path) == [1], 120)
        database.execute("insert into orders values (2)")
        wait(lambda: keys(tmp_path) == [1, 2], 120)
        page = "/streams/local/local/lake"
        wait(lambda: "2 changes" in served.call("GET", page)[1].decode(), 120)
        listed = served.call("GET", f"/v1/{HOME}/streams")[1]["streams"]
        states = {one["name"].rpartition("/")[2]: one["state"] for one in listed}
        assert states == {"away": "NOT_STARTED", "lake": "RUNNING", "shop-events": "RUNNING"}
        objects = f"/v1/{HOME}/streams/lake/objects"
        wait(lambda: served.call("GET", objects)[1]["streamObjects"], 120)
        (table,) = served.call("GET", objects)[1]["streamObjects"]
        assert table["displayName"] == "public.orders"
        served.kill()
        database.execute("insert into orders values (3)")
        served.start()
        wait(lambda: keys(tmp_path) == [1, 2, 3], 120)
    finally:
        assert served.stop() < 10
