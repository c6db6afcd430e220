"""The commands that ask a running service."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mirrorlake.cli.main import app
from mirrorlake.errors import OperatorError, Unavailable, UsageError
from tests.server.service import Served

PARENT = "projects/local/locations/local"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    service = Served(tmp_path_factory.mktemp("served") / "service", "--no-apply").start()
    yield service
    service.stop()


def run(served: Served, *arguments: str, code: int = 0) -> str:
    """What a command prints. Raises what it fails with."""
    done = CliRunner().invoke(app, [*arguments, "--folder", str(served.folder)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.output
    return done.output


@pytest.mark.full
def test_a_stream_is_made_started_and_deleted_by_commands(served: Served, tmp_path: Path) -> None:
    def file(name: str, content: Any) -> str:
        path = tmp_path / name
        path.write_text(json.dumps(content))
        return str(path)

    mysql = {"mysqlProfile": {"hostname": "h", "username": "u", "password": "never-shown"}}
    run(served, "profiles", "create", "source", "--file", file("a", mysql))
    run(served, "profiles", "create", "tables", "--file", file("b", {"bigqueryProfile": {}}))
    listed = run(served, "profiles")
    assert "mysqlProfile" in listed
    assert "bigqueryProfile" in listed
    assert "never-shown" not in run(served, "profiles", "show", "source")
    stream = {
        "sourceConfig": {
            "sourceConnectionProfile": f"{PARENT}/connectionProfiles/source",
            "mysqlSourceConfig": {},
        },
        "destinationConfig": {
            "destinationConnectionProfile": f"{PARENT}/connectionProfiles/tables",
            "bigqueryDestinationConfig": {"merge": {}},
        },
        "backfillAll": {},
    }
    run(served, "streams", "create", "shop", "--file", file("c", stream))
    with pytest.raises(UsageError, match="exists already"):
        run(served, "streams", "create", "shop", "--file", file("c", stream))
    assert json.loads(run(served, "streams", "--json"))[0]["state"] == "NOT_STARTED"
    tested = run(
        served, "streams", "create", "other", "--file", file("c", stream), "--validate-only"
    )
    assert "this release does not read MySQL" in tested
    named = file("d", {"displayName": "The shop", "labels": {"a": "b"}})
    run(served, "streams", "update", "shop", "--file", named, "--mask", "displayName")
    shown = json.loads(run(served, "streams", "show", "shop"))
    assert (shown["displayName"], shown["labels"]) == ("The shop", {})
    run(served, "profiles", "update", "source", "--file", file("e", {"displayName": "MySQL"}))
    shown = json.loads(run(served, "profiles", "show", "source"))
    assert (shown["displayName"], shown["mysqlProfile"]["hostname"]) == ("MySQL", "h")
    assert "does not read MySQL" in run(served, "streams", "start", "shop", "--validate-only")
    assert json.loads(run(served, "streams", "--json"))[0]["state"] == "NOT_STARTED"
    with pytest.raises(OperatorError, match="does not read MySQL"):
        run(served, "streams", "start", "shop")
    with pytest.raises(UsageError, match="NOT_STARTED cannot become PAUSED"):
        run(served, "streams", "pause", "shop")
    assert "NOT_OFFERED" in run(served, "errors", "shop", code=1)
    told = [
        one["eventCode"] for one in json.loads(run(served, "streams", "activity", "shop", "--json"))
    ]
    assert told == ["STREAM_CREATED", "STREAM_UPDATED", *["STREAM_STATE_CHANGED"] * 2]
    assert "the stream is STARTING" in run(served, "streams", "activity", "shop")
    assert json.loads(run(served, "objects", "shop", "--json")) == []
    with pytest.raises(UsageError, match="has no object"):
        run(served, "objects", "shop", "backfill", "shop.orders")
    with pytest.raises(UsageError, match="belong to a backfill"):
        run(served, "objects", "shop", "--max-bytes-per-second", "5MiB")
    with pytest.raises(OperatorError, match="does not discover MySQL"):
        run(served, "profiles", "discover", "source")
    with pytest.raises(UsageError, match="used by"):
        run(served, "profiles", "delete", "source")
    assert "deleted" in run(served, "streams", "delete", "shop")
    run(served, "profiles", "delete", "source")
    with pytest.raises(UsageError, match="there is no"):
        run(served, "streams", "show", "shop")


@pytest.mark.parametrize(
    ("command", "refused"),
    [
        ("streams run shop --validate-only", "--validate-only has no effect on run"),
        ("streams delete shop --validate-only", "--validate-only has no effect on delete"),
        ("streams pause shop --force", "--force has no effect on pause"),
        ("streams start shop --file shop.json", "--file has no effect on start"),
        ("streams create shop --mask labels", "--mask has no effect on create"),
        ("streams list shop", "NAME has no effect on list"),
        ("profiles delete shop --validate-only", "--validate-only has no effect on delete"),
        ("profiles show shop --mask labels", "--mask has no effect on show"),
        ("profiles list shop", "NAME has no effect on list"),
        ("objects shop list a.b", "not a.b alone"),
    ],
)
def test_an_option_that_an_action_would_pass_over_is_refused(
    tmp_path: Path, command: str, refused: str
) -> None:
    done = CliRunner().invoke(app, [*command.split(), "--folder", str(tmp_path)])
    assert isinstance(done.exception, UsageError)
    assert refused in str(done.exception)


def test_errors_refuses_an_option_of_the_other_kind(tmp_path: Path) -> None:
    for options in (["shop", "--config", "shop.yaml"], ["--folder", str(tmp_path)]):
        done = CliRunner().invoke(app, ["errors", *options])
        assert isinstance(done.exception, UsageError)
        assert "--config" in str(done.exception)


def test_a_profile_is_deleted_with_its_operation_as_json(served: Served, tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    file.write_text(json.dumps({"bigqueryProfile": {}}))
    made = run(served, "profiles", "create", "there", "--file", str(file), "--json")
    assert json.loads(made)["done"]
    assert json.loads(run(served, "profiles", "delete", "there", "--json"))["done"]


def test_a_key_without_a_certificate_does_not_end_in_plain_http(tmp_path: Path) -> None:
    options = ["--folder", str(tmp_path / "a"), "--tls-key", "key.pem"]
    done = CliRunner().invoke(app, ["serve", *options])
    assert isinstance(done.exception, UsageError)
    assert "plain HTTP" in str(done.exception)


def test_a_service_that_does_not_run_is_named(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["streams", "--folder", str(tmp_path)])
    assert isinstance(done.exception, Unavailable)
    assert "mirrorlake serve" in str(done.exception)


def test_no_proxy_is_sent_the_token(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # nobody listens there
    run(served, "streams")


@pytest.mark.full
def test_a_location_that_is_none_is_refused(served: Served) -> None:
    with pytest.raises(UsageError, match="not the name of a resource"):
        run(served, "streams", "--location", "projects/a b/locations/c")
