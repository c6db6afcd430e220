"""The pages of a live stream in Chromium: what a person sees, finds by the keyboard, and heals."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from tests.conftest import Database
from tests.server.service import Served, wait

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.spark,
    pytest.mark.full,
    pytest.mark.skipif(
        shutil.which("chromium") is None, reason="Chromium is missing: apt-get install chromium"
    ),
]

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
HOME = "projects/local/locations/local"
STREAM = f"/v1/{HOME}/streams/shop"
STANDARDS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
PATIENCE = 240_000
"""Milliseconds."""


class Shop:
    """A service with one stream of a live database into Delta tables."""

    def __init__(self, served: Served, database: Database) -> None:
        self.served, self.database = served, database
        database.execute(
            "create schema shop",
            "create table shop.orders (id bigint primary key, note text, total numeric(10, 2))",
            "create table shop.customers (id bigint primary key, name text)",
            "insert into shop.orders select g, 'first', g from generate_series(1, 100) g",
            "insert into shop.customers select g, 'name ' || g from generate_series(1, 10) g",
        )
        facts = database.sql.info
        source = {
            "postgresqlProfile": {
                "hostname": facts.host,
                "port": facts.port,
                "username": facts.user,
                "password": facts.password or "none",
                "database": facts.dbname,
            }
        }
        profiles = f"/v1/{HOME}/connectionProfiles?connectionProfileId="
        self.call("POST", f"{profiles}source", source)
        self.call("POST", f"{profiles}tables", {"bigqueryProfile": {}})
        stream = {
            "displayName": "The shop",
            "sourceConfig": {
                "sourceConnectionProfile": f"{HOME}/connectionProfiles/source",
                "postgresqlSourceConfig": {
                    "replicationSlot": f"slot_{database.name}",
                    "publication": f"pub_{database.name}",
                    "includeObjects": {"postgresqlSchemas": [{"schema": "shop"}]},
                },
            },
            "destinationConfig": {
                "destinationConnectionProfile": f"{HOME}/connectionProfiles/tables",
                "bigqueryDestinationConfig": {"merge": {}},
            },
            "backfillAll": {},
        }
        self.call("POST", f"/v1/{HOME}/streams?streamId=shop", stream)
        self.call("PATCH", f"{STREAM}?updateMask=state", {"state": "RUNNING"})

    def call(self, method: str, path: str, body: Any = None) -> None:
        code, answer = self.served.call(method, path, body)
        assert code == 200, answer

    def insert(self, first: int, last: int) -> None:
        values = f"select g, 'new', g from generate_series({first}, {last}) g"
        self.database.execute(f"insert into shop.orders {values}")

    @contextmanager
    def locked(self, table: str) -> Iterator[None]:
        """Nobody else reads a table meanwhile."""
        with psycopg.connect(self.database.url) as other:
            other.execute(f"lock table {table} in access exclusive mode")
            yield

    def damage(self) -> None:
        """Damage a landed file of the customers before it is applied."""
        root = self.served.folder / "data/tables/local/local/shop"
        folder = root / "Files/LandingZone/shop.schema/customers"
        assert self.served.process
        ours = psutil.Process(self.served.process.pid).children(recursive=True)
        mirrors = next(one for one in ours if one.name() == "java").parent()
        assert mirrors
        mirrors.suspend()
        try:
            before = set(folder.glob("[0-9]*.parquet"))
            self.database.execute("insert into shop.customers values (11, 'new')")
            (landed,) = wait(lambda: set(folder.glob("[0-9]*.parquet")) - before, 120)
            landed.write_bytes(b"this is no parquet")
        finally:
            mirrors.resume()


@pytest.fixture
def shop(tmp_path: Path, database: Database) -> Iterator[Shop]:
    served = Served(tmp_path / "service").start()
    try:
        yield Shop(served, database)
    finally:
        served.stop()


@pytest.fixture
def page() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        # Without a sandbox, because tests may run as root, and see pages of our own only.
        chromium = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        found = chromium.new_context(viewport={"width": 1280, "height": 900}).new_page()
        found.set_default_timeout(PATIENCE)
        yield found
        chromium.close()


def accessible(page: Any) -> None:
    """In light and in dark nothing violates WCAG 2.2 AA, as far as axe-core can tell."""
    import axe_playwright_python

    axe = Path(axe_playwright_python.__file__).with_name("axe.min.js").read_text()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        # By the debugger, which the policy of the page does not bind.
        page.evaluate(axe)
        found = page.evaluate(
            "standards => axe.run(document, {runOnly: {type: 'tag', values: standards}})",
            STANDARDS,
        )
        told = [(one["id"], [node["html"] for node in one["nodes"]]) for one in found["violations"]]
        assert told == [], page.url
        assert found["passes"]


def screenshot(page: Any, name: str) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.screenshot(path=SCREENSHOTS / f"{name}-{scheme}.png", full_page=True)


def applied(page: Any) -> int:
    """The changes that a stream says to have applied."""
    group = page.locator("dl.facts > div").filter(has_text="Changes applied")
    return int(group.get_by_role("definition").inner_text().replace(",", ""))


def rises(page: Any, value: int) -> None:
    def is_there() -> bool:
        page.wait_for_timeout(200)
        return applied(page) >= value

    wait(is_there, PATIENCE / 1000)


def _problem(told: Any) -> list[str]:
    """What a browser complains of; that a wrong token and, while it is loaded again, a table are
    refused, is no fault."""
    is_refused = re.search(r"Failed to load resource.* (401|404) ", told.text)
    return [told.text] if told.type == "error" and not is_refused else []


def remedy(page: Any) -> str:
    return str(page.get_by_role("region", name="Remedy").inner_text())


def follow(commands: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Do what a remedy says, in a shell that knows the command."""
    folder.mkdir()
    program = folder / "mirrorlake"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m mirrorlake.cli.main "$@"\n')
    program.chmod(0o755)
    paths = {"PATH": f"{folder}:{os.environ['PATH']}"}
    return subprocess.run(
        ["sh", "-c", commands],
        env=os.environ | paths,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_a_person_sees_what_flows_finds_what_is_stuck_and_heals_it(
    shop: Shop, page: Any, tmp_path: Path
) -> None:
    asked: list[str] = []
    problems: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda told: problems.extend(_problem(told)))

    # The login.
    page.goto(shop.served.url)
    accessible(page)
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    assert page.get_by_role("alert").inner_text() == "Wrong token."
    accessible(page)
    page.get_by_label("Token").fill(shop.served.token)
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Streams").wait_for()
    assert page.evaluate("document.cookie") == ""

    # The stream, found by the keyboard, and its numbers, which rise while rows are written.
    page.get_by_role("row", name=re.compile("The shop.*Running")).wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    for _ in range(10):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "The shop":
            break
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="The shop").wait_for()
    rises(page, 110)
    shop.insert(101, 150)
    rises(page, 160)
    way = page.get_by_role(
        "img", name=re.compile(r"^Source: .*Captured: running.*Readable: [0-9A-F]+.[0-9A-F]+, ")
    )
    way.wait_for()
    page.get_by_role("img", name=re.compile("^Throughput. applied: last")).wait_for()
    page.get_by_role("img", name=re.compile(r"^Freshness. p50: last [\d.]+ seconds")).wait_for()
    accessible(page)

    # Updates can be paused.
    page.get_by_role("button", name="Pause updates", pressed=False).click()
    page.get_by_role("button", name="Pause updates", pressed=True).click()

    # A damaged file stops its table, and no other.
    shop.damage()
    page.get_by_role("row", name=re.compile("shop.customers Failed")).wait_for()
    before = applied(page)
    shop.insert(151, 160)
    rises(page, before + 10)
    accessible(page)
    screenshot(page, "stream")
    page.get_by_role("link", name="shop.customers").click()
    page.get_by_role("heading", name="Why it has stopped").wait_for()
    accessible(page)
    screenshot(page, "table")
    page.get_by_role("link", name="mirrorlake").click()
    page.get_by_role("row", name=re.compile("The shop")).get_by_role(
        "cell", name="1", exact=True
    ).wait_for()
    accessible(page)
    screenshot(page, "overview")

    # The remedy that is shown heals it.
    page.go_back()
    done = follow(remedy(page), tmp_path / "bin")
    assert done.returncode == 0, done.stdout + done.stderr
    page.get_by_role("heading", name="Why it has stopped").wait_for(state="detached")

    # Its changes, before and after; what is written while it is loaded is part of the load.
    page.get_by_role("link", name="Changes of its rows").click()
    numbers = itertools.count(1)

    def is_shown() -> bool:
        name = f"healed {next(numbers)}"
        shop.database.execute(f"update shop.customers set name = '{name}' where id = 7")
        page.wait_for_timeout(3_000)
        return bool(page.get_by_role("row", name=re.compile("update .*healed")).count())

    wait(is_shown, PATIENCE / 1000)
    accessible(page)
    screenshot(page, "changes")

    # A backfill that is started, stopped while it waits for a lock, and started again.
    page.get_by_role("link", name="The shop").click()
    page.get_by_role("link", name="shop.orders").click()
    backfill = page.locator("#backfill")
    backfill.get_by_text("Completed, started by the stream.").wait_for()
    read, stop = (
        backfill.get_by_role("button", name=name, exact=True)
        for name in ("Read the table again", "Stop the backfill")
    )
    with shop.locked("shop.orders"):
        read.click()
        backfill.get_by_text(re.compile("(Pending|Active), asked for by a person")).wait_for()
        accessible(page)
        stop.click()
        backfill.get_by_text("Stopped, asked for by a person").wait_for()
    screenshot(page, "backfill")
    read.click()
    backfill.get_by_text("Completed, asked for by a person").wait_for()

    page.get_by_role("button", name="Log out").click()
    page.get_by_role("heading", name="Log in").wait_for()
    page.goto(f"{shop.served.url}/streams/local/local/shop")
    page.get_by_role("heading", name="Log in").wait_for()
    assert problems == []
    assert {url for url in asked if not url.startswith(shop.served.url)} == set()
