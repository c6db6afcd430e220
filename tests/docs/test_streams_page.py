"""What the page on streams shows, run against a service and a database."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, Request, build_opener

import pytest

from mirrorlake.server.metrics import names
from tests.conftest import Database
from tests.delta.readers import rows_by_duckdb
from tests.docs.blocks import blocks, shell
from tests.docs.generate import DOCS
from tests.server.service import Served, wait

PAGE = "how-to/run-streams-by-the-api.md"


@pytest.mark.full
@pytest.mark.postgres
@pytest.mark.spark
@pytest.mark.clause("ST-030", "ST-265", "ST-321", "FD-070")
def test_the_examples_lead_from_nothing_to_two_equal_tables(
    tmp_path: Path, database: Database
) -> None:
    """As a new user in an empty folder: a stream to tables and one to Avro files by the official
    client, both on the page, and both in Delta."""
    database.execute(
        "create schema shop",
        "create table shop.orders (id int primary key, note text)",
        "insert into shop.orders select g, 'loaded' from generate_series(1, 10) g",
    )
    served = Served(tmp_path / "mirrorlake-streams").start()
    try:
        run_program("\n".join(blocks(PAGE, "python")), tmp_path, served, database)
        start, request = blocks(PAGE, "sh")
        assert start == "mirrorlake serve\n"
        for stream in ("orders", "events"):
            show = request.replace("http://127.0.0.1:8765", served.url)
            show = show.replace("streams/orders", f"streams/{stream}")
            wait(lambda show=show: '"state":"RUNNING"' in shell(tmp_path, show), 60)
        database.execute(
            "update shop.orders set note = 'changed' where id <= 3",
            "delete from shop.orders where id = 10",
            "insert into shop.orders values (11, 'added')",
        )
        page = overview(served)
        for stream in ("orders", "events"):
            assert f"/streams/local/local/{stream}" in page
        found = database.sql.execute("select id, note from shop.orders order by id").fetchall()
        tables = served.folder / "data/tables/local/local/orders/Tables/shop/orders"
        wait(lambda: rows_in(tables) == found, 180)
        (project,) = blocks(PAGE, "yaml")
        (tmp_path / "mirrorlake.yaml").write_text(project)

        def applied() -> bool:
            shell(tmp_path, "mirrorlake run --once")
            return rows_in(tmp_path / "event-lake/Tables/shop/orders") == found

        wait(applied, 120)
    finally:
        served.stop()


def run_program(program: str, folder: Path, served: Served, database: Database) -> None:
    """Run what the page shows, on the service and the database that are here."""
    facts = database.sql.info
    for said, here in (
        ("http://127.0.0.1:8765", served.url),
        ("db.example.com", facts.host),
        ("5432", str(facts.port)),
        ('"mirror"', repr(facts.user)),
        ('"secret"', repr(facts.password)),
        ('"database": "shop"', f'"database": "{facts.dbname}"'),
        ('"shop_orders"', f'"slot_{database.name}"'),
        ('"shop_events"', f'"slot_{database.name}_events"'),
    ):
        assert said in program
        program = program.replace(said, here)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr


def overview(served: Served) -> str:
    """The page of all streams, after the login."""
    browser = build_opener(HTTPCookieProcessor())
    sent = urlencode({"token": served.token, "next": "/"}).encode()
    login = Request(f"{served.url}/login", data=sent, headers={"Origin": served.url})
    with browser.open(login, timeout=60) as answer:
        return answer.read().decode()


def rows_in(table: Path) -> list[tuple[int, str]]:
    """The rows of a Delta table by `id`; none where there is no table yet."""
    if not any(table.glob("_delta_log/*.json")):
        return []
    return sorted((row[0], row[1]) for row in rows_by_duckdb(table))


def test_every_metric_is_documented() -> None:
    page = (DOCS / "reference" / "monitoring.md").read_text()
    for name in names():
        assert f"`{name}`" in page, name
