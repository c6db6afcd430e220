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
    with pytest.raises(OperatorError, match="does not read MySQL"):
        run(served, "streams", "start", "shop")
    with pytest.raises(UsageError, match="NOT_STARTED cannot become PAUSED"):
        run(served, "streams", "pause", "shop")
    assert "NOT_OFFERED" in run(served, "errors", "shop", code=1)
    assert json.loads(run(served, "objects", "shop", "--json")) == []
    with pytest.raises(UsageError, match="has no object"):
        run(served, "objects", "shop", "backfill", "shop.orders")
    with pytest.raises(UsageError, match="belong to a backfill"):
        run(served, "objects", "shop", "--max-rows-per-second", "5")
    with pytest.raises(OperatorError, match="does not discover MySQL"):
        run(served, "profiles", "discover", "source")
    with pytest.raises(UsageError, match="used by"):
        run(served, "profiles", "delete", "source")
    assert "deleted" in run(served, "streams", "delete", "shop")
    run(served, "profiles", "delete", "source")
    with pytest.raises(UsageError, match="there is no"):
        run(served, "streams", "show", "shop")


def test_a_service_that_does_not_run_is_named(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["streams", "--folder", str(tmp_path)])
    assert isinstance(done.exception, Unavailable)
    assert "mirrorlake serve" in str(done.exception)
