"""The requests of the official client, as they were seen, and the answers that it reads."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.app.streams.projects import ServiceFolders
from mirrorlake.app.streams.service import opened
from mirrorlake.server.application import application
from tests.server.asgi import TestClient

PARENT = "projects/p/locations/l"
URL = "http://127.0.0.1:8765"
TYPE = "type.googleapis.com/google.cloud.datastream.v1"
MYSQL = {
    "displayName": "shop",
    "labels": {"a": "b"},
    "mysqlProfile": {"hostname": "h", "port": 3307, "username": "u", "password": "p"},
    "staticServiceIpConnectivity": {},
}
TABLES = {"displayName": "tables", "bigqueryProfile": {}}
STREAM = {
    "displayName": "shop",
    "sourceConfig": {
        "sourceConnectionProfile": f"{PARENT}/connectionProfiles/source",
        "mysqlSourceConfig": {"binaryLogPosition": {}},
    },
    "destinationConfig": {
        "destinationConnectionProfile": f"{PARENT}/connectionProfiles/tables",
        "bigqueryDestinationConfig": {"merge": {}},
    },
    "backfillAll": {},
}


class Api:
    """Sends what the client sends."""

    def __init__(self, client: TestClient) -> None:
        self._client = client

    def __call__(
        self, method: str, path: str, body: Any = None, code: int = 200, **query: str
    ) -> Any:
        answer = self._client.request(
            method,
            f"/v1/{path}",
            json=body,
            params={"$alt": "json;enum-encoding=int", **query},
            headers={
                "x-goog-api-client": "gl-python/3.11 rest/2.32 gapic/1.21",
                "x-goog-request-params": f"parent={PARENT}",
            },
        )
        assert answer.status_code == code, answer.text
        return answer.json()

    def post(self, path: str, body: Any = None, code: int = 200, **query: str) -> Any:
        return self("POST", f"{PARENT}/{path}", body, code, **query)

    def get(self, path: str, code: int = 200, **query: str) -> Any:
        return self("GET", f"{PARENT}/{path}", None, code, **query)

    def patch(self, path: str, body: Any, mask: str, code: int = 200) -> Any:
        return self("PATCH", f"{PARENT}/{path}", body, code, updateMask=mask)


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    """A service of which nothing runs, and two profiles."""
    places = ServiceFolders(tmp_path / "service", tmp_path / "data")
    with opened(places, threading.Event()) as service:
        found = Api(TestClient(application(service, None, {"127.0.0.1"}), base_url=URL))
        found.post("connectionProfiles", MYSQL, connectionProfileId="source", force="true")
        found.post("connectionProfiles", TABLES, connectionProfileId="tables", force="true")
        yield found


@pytest.mark.clause("FD-066")
def test_a_profile_is_made_by_an_operation_that_is_done_at_once(api: Api) -> None:
    asked = {"requestId": str(uuid.uuid4()), "force": "true", "connectionProfileId": "new"}
    tried = api.post("connectionProfiles", MYSQL, **asked, validateOnly="true")
    assert tried["done"]
    api.get("connectionProfiles/new", code=404)
    made = api.post("connectionProfiles", MYSQL, **asked)
    assert made["name"].startswith(f"{PARENT}/operations/")
    assert made["done"] is True
    told = made["metadata"]
    assert told["@type"] == f"{TYPE}.OperationMetadata"
    assert (told["target"], told["verb"]) == (f"{PARENT}/connectionProfiles/new", "create")
    assert (told["requestedCancellation"], told["apiVersion"]) == (False, "v1")
    assert told["createTime"]
    assert made["response"]["@type"] == f"{TYPE}.ConnectionProfile"
    assert api.post("connectionProfiles", MYSQL, **asked)["name"] == made["name"]
    unreachable = {**TABLES, "displayName": "", "postgresqlProfile": {}}
    assert "error" in api.post("connectionProfiles", unreachable, 400, connectionProfileId="bad")


@pytest.mark.clause("FD-067")
def test_what_was_made_is_read_and_listed(api: Api) -> None:
    found = api.get("connectionProfiles/source")
    assert found["mysqlProfile"] == {"hostname": "h", "port": 3307, "username": "u"}
    assert found["createTime"].endswith("Z")
    first = api.get("connectionProfiles", pageSize="1", pageToken="", filter="", orderBy="")
    assert [one["name"] for one in first["connectionProfiles"]] == [found["name"]]
    assert first["unreachable"] == []
    last = api.get("connectionProfiles", pageSize="1", pageToken=first["nextPageToken"])
    assert [one["displayName"] for one in last["connectionProfiles"]] == ["tables"]
    assert last["nextPageToken"] == ""
    assert api.get("streams") == {"streams": [], "nextPageToken": "", "unreachable": []}


@pytest.mark.clause("FD-068")
def test_an_update_takes_masked_fields_only_and_clears_those_that_are_absent(api: Api) -> None:
    sent = {"displayName": "new", "mysqlProfile": {"port": 3308, "hostname": "other"}}
    mask = "displayName,mysqlProfile.port,labels"
    assert api.patch("connectionProfiles/source", sent, mask)["done"]
    found = api.get("connectionProfiles/source")
    assert found["displayName"] == "new"
    assert found["mysqlProfile"] == {"hostname": "h", "port": 3308, "username": "u"}
    assert not found.get("labels")


def test_a_parameter_that_would_not_be_heeded_is_refused_by_its_name(api: Api) -> None:
    path = f"{PARENT}/connectionProfiles/tables"
    refused = api("DELETE", path, None, 400, validateOnly="true")["error"]
    assert "no such parameter (validateOnly)" in refused["message"]
    assert "requestId" in refused["message"]
    assert "pageSizes" in api.get("connectionProfiles", 400, pageSizes="1")["error"]["message"]
    assert "filter" in api.get("streams/s/objects", 400, filter="a=b")["error"]["message"]
    assert len(api.get("connectionProfiles", page_size="1")["connectionProfiles"]) == 1
    assert api.get("connectionProfiles/tables", alt="json", prettyPrint="false")["name"]


@pytest.mark.clause("FD-069", "FD-081")
def test_what_is_deleted_is_gone_and_errors_have_a_code_and_a_status(api: Api) -> None:
    path = f"{PARENT}/connectionProfiles/tables"
    done = api("DELETE", path, requestId=str(uuid.uuid4()), force="true")
    assert done["response"] == {"@type": "type.googleapis.com/google.protobuf.Empty"}
    gone = api.get("connectionProfiles/tables", code=404)["error"]
    assert (gone["code"], gone["status"]) == (404, "NOT_FOUND")
    assert gone["message"]
    assert isinstance(gone["details"], list)
    taken = api.post("connectionProfiles", MYSQL, 409, connectionProfileId="source")["error"]
    assert (taken["code"], taken["status"]) == (409, "ALREADY_EXISTS")


@pytest.mark.clause("FD-071", "FD-072")
def test_a_stream_is_made_and_started_by_the_number_or_the_name_of_a_state(api: Api) -> None:
    asked = {"streamId": "shop", "force": "true", "requestId": str(uuid.uuid4())}
    api.post("streams", STREAM, **asked, validateOnly="true")
    api.get("streams/shop", code=404)
    assert api.post("streams", STREAM, **asked)["response"]["@type"] == f"{TYPE}.Stream"
    started = api.patch("streams/shop", {"state": 2}, "state")
    assert started["done"] is False
    assert api.get("streams/shop")["state"] == "STARTING"
    api.post("streams", STREAM, **{**asked, "streamId": "other", "requestId": str(uuid.uuid4())})
    api.patch("streams/other", {"state": "RUNNING"}, "state")
    assert api.get("streams/other")["state"] == "STARTING"
    refused = api.patch("streams/other", {"state": 3}, "state", code=400)["error"]
    assert refused["status"] == "FAILED_PRECONDITION"
    api.patch("streams/other", {"state": 77}, "state", code=400)


@pytest.mark.clause("FD-076", "FD-077")
def test_addresses_operations_and_locations_are_told(api: Api) -> None:
    assert api("GET", f"{PARENT}:fetchStaticIps") == {"staticIps": []}
    (place, *_) = api("GET", "projects/p/locations")["locations"]
    assert place["name"].startswith("projects/p/locations/")
    operation = api.get("operations")["operations"][0]["name"]
    assert api("GET", operation)["done"]
    assert api("POST", f"{operation}:cancel") == {}
    assert api("DELETE", operation) == {}
    assert api("GET", operation, code=404)["error"]["code"] == 404


@pytest.mark.clause("FD-078", "FD-079")
def test_every_change_answers_with_an_operation_that_ends_with_its_result(api: Api) -> None:
    asked = {"streamId": "shop", "force": "true"}
    profile, stream = "connectionProfiles/source", "streams/shop"
    answers = {
        f"create {profile}": api.post(
            "connectionProfiles", MYSQL, connectionProfileId="other", validateOnly="true"
        ),
        f"update {profile}": api.patch(profile, {"displayName": "new"}, "displayName"),
        f"create {stream}": api.post("streams", STREAM, **asked),
        f"run {stream}": api.post(f"{stream}:run", {"force": True}),
        f"delete {stream}": api("DELETE", f"{PARENT}/{stream}"),
    }
    for what, answer in answers.items():
        assert api("GET", answer["name"]) == answer
        told = answer["metadata"]
        assert told["@type"] == f"{TYPE}.OperationMetadata"
        assert told["createTime"]
        assert told["target"].startswith(f"{PARENT}/")
        assert told["verb"] == what.partition(" ")[0]
        assert (told["requestedCancellation"], told["apiVersion"]) == (False, "v1")
        is_waiting = what.startswith(("run", "delete"))  # for who supervises the stream
        assert answer["done"] is not is_waiting
        if not is_waiting:
            kind = "Stream" if what.endswith(stream) else "ConnectionProfile"
            assert answer["response"]["@type"] == f"{TYPE}.{kind}"
    gone = api(
        "DELETE", f"{PARENT}/connectionProfiles/tables", requestId=str(uuid.uuid4()), code=400
    )
    assert gone["error"]["status"] == "FAILED_PRECONDITION"  # the stream uses it
    away = {"postgresqlProfile": {"hostname": "127.0.0.1", "port": 1, "username": "u"}}
    away["postgresqlProfile"]["database"] = "d"
    failed = api.post("connectionProfiles", away, connectionProfileId="away")
    assert failed["done"] is True
    assert "response" not in failed
    assert failed["error"]["code"] == 9
    assert failed["error"]["message"]
    assert failed["error"]["details"] == []


@pytest.mark.clause("FD-080")
def test_the_parser_of_the_official_client_reads_the_answers(api: Api) -> None:
    from google.cloud import datastream_v1

    api.post(
        "connectionProfiles",
        {"gcsProfile": {"bucket": "b"}},
        connectionProfileId="bucket",
        force="true",
    )
    destination = {
        "destinationConnectionProfile": f"{PARENT}/connectionProfiles/bucket",
        "gcsDestinationConfig": {"fileRotationInterval": "60s", "avroFileFormat": {}},
    }
    stream = {**STREAM, "destinationConfig": destination}
    api.post("streams", stream, streamId="shop", force="true")
    answer = api.get("streams/shop")
    assert answer["state"] == "NOT_STARTED"
    by_number = {**answer, "state": 1, "createTime": "2026-11-24T05:00:00.123456789Z"}
    for sent in (answer, by_number):
        read = datastream_v1.Stream.from_json(json.dumps(sent))
        assert read.state == datastream_v1.Stream.State.NOT_STARTED
        assert read.create_time.year == 2026
        rotation = read.destination_config.gcs_destination_config.file_rotation_interval
        assert rotation.total_seconds() == 60
    for scn in (7, "7"):
        text = json.dumps({"scn": scn})
        assert datastream_v1.OracleScnPosition.from_json(text).scn == 7
