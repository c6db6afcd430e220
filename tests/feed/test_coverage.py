"""Which versions the feed covers: as the commits tell it, whatever is stored."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mirrorlake import read_feed
from mirrorlake.delta.log import checkpoint
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.feed.commits.coverage import CoverageFile
from mirrorlake.feed.commits.history import CommitHistory
from mirrorlake.feed.commits.position_map import PositionMap
from mirrorlake.storage.local import LocalStore
from tests.feed.handmade_feed import INSERT, FeedTable
from tests.feed.test_position_map import PATH, Mapped
from tests.profiles import tries

FILE = "Files/Mirrorlake/positions/s/orders/coverage.json"


@pytest.fixture
def mapped(tmp_path: Path) -> Mapped:
    return Mapped(tmp_path)


def stretches(
    mapped: Mapped, first: int = 0, *, stored: bool = True
) -> list[tuple[int, int, bool]]:
    kept = PositionMap(mapped.store, PATH) if stored else None
    found = CommitHistory(TableLog(mapped.table.path), kept).coverage(first)
    return [(one.first, one.last, one.has_feed) for one in found]


@settings(max_examples=tries(40), suppress_health_check=list(HealthCheck))
@given(acts=st.lists(st.sampled_from(["on", "off", "change", "keep"]), max_size=12))
def test_what_is_stored_makes_no_difference(
    tmp_path_factory: pytest.TempPathFactory, acts: list[str]
) -> None:
    mapped = Mapped(tmp_path_factory.mktemp("root"))
    expected = [True]
    for number, act in enumerate(acts):
        if act == "keep":
            mapped.keep()
            continue
        if act == "change":
            mapped.table.change((INSERT, (number, "a")))
        else:
            mapped.table.record(is_on=act == "on")
        expected.append(expected[-1] if act == "change" else act == "on")
    for first in {0, len(expected) // 2}:
        found = stretches(mapped, first)
        assert found == stretches(mapped, first, stored=False)
        assert [on for a, b, on in found for _ in range(a, b + 1)] == expected[first:]
    since = CommitHistory(TableLog(mapped.table.path), mapped.map).covered_since()
    assert since == next((v for v in range(len(expected)) if all(expected[v:])), len(expected))


def test_only_commits_since_are_read(mapped: Mapped, monkeypatch: pytest.MonkeyPatch) -> None:
    mapped.grow(20)
    mapped.keep()
    mapped.grow(2)
    read: list[int] = []
    content = TableLog.content
    monkeypatch.setattr(TableLog, "content", lambda log, v: read.append(v) or content(log, v))
    assert stretches(mapped) == [(0, 22, True)]
    assert set(read) == {20, 21, 22}


def test_a_feed_from_the_beginning_reads_each_commit_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = FeedTable(tmp_path)
    for key in range(5):
        table.change((INSERT, (key, "a")))
    read: list[int] = []
    content = TableLog.content
    monkeypatch.setattr(TableLog, "content", lambda log, v: read.append(v) or content(log, v))
    assert read_feed(table.path, from_beginning=True).to_arrow().num_rows == 5
    assert sorted(version for version in read if version) == [1, 2, 3, 4, 5]


def test_of_another_table_or_damaged_it_is_made_again(mapped: Mapped) -> None:
    mapped.grow(3)
    mapped.keep()
    file, store = mapped.root / FILE, LocalStore(mapped.root)
    told = file.read_bytes()
    for content in (b"", b"[]", b'{"format": 2}', b'{"format": 1, "commit": "", "stretches": []}'):
        file.write_bytes(content)
        assert stretches(mapped) == [(0, 3, True)]
    mapped.keep()
    assert file.read_bytes() == told
    # Another table in its place, with as many versions.
    for commit in (mapped.table.path / "_delta_log").iterdir():
        commit.unlink()
    other = FeedTable(mapped.table.path, **{"delta.enableChangeDataFeed": "false"})
    for _ in range(3):
        other.change((INSERT, (9, "b")))
    log = TableLog(mapped.table.path)
    assert CoverageFile(store, FILE).read(log, log.versions()) is None
    assert stretches(mapped) == [(0, 3, False)]


def test_versions_that_the_log_forgot_stay_known(mapped: Mapped) -> None:
    mapped.grow(2)
    mapped.table.record(is_on=False)
    mapped.keep()
    checkpoint.write(mapped.table.path)
    for version in range(3):
        TableLog(mapped.table.path).commit_file(version).unlink()
    mapped.grow(1)
    assert stretches(mapped, 3) == [(3, 4, False)]
    mapped.keep()
    assert stretches(mapped, 3) == [(3, 4, False)]
