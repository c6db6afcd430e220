"""What the page on streams shows, run against a service and a database."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mirrorlake.server.metrics import names
from tests.conftest import Database
from tests.docs.blocks import blocks, shell
from tests.docs.generate import DOCS
from tests.server.service import Served, wait

PAGE = "how-to/run-streams-by-the-api.md"


@pytest.mark.full
@pytest.mark.postgres
def test_the_examples_create_and_show_a_running_stream(tmp_path: Path, database: Database) -> None:
    database.execute("create schema shop", "create table shop.orders (id int primary key)")
    facts = database.sql.info
    served = Served(tmp_path / "mirrorlake-streams", "--no-apply").start()
    try:
        (program,) = blocks(PAGE, "python")
        for said, here in (
            ("http://127.0.0.1:8765", served.url),
            ("db.example.com", facts.host),
            ("5432", str(facts.port)),
            ('"mirror"', repr(facts.user)),
            ('"secret"', repr(facts.password)),
            ('"database": "shop"', f'"database": "{facts.dbname}"'),
            ('"shop_orders"', f'"slot_{database.name}"'),
        ):
            assert said in program
            program = program.replace(said, here)
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", program],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        start, request = blocks(PAGE, "sh")
        assert start == "mirrorlake serve\n"
        show = request.replace("http://127.0.0.1:8765", served.url)
        wait(lambda: '"state":"RUNNING"' in shell(tmp_path, show), 30)
    finally:
        served.stop()


def test_every_metric_is_documented() -> None:
    page = (DOCS / "reference" / "monitoring.md").read_text()
    for name in names():
        assert f"`{name}`" in page, name
