"""The changes of a table over HTTP, in pages, and as the command and Python give the same range."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mirrorlake import FeedError, config, read_feed
from mirrorlake.app.changes.feed_pages import FeedPage, PageToken, feed_page
from mirrorlake.server.application import application
from tests.cli.conftest import Run, run
from tests.feed.handmade_feed import DELETE, INSERT, UPDATE, FeedTable, time_of
from tests.server.asgi import TestClient
from tests.server.test_listed_streams import LISTED, service

__all__ = ["run"]

ADDRESS = "/v1/projects/local/locations/local/streams/shop:changes"


@pytest.fixture
def table(tmp_path: Path) -> FeedTable:
    """Five changes in version 1, three in version 3, none in version 2."""
    table = FeedTable(tmp_path / "shop/Tables/s/orders")
    table.change(*((INSERT, (number, "a")) for number in range(5)))
    table.record(is_on=True)
    table.change((UPDATE, (1, "b")), (DELETE, (2, None)))
    return table


class Client:
    def __init__(self, client: TestClient) -> None:
        self._client = client

    def get(self, **query: Any) -> tuple[int, Any]:
        answer = self._client.get(ADDRESS, params={"table": "s.orders", **query})
        return answer.status_code, answer.json()


@pytest.fixture
def client(tmp_path: Path, table: FeedTable) -> Iterator[Client]:
    (tmp_path / "bucket").mkdir()
    path = tmp_path / LISTED
    path.write_text("name: shop\nroot: ./shop\nsource: {type: events, url: ./bucket}\n")
    with service(tmp_path, config.load_all(path)) as found:
        headers: Any = {"host": "127.0.0.1"}
        yield Client(
            TestClient(application(found, None, None), base_url="http://h", headers=headers)
        )


def paged(table: FeedTable, size: int, **asked: Any) -> list[dict[str, Any]]:
    rows, token = list[dict[str, Any]](), ""
    while True:
        page: FeedPage = feed_page(str(table.path), token=token, size=size, **asked)
        assert len(page.rows) <= size
        rows += page.rows
        if page.next_token is None:
            return rows
        token, asked = str(page.next_token), {}


@pytest.mark.clause("CF-080", "CF-040")
def test_a_range_is_read_in_pages_and_by_all_ways_alike(
    client: Client, table: FeedTable, run: Run
) -> None:
    bounds = {"from": "1", "to": time_of(3).isoformat()}
    found, token = list[dict[str, Any]](), ""
    while True:
        code, page = client.get(pageSize=3, pageToken=token, **({} if token else bounds))
        assert (code, page["first"] >= 1, page["last"]) == (200, True, 3)
        found += page["rows"]
        if not (token := page["nextPageToken"]):
            break
    assert [row["_commit_version"] for row in found] == [1] * 5 + [3] * 3
    root = str(table.path.parent.parent.parent)
    asked = ("--from", bounds["from"], "--to", bounds["to"])
    done = run("feed", "s.orders", "--root", root, *asked, "--json")
    assert [json.loads(line) for line in done.out.splitlines()] == found
    ours = read_feed(table.path, from_version=1, to_time=time_of(3)).to_arrow()
    assert ours["id"].to_pylist() == [row["id"] for row in found]
    # What comes later, from where the last page ended.
    assert client.get(pageToken=page["resumeToken"])[1]["rows"] == []
    table.change((INSERT, (9, "z")))
    code, later = client.get(pageToken=page["resumeToken"])
    assert [(row["id"], row["_change_type"]) for row in later["rows"]] == [(9, "insert")]


@pytest.mark.clause("CF-040")
@pytest.mark.parametrize(
    ("query", "status", "reason"),
    [
        ({}, "INVALID_ARGUMENT", "FEED_START_MISSING"),
        ({"from": "3", "to": "1"}, "INVALID_ARGUMENT", "FEED_INVALID_RANGE"),
        ({"from": "soon"}, "INVALID_ARGUMENT", "FEED_INVALID_ARGUMENT"),
        ({"pageToken": "abc"}, "INVALID_ARGUMENT", "FEED_INVALID_ARGUMENT"),
        ({"from": "0", "table": "s.other"}, "INVALID_ARGUMENT", "USAGE"),
        ({"from": "0", "table": ""}, "INVALID_ARGUMENT", "USAGE"),
        ({"from": "0", "table": "../../../Tables/s/orders"}, "INVALID_ARGUMENT", "USAGE"),
    ],
    ids=["no start", "range", "time", "token", "table", "no table", "path"],
)
def test_what_cannot_be_read_is_refused_in_words(
    client: Client, query: dict[str, str], status: str, reason: str
) -> None:
    code, told = client.get(**query)
    (details,) = told["error"]["details"]
    assert (code, told["error"]["status"], details["reason"]) == (400, status, reason)


def test_a_folder_is_no_name_of_a_table(client: Client, table: FeedTable) -> None:
    assert client.get(table=str(table.path), **{"from": "0"})[0] == 400


@pytest.mark.clause("CF-040")
def test_versions_that_are_gone_name_what_is_readable(client: Client, table: FeedTable) -> None:
    table.record(is_on=False)
    table.record(is_on=True)
    code, told = client.get(**{"from": "1"})
    assert (code, told["error"]["status"]) == (400, "OUT_OF_RANGE")
    assert "versions 5 to 5 are readable" in told["error"]["message"]
    code, page = client.get(**{"from": "1", "reportGaps": "true"})
    assert (code, page["gaps"], len(page["rows"])) == (200, [[4, 4, "not_recorded"]], 8)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 100])
def test_the_size_of_pages_makes_no_difference(table: FeedTable, size: int) -> None:
    whole = paged(table, 1_000, from_version=0)
    assert paged(table, size, from_version=0) == whole
    asked = {"from_version": 1, "pair_updates": True, "skip_unchanged": True}
    assert paged(table, size, **asked) == paged(table, 1_000, **asked)


def test_a_token_of_another_table_or_of_nobody_is_refused(table: FeedTable) -> None:
    page = feed_page(str(table.path), size=2, from_version=0)
    token = page.next_token
    assert token is not None
    assert PageToken.parse(str(token)) == token
    other = str(PageToken("another", 1, 0, None))
    with pytest.raises(FeedError, match="removed or recreated"):
        feed_page(str(table.path), token=other)
    for damaged in (
        PageToken(token.table_id, -1, 0, None),
        PageToken(token.table_id, 1, True, None),
        PageToken(token.table_id, 1, 0, None, pair_updates=1),  # type: ignore[arg-type]
    ):
        with pytest.raises(FeedError, match="the token is none"):
            feed_page(str(table.path), token=str(damaged))
