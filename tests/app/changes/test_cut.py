"""Cuts, waiting and tracing, on tables and cuts made by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mirrorlake import Mirror, UsageError
from mirrorlake.app.changes import cut, trace
from mirrorlake.errors import NotReached
from mirrorlake.model.landed import FORMAT
from tests.app.changes.shop import Shop
from tests.delta.handmade import HandmadeTable
from tests.feed.handmade_feed import DELETE, INSERT, UPDATE


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop.with_three_cuts(tmp_path / "shop")


@pytest.mark.clause("CF-082")
def test_the_newest_cut_that_all_tables_show_is_found(shop: Shop) -> None:
    assert shop.found() == ("0/2", {"s.a": 2, "s.b": 1})
    shop.apply("a", 3, 3, (UPDATE, (1, "c")))
    assert shop.found() == ("0/2", {"s.a": 2, "s.b": 1})
    shop.apply("b", 2, 2, (INSERT, (2, "y")))
    assert shop.found() == ("0/3", {"s.a": 3, "s.b": 2})
    assert shop.found("0/2") == ("0/2", {"s.a": 2, "s.b": 1})
    assert shop.found("0/1") == ("0/1", {"s.a": 1, "s.b": 1})
    for wrong, error in (("0/0", NotReached), ("17", UsageError), ("x", UsageError)):
        with pytest.raises(error):
            shop.found(wrong)


@pytest.mark.clause("CF-082")
def test_a_version_that_shows_more_than_a_cut_is_none_of_it(shop: Shop) -> None:
    shop.apply("b", 2, 3, (INSERT, (2, "y")))
    shop.apply("a", 3, 3, (UPDATE, (1, "c")))
    assert shop.found() == ("0/2", {"s.a": 2, "s.b": 1})
    with pytest.raises(NotReached, match="no cut up to 0/0"):
        shop.found("0/0")


def test_tables_that_a_cut_does_not_cover_are_named(shop: Shop) -> None:
    shop.cut("0/4", {"s.b": "loading"}, a=2)
    found = cut.find(shop.project)
    assert (found.position, set(found.tables), found.excluded) == (
        "0/4",
        {"s.a"},
        {"s.b": "loading"},
    )


def test_a_table_that_was_made_anew_is_not_taken_for_the_old_one(shop: Shop) -> None:
    shop.apply("a", 1, 1, (INSERT, (9, "other")), position="0/8")
    with pytest.raises(NotReached, match=r"s\.a: it was loaded anew after this cut"):
        shop.found("0/1")
    shop.cut("0/9", a=1, b=1)
    assert shop.found() == ("0/9", {"s.a": 3, "s.b": 1})
    ours = {"format": FORMAT, "generation": "another", "table": "a", "source": {}}
    path = shop.root / "Files/LandingZone/s.schema/a/_metadata.json"
    path.write_text(json.dumps({"keyColumns": ["id"], "mirrorlake": ours}))
    with pytest.raises(NotReached, match=r"s\.a: it is not mirrored yet"):
        shop.found()


@pytest.mark.clause("CF-082")
def test_a_cut_is_read_in_python_and_in_sql(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, run: Callable[..., Any]
) -> None:
    found = Mirror(shop.project).cut("0/1")
    assert found.tables["s.a"].read().to_pylist() == [{"id": 1, "name": "a"}]
    shop.apply("a", 3, 3, (DELETE, (1, None)))
    query = "select (select name from s.a), (select count(*) from s.b)"
    assert "b" in run("sql", "--root", "shop", "--cut", query).out
    assert "null" in run("sql", "--root", "shop", "--json", query).out
    shown = json.loads(run("cut", "--root", "shop", "--json").out)
    assert shown == {
        "cut": 2,
        "position": "0/2",
        "commit_time": None,
        "tables": {"s.a": 2, "s.b": 1},
        "excluded": {},
    }
    assert "position 0/1" in run("cut", "--root", "shop", "--at", "0/1").out


def wait(shop: Shop, position: str, **arguments: Any) -> list[float]:
    """Returns the pauses. Each pause applies what is outstanding."""
    pauses: list[float] = []
    steps = [
        lambda: shop.apply("a", 3, 3, (UPDATE, (1, "c"))),
        lambda: shop.apply("b", 2, 2, (INSERT, (2, "y"))),
    ]

    def pause(seconds: float) -> bool:
        pauses.append(seconds)
        if len(pauses) <= len(steps):
            steps[len(pauses) - 1]()
        return False

    def clock() -> float:
        return sum(pauses)

    cut.wait(shop.project, position, clock=clock, pause=pause, **arguments)
    return pauses


@pytest.mark.clause("CF-083")
def test_waiting_ends_when_every_chosen_table_shows_the_position(shop: Shop) -> None:
    assert wait(shop, "0/2") == []
    assert len(wait(shop, "0/3", tables=["s.a"])) == 1


@pytest.mark.clause("CF-083")
def test_it_waits_for_all_tables(shop: Shop) -> None:
    assert len(wait(shop, "0/3")) == 2


@pytest.mark.clause("CF-083")
def test_it_gives_up_and_names_who_is_behind(shop: Shop) -> None:
    with pytest.raises(NotReached, match=r"after 0\.1 seconds, and these do not show it: s\.b"):
        wait(shop, "0/3", timeout=0.1)
    with pytest.raises(NotReached, match=r"do not show it: s\.a, s\.b"):
        wait(shop, "0/9", timeout=1)  # no cut has it
    for wrong in ({"position": "17"}, {"position": "0/1", "tables": ["s.c"]}):
        with pytest.raises(UsageError):
            wait(shop, **wrong)


@pytest.mark.clause("CF-083")
def test_a_wait_that_is_stopped_is_no_success(shop: Shop) -> None:
    with pytest.raises(NotReached, match=r"stopped, and these do not show it: s\.a, s\.b"):
        cut.wait(shop.project, "0/3", clock=lambda: 0.0, pause=lambda _seconds: True)


def test_the_command_waits(shop: Shop, run: Callable[..., Any]) -> None:
    assert run("wait", "0/2", "--root", "shop").code == 0
    done = run("wait", "0/3", "--root", "shop", "--timeout", "0.1")
    assert (done.code, "s.a, s.b" in done.error) == (1, True)


def test_the_changes_of_a_row_are_traced_to_the_source(shop: Shop, run: Callable[..., Any]) -> None:
    location = str(shop.root / "Tables/s/a")
    shop.apply("a", 3, 5, (DELETE, (1, None)), (INSERT, (2, "z")))
    found = [(o.version, o.kind, o.position, o.files) for o in trace.trace(location, ["1"]).changes]
    assert found == [
        (3, "delete", "0/5:1", (3, 5)),
        (2, "update_postimage", "0/2:1", (2, 2)),
        (2, "update_preimage", "0/2:1", (2, 2)),
        (1, "insert", "0/1:1", (1, 1)),
    ]
    latest = trace.trace(location, ["id=1"], most=2)
    assert (len(latest.changes), latest.since) == (2, 2)
    assert trace.trace(location, ["7"]) == trace.Traced([], 0)
    for wrong in (["nothing=1"], ["x"]):
        with pytest.raises(UsageError):
            trace.trace(location, wrong)
    shown = json.loads(run("trace", "s.a", "2", "--root", "shop", "--json").out)["changes"]
    assert shown[0]["row"] == {"id": 2, "name": "z"}
    assert "update_postimage" in run("trace", "s.a", "1", "--root", "shop").out


def test_a_trace_says_where_it_ends(shop: Shop, run: Callable[..., Any]) -> None:
    table = HandmadeTable(shop.root / "Tables/s/a")
    known = table.log.snapshot().metadata
    for is_on in ("false", "true"):
        told = known["configuration"] | {"delta.enableChangeDataFeed": is_on}
        table.commit([{"metaData": known | {"configuration": told}}])
    shown = run("trace", "s.a", "1", "--root", "shop")
    assert (shown.code, "changes before version 4 were not recorded" in shown.error) == (0, True)
    shown = json.loads(run("trace", "s.a", "1", "--root", "shop", "--json").out)
    assert shown == {"changes": [], "since": 4, "unread": []}


def test_a_batch_is_found_by_version_file_and_position(shop: Shop, run: Callable[..., Any]) -> None:
    location = str(shop.root / "Tables/s/a")
    shop.apply("a", 3, 5, (INSERT, (2, "z")))
    for asked, version in (
        ({"version": 2}, 2),
        ({"file": 4}, 3),
        ({"position": "0/3"}, 3),
        ({"position": "0/2:1"}, 2),
        ({"position": "0/1:1"}, 1),
    ):
        assert trace.batch_with(location, **asked).version == version
    for wrong in ({"version": 0}, {"file": 9}, {"position": "0/F"}, {"position": "17"}):
        with pytest.raises(UsageError):
            trace.batch_with(location, **wrong)
    shown = json.loads(run("trace", "s.a", "--file", "4", "--root", "shop", "--json").out)
    assert (shown["version"], shown["files"]) == (3, [3, 5])
    assert run("trace", "s.a", "--root", "shop").code == 2
    assert run("trace", "s.a", "1", "--file", "2", "--root", "shop").code == 2
