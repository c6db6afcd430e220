"""Profiles and streams in a database: made, changed, moved, listed and removed."""

from __future__ import annotations

import json
import stat
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.control.control import Control
from mirrorlake.control.names import ResourceKind, ResourceName
from mirrorlake.control.reports import Validation, error_document
from mirrorlake.control.requests import Asked
from mirrorlake.control.secrets import SecretFile
from mirrorlake.control.states import StreamMove, ValidationState
from mirrorlake.control.store.database import Database as Resources
from mirrorlake.control.streams import ANEW, RECOVER
from mirrorlake.errors import (
    IllegalMove,
    InvalidRequest,
    ResourceExists,
    ResourceNotFound,
    StorageUnavailable,
    UsageError,
)
from mirrorlake.model.clock import WallClock
from tests.conftest import Database

PARENT = "projects/p/locations/l"
SECRET = "s3cret-of-shop"
POSTGRES = {
    "displayName": "shop",
    "labels": {"team": "data"},
    "postgresqlProfile": {
        "hostname": "db",
        "username": "u",
        "password": SECRET,
        "database": "shop",
    },
    "staticServiceIpConnectivity": {},
}
STREAM: dict[str, Any] = {
    "displayName": "shop",
    "sourceConfig": {
        "sourceConnectionProfile": f"{PARENT}/connectionProfiles/source",
        "postgresqlSourceConfig": {"replicationSlot": "slot", "publication": "pub"},
    },
    "destinationConfig": {
        "destinationConnectionProfile": f"{PARENT}/connectionProfiles/tables",
        "bigqueryDestinationConfig": {"merge": {}},
    },
    "backfillAll": {},
}


class Scripted:
    """Says what a test lets it say."""

    def __init__(self) -> None:
        self.found: Sequence[Validation] = ()
        self.asked = 0

    def profile(self, profile: Any, secrets: Mapping[str, str], /) -> Sequence[Validation]:
        self.asked += 1
        return self.found

    def stream(self, name: Any, stream: Any, /) -> Sequence[Validation]:
        self.asked += 1
        return self.found


@pytest.fixture
def validator() -> Scripted:
    return Scripted()


Opening = Callable[[], Control]


@pytest.fixture(
    params=["sqlite", pytest.param("postgresql", marks=[pytest.mark.postgres, pytest.mark.full])]
)
def open_control(
    request: pytest.FixtureRequest, tmp_path: Path, validator: Scripted
) -> Iterator[Opening]:
    """Opens the control of one database, again and again."""
    url = f"sqlite:///{tmp_path}/streams.sqlite"
    if request.param == "postgresql":
        database: Database = request.getfixturevalue("database")
        url = database.url.replace("postgresql://", "postgresql+psycopg://")
    opened: list[Resources] = []

    def opening() -> Control:
        opened.append(Resources(url))
        return Control(opened[-1], SecretFile(tmp_path), validator, WallClock())

    yield opening
    for one in opened:
        one.close()


@pytest.fixture
def control(open_control: Opening) -> Control:
    return open_control()


@pytest.fixture
def ready(control: Control) -> Control:
    """With the profiles of a stream."""
    control.profiles.create(PARENT, "source", POSTGRES, Asked())
    control.profiles.create(PARENT, "tables", {"bigqueryProfile": {}}, Asked())
    return control


def profile(identifier: str) -> ResourceName:
    return ResourceName(PARENT, ResourceKind.PROFILE, identifier)


SHOP = ResourceName(PARENT, ResourceKind.STREAM, "shop")


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


@pytest.mark.clause("ST-280", "ST-272", "ST-273", "ST-278")
def test_a_stream_is_started_and_paused_by_its_state(ready: Control) -> None:
    ready.streams.create(PARENT, "shop", STREAM, Asked())

    def ask(state: Any) -> Any:
        return ready.streams.update(SHOP, {"state": state}, "state", Asked())

    def state() -> str:
        return str(ready.get(SHOP)["state"])

    with pytest.raises(IllegalMove, match="NOT_STARTED cannot become PAUSED"):
        ask("PAUSED")
    starting = ask("RUNNING")
    assert (starting["done"], state()) == (False, "STARTING")
    error = error_document("wal_level", "it is replica", WallClock().now())
    ready.supervision.observe(SHOP, StreamMove.INVALID, [error])
    assert state() == "NOT_STARTED"
    assert ready.get(ResourceName.parse(starting["name"]))["error"]["message"] == "it is replica"
    assert ready.errors(SHOP) == [error]
    starting = ask(2)
    ready.supervision.observe(SHOP, StreamMove.VALID)
    done = ready.get(ResourceName.parse(starting["name"]))
    assert (done["done"], done["response"]["state"], state()) == (True, "RUNNING", "RUNNING")
    assert ready.errors(SHOP) == []
    ready.supervision.observe(SHOP, StreamMove.DRAINED)  # too late, and left out
    assert state() == "RUNNING"
    ask(3)
    assert state() == "DRAINING"
    ready.streams.update(SHOP, {"displayName": "x"}, "displayName", Asked())
    assert state() == "DRAINING"
    ready.supervision.observe(SHOP, StreamMove.DRAINED)
    assert state() == "PAUSED"
    ask("RUNNING")
    ready.supervision.observe(SHOP, StreamMove.LOSE)
    assert state() == "FAILED_PERMANENTLY"
    with pytest.raises(IllegalMove):
        ask("RUNNING")


@pytest.mark.clause("ST-335", "ST-336", "ST-337", "ST-277")
def test_a_run_recovers_what_failed_permanently(ready: Control) -> None:
    ready.streams.create(PARENT, "shop", {**STREAM, "state": "RUNNING"}, Asked())
    ready.supervision.observe(SHOP, StreamMove.VALID)
    with pytest.raises(IllegalMove):
        ready.streams.run(SHOP, {}, Asked())
    ready.supervision.observe(SHOP, StreamMove.LOSE)
    position = {"specificStartPosition": {"mysqlLogPosition": {"logFile": "f"}}}
    with pytest.raises(InvalidRequest, match="cannot be started at a position"):
        ready.streams.run(SHOP, {"cdcStrategy": position}, Asked())
    two = {"mostRecentStartPosition": {}, "nextAvailableStartPosition": {}}
    with pytest.raises(InvalidRequest):
        ready.streams.run(SHOP, {"cdcStrategy": two}, Asked())
    ready.streams.run(SHOP, {"cdcStrategy": {"mostRecentStartPosition": {}}}, Asked())
    assert ready.get(SHOP)["state"] == "STARTING"
    assert ready.get(SHOP)["lastRecoveryTime"]
    assert ready.supervision.recovery(SHOP) == RECOVER
    ready.supervision.observe(SHOP, StreamMove.VALID)
    assert ready.supervision.recovery(SHOP) == ""


def test_a_run_of_a_new_stream_may_replace_what_an_earlier_one_left(ready: Control) -> None:
    ready.streams.create(PARENT, "shop", STREAM, Asked())
    ready.streams.run(SHOP, {}, Asked())
    assert ready.supervision.recovery(SHOP) == ANEW
    assert "lastRecoveryTime" not in ready.get(SHOP)
    ready.supervision.observe(SHOP, StreamMove.INVALID)
    assert ready.supervision.recovery(SHOP) == ANEW
    ready.streams.run(SHOP, {}, Asked())
    ready.supervision.observe(SHOP, StreamMove.VALID)
    assert ready.supervision.recovery(SHOP) == ""


@pytest.mark.clause("ST-301")
def test_the_activity_log_tells_changes_of_state(ready: Control) -> None:
    ready.streams.create(PARENT, "shop", {**STREAM, "state": 2}, Asked())
    entries = ready.activity(SHOP)
    assert [one["eventCode"] for one in entries] == ["STREAM_CREATED", "STREAM_STATE_CHANGED"]
    assert entries[1]["streamStateChange"] == {"newState": "STARTING"}
    assert entries[1]["eventMessage"]


@pytest.mark.clause("ST-342")
def test_lists_come_in_pages(ready: Control) -> None:
    for number in range(7):
        sent = {**STREAM, "labels": {"odd": str(number % 2)}}
        ready.streams.create(PARENT, f"s{number}", sent, Asked())
    seen, token = [], ""
    while True:
        page, token = ready.page(
            ResourceKind.STREAM, PARENT, size=3, token=token, where="labels.odd=0"
        )
        seen += [one["name"].rpartition("/")[2] for one in page]
        if not token:
            break
    assert seen == ["s0", "s2", "s4", "s6"]
    page, token = ready.page(ResourceKind.PROFILE, PARENT, size=1)
    assert (len(page), bool(token)) == (1, True)
    assert ready.page(ResourceKind.STREAM, "projects/p/locations/other") == ([], "")


@pytest.mark.clause("ST-283", "ST-341")
def test_objects_keep_their_names_and_are_looked_up(ready: Control) -> None:
    ready.streams.create(PARENT, "shop", STREAM, Asked())
    identifier = {"postgresqlIdentifier": {"schema": "s", "table": "t"}}
    one = {
        "displayName": "s.t",
        "sourceObject": identifier,
        "errors": [],
        "backfillJob": {"state": "ACTIVE", "trigger": "AUTOMATIC", "errors": []},
    }
    ready.supervision.observe_objects(SHOP, lambda _old, _now: [one])
    (first,), _token = ready.page(ResourceKind.OBJECT, str(SHOP))
    assert first["backfillJob"]["lastStartTime"]
    done = {**one, "backfillJob": {**one["backfillJob"], "state": "COMPLETED"}}  # type: ignore[dict-item]
    ready.supervision.observe_objects(SHOP, lambda _old, _now: [done])
    found = ready.lookup(SHOP, identifier)
    assert (found["name"], found["createTime"]) == (first["name"], first["createTime"])
    assert found["backfillJob"]["lastEndTime"]
    ready.supervision.observe_objects(SHOP, lambda _old, _now: [])
    with pytest.raises(ResourceNotFound):
        ready.lookup(SHOP, identifier)


def test_only_what_is_written_counts_as_a_change(ready: Control) -> None:
    before = ready.supervision.changes
    ready.get(ResourceName.parse(f"{PARENT}/connectionProfiles/source"))
    ready.supervision.supervised()
    with pytest.raises(ResourceNotFound):
        ready.streams.run(SHOP, {}, Asked())
    assert ready.supervision.changes == before
    ready.streams.create(PARENT, "shop", STREAM, Asked())
    assert ready.supervision.changes > before


def test_everything_is_there_after_a_restart(ready: Control, open_control: Opening) -> None:
    ready.streams.create(PARENT, "shop", {**STREAM, "state": 2}, Asked())
    again = open_control()
    assert again.get(SHOP) == ready.get(SHOP)
    assert again.profiles.of(f"{PARENT}/connectionProfiles/source")[1]


def test_a_damaged_database_and_a_wrong_url_are_told_without_the_password(tmp_path: Path) -> None:
    (tmp_path / "streams.sqlite").write_bytes(b"no database" * 1_000)
    with pytest.raises(StorageUnavailable):
        Resources(f"sqlite:///{tmp_path}/streams.sqlite")
    for wrong in ("nothing", f"none://u:{SECRET}@h/d"):
        with pytest.raises(UsageError) as refused:
            Resources(wrong)
        assert SECRET not in str(refused.value)
        assert refused.value.__cause__ is None or SECRET not in str(refused.value.__cause__)
