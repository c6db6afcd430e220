"""`mirrorlake history`, on tables made by hand, without a JVM."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mirrorlake import history
from mirrorlake.app.targets.target_status import targets_of
from mirrorlake.cli.targets import lines
from mirrorlake.config import load
from tests.cli.conftest import Run
from tests.delta.handmade import HandmadeTable
from tests.feed.handmade_feed import INSERT, UPDATE, FeedTable


@pytest.fixture
def orders(tmp_path: Path) -> FeedTable:
    table = FeedTable(tmp_path / "shop/Tables/shop/orders")
    table.change((INSERT, (1, "a")))
    table.change((UPDATE, (1, "b")))
    return table


def test_it_builds_a_table_beside_its_source_and_says_what_it_did(
    run: Run, orders: FeedTable
) -> None:
    done = run("history", "shop.orders", "--root", "shop", "--json")
    facts = done.facts()
    assert Path(facts.pop("target")) == orders.path.parent / "orders_history"
    assert facts == {
        "covered": 2,
        "version": 0,
        "commits": 1,
        "inserted": 2,
        "updated": 0,
        "deleted": 0,
    }
    again = run("history", "shop.orders", "--root", "shop")
    assert "covers version 2; nothing changed" in again.out
    named = run("history", "shop.orders", "--root", "shop", "--to", "old.orders", "--type", "1")
    assert named.code == 0
    assert HandmadeTable(orders.path.parents[1] / "old/orders").rows() == [(1, "b")]


def test_wrong_use_and_what_cannot_go_on_have_their_codes(run: Run, orders: FeedTable) -> None:
    wrong = run("history", "shop.orders", "--root", "shop", "--deletes", "flag")
    assert wrong.code == 2
    assert "deletes has no meaning for a history of type 2" in wrong.error
    other = run("history", str(orders.path), "--to", str(orders.path))
    assert other.code == 1
    assert "not built from a change feed" in other.error


@pytest.mark.full
@pytest.mark.clause("CF-211")
def test_following_gives_what_one_run_gives(tmp_path: Path, orders: FeedTable) -> None:
    target = tmp_path / "followed"
    command = [sys.executable, "-m", "mirrorlake.cli.main", "history", str(orders.path)]
    with subprocess.Popen(
        [*command, "--to", str(target), "--follow", "--json"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["covered"] == 2
        for version in (3, 4):
            orders.change((UPDATE, (1, str(version))))
            begun = time.monotonic()
            assert json.loads(process.stdout.readline())["covered"] == version
            assert time.monotonic() - begun < 5
        process.terminate()
        assert process.wait(10) == 0
    names = [(row[1], row[2], row[3]) for row in HandmadeTable(target).rows()]
    assert sorted(names, key=str) == [("3", 3, 4), ("4", 4, None), ("a", 1, 2), ("b", 2, 3)]


@pytest.mark.clause("CF-195")
def test_the_status_says_what_a_target_lacks(tmp_path: Path, orders: FeedTable) -> None:
    (tmp_path / "mirrorlake.yaml").write_text(
        "name: shop\nroot: shop\nhistories:\n- table: shop.orders\n- table: shop.order\n"
    )
    project = load(tmp_path / "mirrorlake.yaml", {})

    def shown() -> list[str]:
        return [line for one in targets_of(project) for line in lines(one)]

    absent = "shop.order_history: to be built from shop.order, which is not there"
    at = "shop.orders_history: {} from shop.orders, covers {}"
    assert shown() == [at.format("to be built", "nothing yet"), absent]
    history(orders.path, tmp_path / "shop/Tables/shop/orders_history")
    orders.change((INSERT, (9, "late")))
    covered = at.format("a history of type 2", f"version {orders.log.snapshot().version - 1}")
    assert shown() == [f"{covered}, 1 behind", absent]
    shutil.rmtree(orders.path)
    gone = "shop.orders_history: its source {} (shop.orders)."
    assert [line.partition(" Build")[0] for line in shown()] == [
        covered,
        gone.format("is not there any more"),
        absent,
    ]
    FeedTable(orders.path)
    assert shown()[1].startswith(gone.format("was removed and made anew"))
