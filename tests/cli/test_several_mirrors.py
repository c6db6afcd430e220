"""Several mirrors of one project file, side by side."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from mirrorlake import config
from mirrorlake.app.running.several import SeveralMirrors
from mirrorlake.errors import MirrorlakeError
from tests.apply.events.drawn_files import rows_of
from tests.cli.conftest import Run
from tests.conftest import Database
from tests.server.service import wait

pytestmark = pytest.mark.postgres

FILE = """
mirrors:
  - name: {name}-events
    root: ./state
    source: {{type: postgresql, url: "{url}", tables: ["public.*"]}}
    destination: {{type: events, url: ./events, rotation_seconds: 0.2}}
  - name: lake
    root: ./lake
    source: {{type: events, url: ./events, poll_seconds: 0.2}}
  - name: away
    root: ./away
    source: {{type: postgresql, url: "postgresql://nobody@127.0.0.1:1/x"}}
"""


@pytest.fixture
def file(tmp_path: Path, database: Database) -> Path:
    """Event files of a database, tables of these, and a database that is not there."""
    database.execute(
        "create table orders (id bigint primary key)", "insert into orders values (1), (2)"
    )
    path = tmp_path / "mirrorlake.yaml"
    path.write_text(FILE.format(name=database.name, url=database.url))
    return path


def keys(folder: Path) -> list[int]:
    table = folder / "lake/Tables/public/orders"
    return sorted(row["id"] for row in rows_of(table)) if table.exists() else []


def test_once_runs_each_and_ends_with_what_went_wrong(run: Run, file: Path) -> None:
    done = run("run", "--once")
    assert done.code == 3
    assert "away: PostgreSQL does not answer" in done.error
    assert keys(file.parent) == [1, 2]
    told = run("run", "--once", "--json").facts()["mirrors"]
    assert told["away"]["error"]["code"] == "source_unavailable"
    assert told["lake"]["tables"] == []  # nothing is new
    assert [one["mirror"] for one in run("status", "--json").facts()["mirrors"]] == [*told]
    (table,) = run("status", "--json", "--config", f"{file}#lake").facts()["tables"]
    assert table["applied"]["insert"] == 2


@contextmanager
def running(file: Path) -> Iterator[dict[str, MirrorlakeError]]:
    """All of them run. Yields what was told of each last."""
    stop, told = threading.Event(), {}
    several = SeveralMirrors(config.load_all(file), stop, failed=told.__setitem__)
    thread = threading.Thread(target=several.run)
    thread.start()
    try:
        yield told
    finally:
        stop.set()
        thread.join(30)
        assert not thread.is_alive()


@pytest.mark.full
@pytest.mark.crash
def test_what_dies_comes_back_and_what_is_wrong_with_one_stops_no_other(
    file: Path, database: Database
) -> None:
    before = set(psutil.Process().children())
    with running(file) as told:
        wait(lambda: keys(file.parent) == [1, 2], 120)
        for child in set(psutil.Process().children()) - before:
            if "resource_tracker" not in " ".join(child.cmdline()):
                os.kill(child.pid, signal.SIGKILL)
        database.execute("insert into orders values (3)")
        wait(lambda: keys(file.parent) == [1, 2, 3], 120)
        # A child of this one may have been among the killed.
        wait(lambda: told["away"].code == "source_unavailable", 120)
        assert told[f"{database.name}-events"].code == "internal"
