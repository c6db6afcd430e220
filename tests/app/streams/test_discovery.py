"""What discover tells of destinations; of sources the official client is told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.app.streams.discovery import discover
from mirrorlake.app.streams.projects import ServiceFolders
from mirrorlake.app.streams.service import Service, opened
from mirrorlake.control.requests import Asked
from mirrorlake.errors import InvalidRequest, ResourceNotFound
from tests.app.zones import Zone
from tests.server.service import PARENT
from tests.server.test_faults_of_streams import stream

PROFILE = f"{PARENT}/connectionProfiles/folder"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """With two streams into tables, of which the second is another profile's."""
    places = ServiceFolders(tmp_path / "service", tmp_path / "data")
    with opened(places, threading.Event(), applies=False) as found:
        asked, profiles = Asked(force=True), found.control.profiles
        database = {"hostname": "127.0.0.1", "port": 1, "username": "u", "database": "d"}
        profiles.create(PARENT, "open", {"postgresqlProfile": database}, asked)
        for name in ("folder", "other"):
            profiles.create(PARENT, name, {"fileSystemProfile": {"rootPath": name}}, asked)
        found.control.streams.create(PARENT, "one", stream(), asked)
        two = stream(path="two")
        two["destinationConfig"]["destinationConnectionProfile"] = (
            f"{PARENT}/connectionProfiles/other"
        )
        found.control.streams.create(PARENT, "two", two, asked)
        for root in ("folder/one", "other/two"):
            zone = Zone(places.data / "files" / root)
            zone.table("orders", "id")
            zone.land("orders", 1, {"id": [1], "note": ["a"]})
            zone.apply()
        yield found


def asked(service: Service, **sent: Any) -> Any:
    supervised = service.control.supervision.supervised
    return discover(sent, service.projects, supervised)["postgresqlRdbms"]


@pytest.mark.clause("ST-313")
def test_a_destination_tells_its_tables_with_their_columns_as_written(service: Service) -> None:
    found = asked(service, connectionProfileName=PROFILE, fullHierarchy=True)
    (schema,) = found["postgresqlSchemas"]
    (table,) = schema["postgresqlTables"]
    assert (schema["schema"], table["table"]) == ("s", "orders")
    columns = [
        (one["column"], one["dataType"], one["primaryKey"], one["ordinalPosition"])
        for one in table["postgresqlColumns"]
    ]
    assert columns == [("id", "long", True, 1), ("note", "string", False, 2)]
    found = asked(service, connectionProfileName=PROFILE, hierarchyDepth=1)
    assert found == {"postgresqlSchemas": [{"schema": "s", "postgresqlTables": []}]}
    part = {"postgresqlSchemas": [{"schema": "s", "postgresqlTables": [{"table": "orders"}]}]}
    found = asked(service, connectionProfileName=PROFILE, postgresqlRdbms=part)
    assert found["postgresqlSchemas"][0]["postgresqlTables"] == [table]
    part = {"postgresqlSchemas": [{"schema": "none"}]}
    found = asked(service, connectionProfileName=PROFILE, postgresqlRdbms=part)
    assert found == {"postgresqlSchemas": []}


def test_what_cannot_be_discovered_is_refused(service: Service) -> None:
    inline = asked(service, connectionProfile={"bigqueryProfile": {}})
    assert inline == {"postgresqlSchemas": []}  # nothing was ever written by its name
    with pytest.raises(ResourceNotFound):
        asked(service, connectionProfileName=f"{PARENT}/connectionProfiles/none")
    with pytest.raises(InvalidRequest, match="mysql_rdbms does not belong to a fileSystemProfile"):
        asked(service, connectionProfileName=PROFILE, mysqlRdbms={})
