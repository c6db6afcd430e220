"""Tables that have to be read again: who looks is told until that is done."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest

from mirrorlake import root
from mirrorlake.app.loop.report import ApplyReport
from mirrorlake.app.stores import store_of
from mirrorlake.capture.backfill.jobs import BackfillRecords
from mirrorlake.capture.records.records import Records
from mirrorlake.cli.report import CommandOutcome
from mirrorlake.config import Project
from mirrorlake.errors import NotSelected
from mirrorlake.sources.postgresql import connect
from tests.cli.conftest import Run
from tests.conftest import Database


def test_a_run_that_leaves_a_table_different_ends_with_1(tmp_path: Path) -> None:
    project = Project.of_root(tmp_path)
    jobs = BackfillRecords(Records(store_of(project), root.LANDING))
    jobs.require("public.orders", "it left the publication", datetime(2026, 1, 1, tzinfo=UTC))
    found = CommandOutcome.of(ApplyReport(), project, captured=True)
    assert found.exit_code == 1
    assert [(one["table"], one["differs"]) for one in found.facts()["tables"]] == [
        ("public.orders", True)
    ]
    deselected = replace(found, errors={"public.orders": {"code": NotSelected.code}})
    assert deselected.exit_code == 0
    applied = CommandOutcome.of(ApplyReport(), project, captured=False)
    assert (applied.exit_code, applied.facts()["tables"]) == (0, [])


@pytest.mark.postgres
def test_a_table_that_left_its_publication_and_is_locked_differs_until_it_is_read_again(
    run: Run, shop: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connect._TEXT_FORMS, "lock_timeout", "50ms")
    assert run("capture", "--once").code == 0
    assert run("status").code == 0
    query = "select pubname from pg_publication_tables where tablename = 'orders'"
    ((publication,),) = shop.sql.execute(query).fetchall()
    with psycopg.connect(shop.url) as other:
        shop.execute(
            f'alter publication "{publication}" drop table orders',
            "insert into orders values (11, 'missed')",
        )
        other.execute("lock table orders in share update exclusive mode")
        done = run("capture", "--once")
        assert done.code == 1
        said = " ".join(done.error.split())
        assert "public.orders: differs from its source until it has been read again" in said

        status = run("status", "--json")
        (found,) = [t for t in status.facts()["tables"] if t["table"] == "public.orders"]
        assert (status.code, found["error"]) == (1, None)
        assert "no longer contains the table" in found["differs"]["reason"]
        assert (found["differs"]["updates"], found["differs"]["deletes"]) == (None, None)
        assert found["differs"]["since"]
        shown = run("status")
        assert shown.code == 1
        assert ", differs" in shown.out
        assert "public.orders: differs from its source since" in shown.out
    assert run("capture", "--once").code == 0
    again = run("status", "--json")
    assert again.code == 0
    assert {table["differs"] for table in again.facts()["tables"]} == {None}
