"""The service over HTTP: shapes, refusals, and hostile requests, without any stream running."""

from __future__ import annotations

import json
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.server.guard import LARGEST_BODY
from tests.server.service import PARENT, Served, wait

V1 = f"/v1/{PARENT}"
TABLES = {"displayName": "tables", "bigqueryProfile": {}}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    service = Served(tmp_path_factory.mktemp("served") / "service").start()
    yield service
    assert service.stop() < 10


def refused(answer: tuple[int, Any]) -> tuple[int, str]:
    """Code and status of an error, which has the form of the original's."""
    code, body = answer
    assert body["error"]["code"] == code
    assert body["error"]["message"]
    assert isinstance(body["error"]["details"], list)
    return code, body["error"]["status"]


def test_errors_have_the_form_of_the_original(served: Served) -> None:
    assert refused(served.call("GET", f"{V1}/streams/none")) == (404, "NOT_FOUND")
    assert refused(served.call("GET", "/nowhere")) == (404, "NOT_FOUND")
    assert refused(served.call("PUT", f"{V1}/streams")) == (405, "UNIMPLEMENTED")
    served.call("POST", f"{V1}/connectionProfiles?connectionProfileId=one", TABLES)
    again = served.call("POST", f"{V1}/connectionProfiles?connectionProfileId=one", TABLES)
    assert refused(again) == (409, "ALREADY_EXISTS")


@pytest.mark.parametrize("query", ["", "?privateConnectionId=x&validateOnly=true", "?pageSize=10"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_what_is_not_offered_says_so_whatever_is_sent(
    served: Served, method: str, query: str
) -> None:
    answer = served.call(
        method, f"{V1}/privateConnections{query}", {} if method == "POST" else None
    )
    assert refused(answer) == (501, "UNIMPLEMENTED")


@pytest.mark.parametrize(
    "address",
    [
        f"{V1}/streams?trace=token:x&bearer_token=x&pp=1",
        f"{V1}/operations?returnPartialSuccess=false",
        "/v1/projects/p/locations?extraLocationTypes=x",
    ],
)
def test_parameters_that_any_client_may_send_are_taken(served: Served, address: str) -> None:
    assert served.call("GET", address)[0] == 200


@pytest.mark.clause("ST-347", "ST-340", "ST-341")
def test_lists_and_addresses_are_those_of_the_specification(served: Served) -> None:
    assert served.call("GET", f"{V1}/streams") == (
        200,
        {"streams": [], "nextPageToken": "", "unreachable": []},
    )
    assert served.call("GET", f"{V1}:fetchStaticIps") == (200, {"staticIps": []})
    assert served.call("GET", "/v1/projects/p/locations")[1]["locations"][0]["name"] == (
        "projects/p/locations/local"
    )
    served.call("POST", f"{V1}/connectionProfiles?connectionProfileId=times", TABLES)
    found = served.call("GET", f"{V1}/connectionProfiles/times")[1]
    assert found["createTime"].endswith("Z")
    assert found["displayName"] == "tables"
    addresses = served.call("GET", "/v1/openapi.json")[1]["paths"]
    assert {"get", "patch", "delete"} <= addresses[
        "/v1/projects/{project}/locations/{location}/streams/{id}"
    ].keys()


@pytest.mark.clause("ST-339", "ST-343", "ST-344")
def test_an_operation_is_shown_cancelled_and_forgotten(served: Served) -> None:
    made = served.call("POST", f"{V1}/connectionProfiles?connectionProfileId=two", TABLES)[1]
    assert made["response"]["@type"].endswith("datastream.v1.ConnectionProfile")
    assert served.call("GET", f"/v1/{made['name']}") == (200, made)
    assert served.call("POST", f"/v1/{made['name']}:cancel") == (200, {})
    assert made["name"] in {
        one["name"] for one in served.call("GET", f"{V1}/operations?pageSize=1000")[1]["operations"]
    }
    assert served.call("DELETE", f"/v1/{made['name']}") == (200, {})
    assert refused(served.call("GET", f"/v1/{made['name']}")) == (404, "NOT_FOUND")


def ended(served: Served, operation: dict[str, Any]) -> Any:
    """The operation, once it has ended."""

    def looked() -> Any:
        found = served.call("GET", f"/v1/{operation['name']}")[1]
        return found if found["done"] else None

    return wait(looked, 60)


def not_live(kind: str) -> dict[str, Any]:
    return {kind: {"hostname": "h", "username": "u", "password": "p"}}


@pytest.mark.clause("ST-295", "ST-296", "ST-297", "ST-272")
def test_a_source_that_is_not_live_is_kept_and_refused_when_it_starts(served: Served) -> None:
    profile = not_live("mysqlProfile")
    made = served.call("POST", f"{V1}/connectionProfiles?connectionProfileId=mysql", profile)[1]
    (told,) = made["metadata"]["validationResult"]["validations"]
    assert (told["state"], told["code"]) == ("NOT_EXECUTED", "not_offered")
    served.call(
        "POST",
        f"{V1}/connectionProfiles?connectionProfileId=files&force=true",
        {"gcsProfile": {"bucket": "b"}},
    )
    stream = {
        "sourceConfig": {
            "sourceConnectionProfile": f"{PARENT}/connectionProfiles/mysql",
            "mysqlSourceConfig": {"gtid": {}},
        },
        "destinationConfig": {
            "destinationConnectionProfile": f"{PARENT}/connectionProfiles/files",
            "gcsDestinationConfig": {"avroFileFormat": {}},
        },
        "backfillAll": {},
    }
    assert served.call("POST", f"{V1}/streams?streamId=mysql", stream)[1]["done"]
    started = served.call("PATCH", f"{V1}/streams/mysql?updateMask=state", {"state": "RUNNING"})[1]
    assert "not read MySQL" in ended(served, started)["error"]["message"]
    found = served.call("GET", f"{V1}/streams/mysql")[1]
    assert (found["state"], found["errors"][0]["reason"]) == ("NOT_STARTED", "NOT_OFFERED")
    errors = served.call("POST", f"{V1}/streams/mysql:fetchErrors")[1]["errors"]
    operation = served.call("POST", f"/v1alpha1/{PARENT}/streams/mysql:fetchErrors")[1]
    assert errors == operation["response"]["errors"] == found["errors"]
    assert served.call("DELETE", f"{V1}/streams/mysql")[0] == 200


def test_who_has_no_token_learns_nothing(served: Served) -> None:
    wrong = served.call("GET", f"{V1}/streams", token="wrong")
    assert refused(wrong) == (401, "UNAUTHENTICATED")
    assert served.call("GET", "/healthz", token="wrong")[0] == 200
    for _ in range(25):
        last = served.call("GET", "/metrics", token="wrong")
    assert refused(last) == (429, "RESOURCE_EXHAUSTED")
    assert served.call("GET", f"{V1}/streams")[0] == 200  # the right one is always answered


def test_a_forged_host_is_refused(served: Served) -> None:
    assert refused(served.call("GET", f"{V1}/streams", Host="evil.example:80"))[0] == 421


@pytest.mark.full
@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"no json", 400),
        (b"[]", 400),
        (b'{"displayName": NaN}', 400),
        (b"\xff\xfe", 400),
        pytest.param(b"[" * 100_000, 400, id="deep"),
        (b'{"displayName": "\\ud800", "bigqueryProfile": {}}', 400),
        (b'{"displayName": "\\u0000", "bigqueryProfile": {}}', 400),
        (b'{"labels": {"\\ud800": ""}, "bigqueryProfile": {}}', 400),
        pytest.param(b" " * (LARGEST_BODY + 1), 413, id="too large"),
        (b'{"bigqueryProfile": {}, "bigqueryProfile ": 1}', 400),
    ],
)
def test_bodies_that_are_no_profile_are_refused(served: Served, content: bytes, code: int) -> None:
    address = f"{V1}/connectionProfiles?connectionProfileId=hostile"
    assert refused(served.call("POST", address, content))[0] == code


@pytest.mark.parametrize(
    "address",
    [
        "/v1/projects/../locations/l/streams",
        "/v1/projects/p%00/locations/l/streams",
        "/v1/projects/p/locations/l/streams/%2e%2e%2f%2e%2e",
        "/v1/projects/p/locations/l/streams/" + "a" * 5_000,
        f"{V1}/streams?pageSize=abc",
        f"{V1}/streams?pageSize=-1",
        f"{V1}/streams?pageSize=99999999999999999999",
        f"{V1}/streams?pageToken=abc",
        f"{V1}/streams?filter=%22",
        f"{V1}/streams?orderBy=%3b",
        f"{V1}/streams/a:b/objects",
    ],
)
def test_addresses_that_name_nothing_are_refused(served: Served, address: str) -> None:
    assert refused(served.call("GET", address))[0] in (400, 404)


def test_a_slow_client_holds_up_nobody(served: Served) -> None:
    host, _, port = served.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as slow:
        slow.sendall(
            f"POST {V1}/streams HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n"
            f"Authorization: Bearer {served.token}\r\n\r\n{{".encode()
        )
        assert served.call("GET", f"{V1}/streams")[0] == 200


def test_a_path_never_leaves_the_data_folder(served: Served) -> None:
    for number, path in enumerate(("../x", "a/../../x", "/")):
        profile = {"fileSystemProfile": {"rootPath": path}}
        address = f"{V1}/connectionProfiles?connectionProfileId=path{number}"
        made = served.call("POST", address, profile)[1]
        assert ("error" in made) is (path != "/")


@pytest.mark.full
def test_what_the_service_keeps_is_read_by_its_user_only(served: Served) -> None:
    assert stat.S_IMODE(served.folder.stat().st_mode) == 0o700
    for name in ("token", "serve.json"):
        assert stat.S_IMODE((served.folder / name).stat().st_mode) == 0o600


def test_a_second_service_in_one_folder_is_refused(served: Served) -> None:
    from tests.crash.forked import mirrorlake

    done = mirrorlake("serve", "--folder", str(served.folder), "--port", "0")
    assert done.code == 1
    assert "already works in this folder" in done.error


@pytest.mark.parametrize("content", [bytes(43), b"\xff\xfe"])
def test_a_damaged_token_is_named(tmp_path: Path, content: bytes) -> None:
    from tests.crash.forked import mirrorlake

    (tmp_path / "token").write_bytes(content)
    done = mirrorlake("serve", "--folder", str(tmp_path), "--port", "0")
    assert done.code == 2
    assert "the token of the service is damaged" in done.error
    assert (tmp_path / "token").read_bytes() == content


def test_an_address_for_others_needs_a_token_and_tls(tmp_path: Path) -> None:
    from tests.crash.forked import mirrorlake

    done = mirrorlake("serve", "--folder", str(tmp_path / "a"), "--host", "0.0.0.0")
    assert done.code == 2
    assert "--tls-certificate" in done.error
    assert not (tmp_path / "a").exists()


def test_metrics_are_text_that_prometheus_reads(served: Served) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    code, content = served.call("GET", "/metrics")
    assert code == 200
    names = {one.name for one in text_string_to_metric_families(content.decode())}
    assert {
        "mirrorlake_stream_event_count",
        "mirrorlake_stream_bytes_count",
        "mirrorlake_object_event_count",
        "mirrorlake_object_last_event_age_seconds",
        "mirrorlake_stream_slot_lag_bytes",
    } <= names
    assert json.loads(json.dumps(served.call("GET", "/readyz")[1])) == {"status": "ok"}


@pytest.mark.full
@pytest.mark.clause("ST-300", "ST-276")
def test_a_run_without_validation_starts_and_waits_for_a_source_that_is_away(
    served: Served,
) -> None:
    away = {"hostname": "127.0.0.1", "port": 9, "username": "u", "database": "d"}
    for name, kind in (("away", {"postgresqlProfile": away}), ("lake", {"bigqueryProfile": {}})):
        served.call("POST", f"{V1}/connectionProfiles?connectionProfileId={name}&force=true", kind)
    config = {"replicationSlot": "s", "publication": "s"}
    stream = {
        "sourceConfig": {
            "sourceConnectionProfile": f"{PARENT}/connectionProfiles/away",
            "postgresqlSourceConfig": config,
        },
        "destinationConfig": {
            "destinationConnectionProfile": f"{PARENT}/connectionProfiles/lake",
            "bigqueryDestinationConfig": {"merge": {}},
        },
        "backfillAll": {},
    }
    served.call("POST", f"{V1}/streams?streamId=away&force=true", stream)
    refused = ended(served, served.call("POST", f"{V1}/streams/away:run", {})[1])
    assert "error" in refused
    assert served.call("GET", f"{V1}/streams/away")[1]["state"] == "NOT_STARTED"
    forced = ended(served, served.call("POST", f"{V1}/streams/away:run", {"force": True})[1])
    assert forced["response"]["state"] == "RUNNING"
    wait(lambda: served.call("GET", f"{V1}/streams/away")[1]["state"] == "FAILED", 60)
    served.call("DELETE", f"{V1}/streams/away")
