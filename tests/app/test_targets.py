"""The tables that a project builds from change feeds, kept up to date without a JVM."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from mirrorlake import Mirror
from mirrorlake.app.targets.keeper import TargetKeeper
from mirrorlake.config import load
from mirrorlake.errors import ConfigError
from mirrorlake.model.clock import WallClock
from mirrorlake.model.crash_points import no_crash
from tests.delta.handmade import HandmadeTable
from tests.docs.blocks import blocks
from tests.feed.handmade_feed import INSERT, UPDATE, FeedTable

HISTORIES = "histories: [{table: shop.orders}, {table: shop.lines, type: 1, to: newest.lines}]"


def project(folder: Path, text: str = HISTORIES) -> Path:
    (folder / "shop/Files/LandingZone").mkdir(parents=True, exist_ok=True)
    path = folder / "mirrorlake.yaml"
    path.write_text(f"name: p\nroot: ./shop\n{text}\n")
    return path


@pytest.fixture
def orders(tmp_path: Path) -> FeedTable:
    table = FeedTable(tmp_path / "shop/Tables/shop/orders")
    table.change((INSERT, (1, "a")))
    return table


def rows(tmp_path: Path, name: str) -> list[Any]:
    return sorted(HandmadeTable(tmp_path / "shop/Tables" / name).rows(), key=repr)


def test_a_run_brings_them_up_to_date_and_a_later_one_goes_on(
    tmp_path: Path, orders: FeedTable
) -> None:
    mirror = Mirror.open(project(tmp_path))
    assert mirror.apply_once().stopped_targets == {}
    assert rows(tmp_path, "shop/orders_history") == [(1, "a", 1, None, False)]
    lines = FeedTable(tmp_path / "shop/Tables/shop/lines")
    lines.change((INSERT, (5, "x")))
    orders.change((UPDATE, (1, "b")))
    behind = {one.target: (one.covered, one.behind) for one in mirror.status().targets}
    assert behind == {"shop.orders_history": (1, 1), "newest.lines": (-1, 2)}
    mirror.apply_once()
    assert rows(tmp_path, "newest/lines") == [(5, "x")]
    assert rows(tmp_path, "shop/orders_history") == [
        (1, "a", 1, 2, False),
        (1, "b", 2, None, False),
    ]
    assert [one.behind for one in mirror.status().targets] == [0, 0]


def test_archives_are_kept_too(tmp_path: Path, orders: FeedTable) -> None:
    mirror = Mirror.open(project(tmp_path, "archives: [{table: shop.orders}]"))
    assert mirror.apply_once().stopped_targets == {}
    assert len(rows(tmp_path, "shop/orders_archive")) == 1
    (status,) = mirror.status().targets
    assert (status.kind, status.first, status.covered, status.behind) == ("an archive", 0, 1, 0)


def test_one_that_stops_says_why_and_the_others_go_on(tmp_path: Path, orders: FeedTable) -> None:
    lines = FeedTable(tmp_path / "shop/Tables/shop/lines")
    lines.change((INSERT, (5, "x")), (INSERT, (5, "y")))
    mirror = Mirror.open(project(tmp_path))
    with capture_logs() as logged:
        (error,) = mirror.apply_once().stopped_targets.values()
    assert "key id = 5 occurs twice" in str(error)
    assert "id = 5" not in json.dumps(
        [line for line in logged if line["event"] == "target_stopped"]
    )
    assert rows(tmp_path, "shop/orders_history") == [(1, "a", 1, None, False)]
    told = {one["target"]: one["error"] for one in mirror.status().facts()["targets"]}
    assert told["shop.orders_history"] is None
    assert told["newest.lines"]["code"] == "feed_target_error"


def test_they_are_kept_while_a_run_lasts(tmp_path: Path, orders: FeedTable) -> None:
    keeper = TargetKeeper(load(project(tmp_path)), WallClock(), no_crash)
    with keeper.running():
        _until(lambda: len(rows(tmp_path, "shop/orders_history")) == 1)
        orders.change((UPDATE, (1, "b")))
        _until(lambda: len(rows(tmp_path, "shop/orders_history")) == 2)


def _until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            if holds():
                return
        except (FileNotFoundError, KeyError):
            pass
        time.sleep(0.05)
    raise AssertionError("it did not happen")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (
            "histories: [{table: a, deletes: flag}]",
            "deletes has no meaning for a history of type 2",
        ),
        ("histories: [{table: a}, {table: b, to: a_history}]", "a_history is the name of another"),
        ("histories: [{table: a, to: a}]", "a is the name of another"),
        ("histories: [{table: a, type: 3}]", "histories"),
        ("histories: [{tabel: a}]", "histories"),
        ("histories: [{table: a, to: b}]\narchives: [{table: a, to: b}]", "b is the name of"),
        (
            "histories: [{table: a, to: Old}]\narchives: [{table: a, to: old}]",
            "differ in case only",
        ),
        ("archives: [{table: a, to: A}]", "A and a differ in case only"),
        ("archives: [{table: a, names: {colour: c}}]", "colour is no column of an archive"),
    ],
)
def test_wrong_entries_are_refused_with_their_place(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what) as refused:
        load(project(tmp_path, text))
    assert "histories" in str(refused.value) or "archives" in str(refused.value)


def test_the_entries_of_the_pages_are_right(tmp_path: Path) -> None:
    for page in ("how-to/keep-history.md", "reference/configuration.md"):
        for text in blocks(page, "yaml"):
            if text.startswith("histories:"):
                assert load(project(tmp_path, text)).targets
