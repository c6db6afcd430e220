"""Tables whose updates and deletions are not captured: who looks is told."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.cli.conftest import Done, Run
from tests.conformance.scene import PATIENCE
from tests.conftest import Database

pytestmark = pytest.mark.postgres


@pytest.fixture(autouse=True)
def visits(shop: Database) -> None:
    shop.execute("create table visits (page text)", "insert into visits values ('a'), ('b')")


def of_visits(status: Done) -> dict[str, Any]:
    (found,) = [t for t in status.facts()["tables"] if t["table"] == "public.visits"]
    return dict(found)


def change(shop: Database, *statements: str) -> None:
    """In a session of its own, at whose end PostgreSQL counts what it did."""
    with psycopg.connect(shop.url) as connection:
        for statement in statements:
            connection.execute(statement)


def captured_until(run: Run, member: str) -> dict[str, Any]:
    """Until the status has something to say: PostgreSQL counts a little late."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        run("capture", "--once")
        found = of_visits(run("status", "--json"))
        if found[member]:
            return found
        time.sleep(0.2)
    raise AssertionError("it was never seen")


def test_the_reason_is_shown(run: Run, shop: Database) -> None:
    run("capture", "--once")
    found = of_visits(run("status", "--json"))
    assert found["append_only"] == "it has no primary key"
    assert "append-only, because it has no primary key" in run("status").out


def test_a_table_differs_when_its_rows_were_updated_in_the_source(run: Run, shop: Database) -> None:
    shop.execute("vacuum analyze visits")
    run("capture", "--once")
    change(shop, "insert into visits values ('c')", "update visits set page = 'z'")
    change(shop, "delete from visits where ctid = (select min(ctid) from visits)")
    found = captured_until(run, "differs")
    assert (found["state"], found["error"]) == ("Snapshotting", None)
    assert found["differs"]["updates"] + found["differs"]["deletes"] > 0
    shown = run("status")
    assert shown.code == 1
    assert ", differs" in shown.out
    assert "public.visits: append-only and different since" in shown.out


@pytest.mark.full
def test_reset_begins_anew(run: Run, shop: Database) -> None:
    run("capture", "--once")
    change(shop, "delete from visits")
    captured_until(run, "differs")
    shop.execute("alter table visits replica identity full")
    assert run("reset", "public.visits", "--yes").code == 0
    assert run("capture", "--once").code == 0
    found = of_visits(run("status", "--json"))
    assert (found["append_only"], found["differs"], found["error"]) == (None, None, None)
    (described,) = [
        t for t in run("discover", "--json").facts()["tables"] if t["table"] == "public.visits"
    ]
    assert (described["whole_rows"], described["append_only"]) == (True, None)


def test_a_project_may_want_it_to_stop(run: Run, shop: Database, tmp_path: Path) -> None:
    file = tmp_path / "mirrorlake.yaml"
    file.write_text(f"{file.read_text()}\nmirror: {{uncaptured_changes: stop}}\n")
    run("capture", "--once")
    change(shop, "update visits set page = 'z'")
    found = captured_until(run, "error")
    assert (found["state"], found["error"]["code"]) == ("Failed", "uncaptured_changes")
    assert "mirrorlake reset public.visits" in found["error"]["hint"]
    others = {t["table"]: t["error"] for t in run("status", "--json").facts()["tables"]}
    assert {name for name, error in others.items() if error} == {"public.visits"}


@pytest.mark.full
def test_status_tells_a_change_of_the_schema_that_changes_no_row(run: Run, shop: Database) -> None:
    run("capture", "--once")
    shop.execute("alter table orders add constraint few check (id < 1000000)")
    run("capture", "--once")
    found = {table["table"]: table for table in run("status", "--json").facts()["tables"]}
    (seen,) = found["public.orders"]["without_effect"]
    assert seen["change"] == "constraint few was added"
    assert found["public.log"]["without_effect"] == []
    said = " ".join(run("status").out.split())
    assert (
        "public.orders: constraint few was added in the source; no row of the mirror changes"
        in said
    )
    run("reset", "public.orders", "--yes")
    run("capture", "--once")
    assert "constraint few" not in run("status").out
