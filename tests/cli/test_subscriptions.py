"""`mirrorlake subscriptions`: who reads what, how far, and the ways on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mirrorlake import FeedError, UsageError, subscribe
from mirrorlake.cli.main import app
from mirrorlake.errors import LeaseHeld
from tests.feed.handmade_feed import INSERT, FeedTable


@pytest.fixture
def table(tmp_path: Path) -> FeedTable:
    table = FeedTable(tmp_path / "Tables/shop/orders")
    table.change((INSERT, (1, "a")))
    with subscribe("audit", table.path, start="beginning") as subscription:
        list(subscription)
    table.change((INSERT, (2, "b")))
    return table


def shown(root: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run(root, "--json"))["subscriptions"]
    return found


def run(root: Path, *arguments: str) -> str:
    done = CliRunner().invoke(app, ["subscriptions", "--root", str(root), *arguments])
    if done.exception:
        raise done.exception
    return done.output


def test_each_subscription_is_shown_with_how_far_it_is(table: FeedTable, tmp_path: Path) -> None:
    subscribe("new", table.path).close()
    audit, new = shown(tmp_path)
    assert audit.pop("left_seconds") > 0
    assert [audit | {"left_seconds": None}, new] == [
        {
            "name": "audit",
            "table": "Tables/shop/orders",
            "next": 2,
            "latest": 2,
            "behind": 1,
            "problem": "",
            "left_seconds": None,
            "is_late": False,
        },
        {
            "name": "new",
            "table": "Tables/shop/orders",
            "next": None,
            "latest": 2,
            "behind": None,
            "problem": "",
            "left_seconds": None,
            "is_late": False,
        },
    ]
    assert "snapshot" in run(tmp_path)


def test_what_stops_one_is_shown_and_mended(table: FeedTable, tmp_path: Path) -> None:
    table.record(is_on=False)
    (state,) = shown(tmp_path)
    assert "not recorded" in state["problem"]
    table.record(is_on=True)
    run(tmp_path, "--accept-gap", "audit")  # version 2 can be read before it
    with subscribe("audit", table.path) as subscription:
        commits = iter(subscription)
        assert next(commits).version == 2
        with pytest.raises(FeedError, match="version 3 were not recorded"):
            next(commits)
    run(tmp_path, "--accept-gap", "audit")
    (state,) = shown(tmp_path)
    assert state["problem"] == ""
    shutil.rmtree(table.path)
    (state,) = shown(tmp_path)
    assert "removed or made anew" in state["problem"]
    FeedTable(table.path).change((INSERT, (1, "a")))
    (state,) = shown(tmp_path)
    assert "removed or made anew" in state["problem"]
    run(tmp_path, "--reseed", "audit")
    (state,) = shown(tmp_path)
    assert (state["next"], state["problem"]) == (None, "")


def test_one_is_removed_unless_it_reads(table: FeedTable, tmp_path: Path) -> None:
    with subscribe("audit", table.path), pytest.raises(LeaseHeld):
        run(tmp_path, "--remove", "audit")
    run(tmp_path, "--remove", "audit")
    assert shown(tmp_path) == []
    with pytest.raises(UsageError, match="no subscription audit"):
        run(tmp_path, "--remove", "audit")
    with pytest.raises(UsageError, match="several"):
        run(tmp_path, "--remove", "a", "--reseed", "b")
