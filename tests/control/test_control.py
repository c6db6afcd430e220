"""Profiles and streams in a database: made, changed, validated and removed."""

from __future__ import annotations

import json
import stat
import threading
import uuid
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.control.control import Control
from mirrorlake.control.names import ResourceKind, ResourceName
from mirrorlake.control.reports import Validation
from mirrorlake.control.requests import Asked
from mirrorlake.control.secrets import SecretFile
from mirrorlake.control.states import ValidationState
from mirrorlake.control.store.database import Database as Resources
from mirrorlake.errors import (
    IllegalMove,
    InvalidRequest,
    ResourceExists,
    ResourceNotFound,
)
from mirrorlake.model.clock import WallClock
from tests.control.resources import (
    PARENT,
    POSTGRES,
    SECRET,
    SHOP,
    STREAM,
    Scripted,
    profile,
)


@pytest.mark.clause("ST-314", "ST-317", "ST-324", "ST-343", "ST-344")
def test_a_profile_is_made_once_and_never_shows_its_secret(
    control: Control, tmp_path: Path
) -> None:
    operation = control.profiles.create(PARENT, "source", POSTGRES, Asked())
    assert operation["done"]
    assert operation["metadata"]["verb"] == "create"
    assert operation["metadata"]["target"] == f"{PARENT}/connectionProfiles/source"
    assert operation["response"]["postgresqlProfile"]["port"] == 5432
    found = control.get(profile("source"))
    assert found["name"] == f"{PARENT}/connectionProfiles/source"
    assert found["createTime"]
    assert SECRET not in json.dumps([found, operation, control.page(ResourceKind.PROFILE, PARENT)])
    assert control.profiles.of(found["name"])[1] == {"postgresqlProfile.password": SECRET}
    holding = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path.name for path in holding if SECRET.encode() in path.read_bytes()] == [
        "secrets.json"
    ]
    assert stat.S_IMODE((tmp_path / "secrets.json").stat().st_mode) == 0o600
    with pytest.raises(ResourceExists):
        control.profiles.create(PARENT, "source", POSTGRES, Asked())


@pytest.mark.parametrize(
    ("sent", "mask"),
    [
        ({"hostname": "evil"}, "postgresqlProfile.hostname"),
        ({"hostname": "evil"}, "postgresql_profile.hostname"),
        ({"hostname": "evil", "username": "u", "database": "shop"}, ""),
    ],
)
def test_a_stored_secret_is_not_sent_to_another_host(
    control: Control, sent: dict[str, str], mask: str
) -> None:
    control.profiles.create(PARENT, "source", POSTGRES, Asked())
    name = profile("source")
    with pytest.raises(InvalidRequest, match="another host"):
        control.profiles.update(name, {"postgresqlProfile": sent}, mask, Asked(force=True))
    assert control.profiles.of(str(name))[0].postgresql_profile.hostname == "db"  # type: ignore[union-attr]
    again = {"postgresqlProfile": {**sent, "password": "new"}}
    both = f"{mask},postgresqlProfile.password" if mask else ""
    control.profiles.update(name, again, both, Asked())
    assert control.profiles.of(str(name))[1] == {"postgresqlProfile.password": "new"}
    cleared = {"postgresqlProfile": {"hostname": "other", "port": 6}}
    paths = "postgresqlProfile.hostname,postgresqlProfile.port,postgresqlProfile.password"
    control.profiles.update(name, cleared, paths, Asked())
    assert control.profiles.of(str(name))[1] == {}


KINDS = {
    "oracleProfile": {"hostname": "h", "username": "u", "password": "p", "databaseService": "s"},
    "mysqlProfile": {"hostname": "h", "username": "u", "sslConfig": {"clientKey": "k"}},
    "sqlServerProfile": {"hostname": "h", "username": "u", "password": "p", "database": "d"},
    "salesforceProfile": {
        "domain": "d",
        "userCredentials": {"username": "u", "password": "p", "securityToken": "t"},
    },
    "mongodbProfile": {
        "hostAddresses": [{"hostname": "h", "port": 1}],
        "username": "u",
        "standardConnectionFormat": {"directConnection": True},
    },
    "gcsProfile": {"bucket": "b", "rootPath": "/r"},
    "bigqueryProfile": {},
    "fileSystemProfile": {"rootPath": "r"},
}


@pytest.mark.clause("ST-315", "ST-316", "ST-318", "ST-319", "ST-320", "ST-321", "ST-322", "ST-325")
@pytest.mark.parametrize("kind", KINDS)
def test_profiles_of_every_kind_are_kept(kind: str, tmp_path: Path, validator: Scripted) -> None:
    database = Resources(f"sqlite:///{tmp_path}/streams.sqlite")
    control = Control(database, SecretFile(tmp_path), validator, WallClock())
    control.profiles.create(PARENT, "one", {kind: KINDS[kind]}, Asked())
    found = control.get(profile("one"))
    assert kind in found
    secret = {"password", "clientKey", "securityToken"}
    assert secret.isdisjoint(found[kind])
    ports = {"oracleProfile": 1521, "mysqlProfile": 3306, "sqlServerProfile": 1433}
    assert found[kind].get("port") == ports.get(kind)
    if kind == "mysqlProfile":
        assert found[kind]["sslConfig"] == {"clientKeySet": True}
    database.close()


@pytest.mark.clause("ST-314", "ST-323")
@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"gcsProfile": {"bucket": "b"}, "bigqueryProfile": {}},
        {"bigqueryProfile": {}, "staticServiceIpConnectivity": {}, "privateConnectivity": {}},
        {
            "bigqueryProfile": {},
            "forwardSshConnectivity": {
                "hostname": "h",
                "username": "u",
                "password": "p",
                "privateKey": "k",
            },
        },
        {"mysqlProfile": {"hostname": "h", "username": "u", "port": 0}},
        {"mysqlProfile": {"hostname": "h\x00", "username": "u"}},
        {"mysqlProfile": {"hostname": "\ud800", "username": "u"}},
        {"mysqlProfile": {"hostname": "h", "username": "u", "none": 1}},
        {
            "mysqlProfile": {
                "hostname": "h",
                "username": "u",
                "secretManagerStoredPassword": "env:HOME",
            }
        },
        {"bigqueryProfile": {}, "labels": {"a": 1}},
        {"bigqueryProfile": {}, "displayName": "x" * 5_000},
        [],
    ],
)
def test_what_is_no_profile_is_refused_without_repeating_it(control: Control, wrong: Any) -> None:
    with pytest.raises(InvalidRequest) as refused:
        control.profiles.create(PARENT, "one", wrong, Asked())
    assert refused.value.hint
    assert len(str(refused.value)) < 1_000


@pytest.mark.clause("ST-346", "ST-324")
def test_an_update_keeps_the_secret_unless_its_field_is_named(control: Control) -> None:
    control.profiles.create(PARENT, "source", POSTGRES, Asked())
    name = profile("source")
    sent = {"displayName": "new", "postgresqlProfile": {"port": 5433}}
    control.profiles.update(name, sent, "postgresqlProfile.port", Asked())
    found, secrets = control.profiles.of(str(name))
    assert (found.display_name, found.postgresql_profile and found.postgresql_profile.port) == (
        "shop",
        5433,
    )
    assert secrets == {"postgresqlProfile.password": SECRET}
    control.profiles.update(name, control.get(name), "", Asked())
    assert control.profiles.of(str(name))[1] == {"postgresqlProfile.password": SECRET}
    other = {"postgresqlProfile": {"password": "other"}}
    control.profiles.update(name, other, "postgresqlProfile.password", Asked())
    assert control.profiles.of(str(name))[1] == {"postgresqlProfile.password": "other"}
    control.profiles.update(name, {}, "postgresqlProfile.password", Asked())
    assert control.profiles.of(str(name))[1] == {}
    control.profiles.update(name, {"gcsProfile": {"bucket": "b"}}, "", Asked())
    assert "postgresqlProfile" not in control.get(name)


@pytest.mark.clause("ST-324")
def test_a_password_is_stored_or_referenced_and_not_both(control: Control) -> None:
    reference = {"secretManagerStoredPassword": "env:MIRRORLAKE_SECRET_SHOP"}
    both = {**POSTGRES, "postgresqlProfile": {**POSTGRES["postgresqlProfile"], **reference}}
    with pytest.raises(InvalidRequest, match="only one of password and secretManagerStored"):
        control.profiles.create(PARENT, "source", both, Asked())
    control.profiles.create(PARENT, "source", POSTGRES, Asked())
    name = profile("source")
    field = "postgresqlProfile.secretManagerStoredPassword"
    control.profiles.update(name, {"postgresqlProfile": reference}, field, Asked())
    assert control.profiles.of(str(name))[1] == {}
    password = {"postgresqlProfile": {"password": SECRET}}
    with pytest.raises(InvalidRequest, match="names secretManagerStoredPassword in updateMask"):
        control.profiles.update(name, password, "postgresqlProfile.password", Asked())
    control.profiles.update(name, password, f"postgresqlProfile.password,{field}", Asked())
    found, secrets = control.profiles.of(str(name))
    assert found.postgresql_profile
    assert found.postgresql_profile.secret_manager_stored_password is None
    assert secrets == {"postgresqlProfile.password": SECRET}


@pytest.mark.clause("ST-345")
def test_a_repeated_request_is_done_once(control: Control, validator: Scripted) -> None:
    asked = Asked(str(uuid.uuid4()))
    first = control.profiles.create(PARENT, "source", POSTGRES, asked)
    assert control.profiles.create(PARENT, "source", POSTGRES, asked) == first
    assert validator.asked == 1
    with pytest.raises(InvalidRequest):
        control.profiles.create(PARENT, "other", POSTGRES, asked)
    for wrong in (str(uuid.UUID(int=0)), "x", "0" * 40):
        with pytest.raises(InvalidRequest):
            control.profiles.create(PARENT, "other", POSTGRES, Asked(wrong))
    removal = Asked(str(uuid.uuid4()))
    gone = control.profiles.delete(profile("source"), removal)
    assert control.profiles.delete(profile("source"), removal) == gone
    with pytest.raises(ResourceNotFound):
        control.profiles.delete(profile("source"), Asked())


@pytest.mark.clause("ST-345")
def test_many_threads_make_one_resource(ready: Control) -> None:
    asked, found = Asked(str(uuid.uuid4())), []

    def make() -> None:
        found.append(ready.streams.create(PARENT, "shop", STREAM, asked)["name"])

    threads = [threading.Thread(target=make) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(found) == 8
    assert len(set(found)) == 1


@pytest.mark.clause("ST-300", "ST-299")
def test_validation_refuses_is_asked_for_alone_and_is_left_out(
    ready: Control, validator: Scripted
) -> None:
    remedy = "Set wal_level to logical."
    validator.found = [
        Validation("wal_level", "wal_level", ValidationState.FAILED, "it is replica", remedy)
    ]
    refused = ready.streams.create(PARENT, "shop", STREAM, Asked())
    assert refused["error"]["code"] == 9
    (told,) = refused["metadata"]["validationResult"]["validations"]
    assert told["state"] == "FAILED"
    assert told["message"][0]["level"] == "ERROR"
    assert remedy in told["message"][0]["message"]
    with pytest.raises(ResourceNotFound):
        ready.get(SHOP)
    validator.found = []
    only = ready.streams.create(PARENT, "shop", STREAM, Asked(validate_only=True))
    assert only["response"]["name"] == str(SHOP)
    with pytest.raises(ResourceNotFound):
        ready.get(SHOP)
    before = validator.asked
    ready.streams.create(PARENT, "shop", STREAM, Asked(force=True))
    assert validator.asked == before
    changed = {**STREAM, "displayName": "new"}
    ready.streams.update(SHOP, changed, "displayName", Asked(validate_only=True))
    assert ready.get(SHOP)["displayName"] == "shop"


@pytest.mark.clause("ST-264", "ST-265", "ST-266", "ST-270", "ST-340")
def test_a_stream_is_made_shown_changed_and_removed(ready: Control) -> None:
    made = ready.streams.create(PARENT, "shop", STREAM, Asked())["response"]
    assert made["state"] == "NOT_STARTED"
    found = ready.get(SHOP)
    assert found["sourceConfig"]["sourceConnectionProfile"] == f"{PARENT}/connectionProfiles/source"
    assert found["destinationConfig"] == STREAM["destinationConfig"]
    update = {"labels": {"a": "b"}, "displayName": "ignored"}
    ready.streams.update(SHOP, update, "labels", Asked())
    assert ready.get(SHOP)["labels"] == {"a": "b"}
    assert ready.get(SHOP)["displayName"] == "shop"
    slot = {"sourceConfig": {"postgresqlSourceConfig": {"replicationSlot": "other"}}}
    with pytest.raises(InvalidRequest, match="replicationSlot"):
        ready.streams.update(
            SHOP, slot, "sourceConfig.postgresqlSourceConfig.replicationSlot", Asked()
        )
    with pytest.raises(IllegalMove, match="used by"):
        ready.profiles.delete(profile("source"), Asked())
    operation = ready.streams.delete(SHOP, Asked())
    assert not operation["done"]
    with pytest.raises(ResourceNotFound):
        ready.get(SHOP)
    assert ready.page(ResourceKind.STREAM, PARENT) == ([], "")
    with pytest.raises(ResourceExists, match="being deleted"):
        ready.streams.create(PARENT, "shop", STREAM, Asked())
    ready.supervision.removed(SHOP)
    assert ready.get(ResourceName.parse(operation["name"]))["done"]
    ready.streams.create(PARENT, "shop", STREAM, Asked())


@pytest.mark.clause("ST-281", "ST-282", "ST-328", "ST-330")
@pytest.mark.parametrize(
    "wrong",
    [
        {"state": "PAUSED"},
        {"state": 8},
        {"state": "NOTHING"},
        {"backfillAll": None},
        {"backfillNone": {}},
        {"backfillAll": {"mysqlExcludedObjects": {"mysqlDatabases": [{"database": "d"}]}}},
        {"sourceConfig": None},
        {"sourceConfig": {"sourceConnectionProfile": f"{PARENT}/connectionProfiles/source"}},
        {
            "sourceConfig": {
                "sourceConnectionProfile": f"{PARENT}/connectionProfiles/source",
                "postgresqlSourceConfig": {"publication": "p"},
            }
        },
        {
            "sourceConfig": {
                "sourceConnectionProfile": f"{PARENT}/connectionProfiles/source",
                "mysqlSourceConfig": {},
            }
        },
        {
            "sourceConfig": {
                "sourceConnectionProfile": f"{PARENT}/connectionProfiles/source",
                "salesforceSourceConfig": {"pollingInterval": "60s"},
            }
        },
    ],
)
def test_what_is_no_stream_is_refused(ready: Control, wrong: dict[str, Any]) -> None:
    sent = {k: v for k, v in {**STREAM, **wrong}.items() if v is not None}
    with pytest.raises(InvalidRequest):
        ready.streams.create(PARENT, "shop", sent, Asked())
