"""What is wrong with one stream stops no other, and takes nothing from another."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.app.streams.projects import ServiceFolders
from mirrorlake.app.streams.service import Service, opened
from mirrorlake.control.names import ResourceName
from mirrorlake.control.requests import Asked
from mirrorlake.control.states import StreamMove
from tests.server.service import PARENT, wait

FORCED = Asked(force=True)
ONE, TWO = (ResourceName.parse(f"{PARENT}/streams/{one}") for one in ("one", "two"))


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """A service that supervises when a test says so."""
    places = ServiceFolders(tmp_path / "service", tmp_path / "data")
    with opened(places, threading.Event(), applies=False) as found:
        database = {"hostname": "127.0.0.1", "port": 1, "username": "u", "database": "d"}
        secret = {"secretManagerStoredPassword": "env:MIRRORLAKE_SECRET_FAULTS"}
        profiles = found.control.profiles
        profiles.create(PARENT, "source", {"postgresqlProfile": {**database, **secret}}, FORCED)
        profiles.create(PARENT, "open", {"postgresqlProfile": database}, FORCED)
        profiles.create(PARENT, "folder", {"fileSystemProfile": {"rootPath": "zones"}}, FORCED)
        yield found


def stream(source: str = "open", path: str = "one") -> dict[str, Any]:
    return {
        "sourceConfig": {
            "sourceConnectionProfile": f"{PARENT}/connectionProfiles/{source}",
            "postgresqlSourceConfig": {"replicationSlot": path, "publication": path},
        },
        "destinationConfig": {
            "destinationConnectionProfile": f"{PARENT}/connectionProfiles/folder",
            "fileSystemDestinationConfig": {"path": path, "landingZone": {}},
        },
        "backfillAll": {},
    }


def until(service: Service, is_reached: Callable[[], bool]) -> None:
    """Supervise until something is so."""

    def is_so() -> bool:
        service.supervisor.tick()
        return is_reached()

    wait(is_so, 120)


def state(service: Service, name: ResourceName) -> str:
    return str(service.control.get(name)["state"])


def test_a_stream_that_cannot_be_supervised_stops_no_other(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.control.streams.create(PARENT, "one", stream("source"), FORCED)
    service.control.streams.create(PARENT, "two", stream(path="two"), FORCED)
    supervision = service.control.supervision
    # The service was killed while it drained, and begins again without the secret.
    for move in (StreamMove.START, StreamMove.VALID, StreamMove.PAUSE):
        supervision.observe(ONE, move)
    supervision.observe(TWO, StreamMove.START)
    until(service, lambda: state(service, TWO) == "NOT_STARTED")  # the database is not there
    (error,) = service.control.get(ONE)["errors"]
    assert "MIRRORLAKE_SECRET_FAULTS is not set" in error["message"]
    service.supervisor.tick()
    assert service.control.get(ONE)["errors"] == [error]
    monkeypatch.setenv("MIRRORLAKE_SECRET_FAULTS", "given")
    until(service, lambda: state(service, ONE) == "PAUSED")
    assert service.control.get(ONE)["errors"] == []


def test_a_stream_does_not_take_the_folder_of_another(service: Service) -> None:
    service.control.streams.create(PARENT, "one", stream(), FORCED)
    refused = service.control.streams.create(PARENT, "two", stream(), Asked())
    assert f"the folder is that of the stream {ONE}" in refused["error"]["message"]
    service.control.streams.create(PARENT, "two", stream(), FORCED)
    service.control.streams.run(TWO, {}, Asked())
    until(service, lambda: state(service, TWO) == "NOT_STARTED")
    (error,) = service.control.get(TWO)["errors"]
    assert "another path" in error["message"]
    going = service.control.streams.delete(TWO, Asked())
    operation = ResourceName.parse(going["name"])
    until(service, lambda: bool(service.control.get(operation)["done"]))
    said = service.control.get(operation)["metadata"]["statusMessage"]
    assert f"the folder is that of the stream {ONE}" in said
