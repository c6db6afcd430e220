"""Commands while settings name columns and tables that are gone, though they were loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.conftest import Database
from tests.profiles import some

NAMED = '"public.*"], columns: {public.orders: ["*", "!status"]}}'


@pytest.fixture
def captured(run: Run, shop: Database, tmp_path: Path) -> Database:
    """The mirror, which leaves out a column."""
    file = tmp_path / "mirrorlake.yaml"
    file.write_text(file.read_text().replace('"public.*"]}', NAMED))
    assert run("capture", "--once").code == 0
    return shop


@pytest.mark.parametrize(
    ("change", "names", "what"),
    [
        ("alter table orders drop status", {"public.log", "public.orders"}, "!status"),
        ("alter table orders rename to sales", {"public.log", "public.sales"}, "public.orders"),
        ("drop table orders", {"public.log"}, "public.orders"),
        ("drop table orders, log", set(), "public.orders"),
    ],
)
def test_discover_shows_what_there_is(
    run: Run, captured: Database, change: str, names: set[str], what: str
) -> None:
    captured.execute(change)
    done = run("discover", "--json")
    assert done.code == 0
    assert {table["table"] for table in done.facts()["tables"]} == names
    assert any(what in finding["message"] for finding in done.facts()["findings"])
    assert what in run("discover").error


def test_check_tells_of_a_table_that_is_published_no_longer(run: Run, captured: Database) -> None:
    captured.execute("alter table orders drop status")
    (name,) = captured.sql.execute(
        "select pubname from pg_publication_tables where tablename = 'orders'"
    ).fetchone() or [""]
    captured.execute(f"alter publication {name} drop table orders")
    found = run("check", "--json").facts()["findings"]
    assert {"selection", "publication"} <= {one["check"] for one in found}


@pytest.mark.parametrize(
    "change",
    some(
        [
            "alter table orders drop status",
            "alter table orders rename to sales",
            "drop table orders",
        ]
    ),
)
def test_another_table_is_repaired(
    run: Run, captured: Database, tmp_path: Path, change: str
) -> None:
    captured.execute("create table pears (id int primary key)", "insert into pears values (1)")
    run("capture", "--once")
    captured.execute(change)
    file = tmp_path / "mirrorlake.yaml"
    selected = file.read_text()
    file.write_text(selected.replace('"public.*"]', '"public.*", "!public.pears"]'))
    run("capture", "--once")
    file.write_text(selected)
    run("capture", "--once")
    captured.execute("insert into pears values (2)")
    done = run("repair", "public.pears", "--yes")
    assert done.code == 0, done.error
    run("capture", "--once")
    found = {one["table"]: one["state"] for one in run("status", "--json").facts()["tables"]}
    assert found["public.pears"] != "Failed"
