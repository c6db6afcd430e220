"""The last versions of a long log are found by name, and are the same as in a listing."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mirrorlake import FeedError, read_feed
from mirrorlake.delta.log import checkpoint, files, listed, table_log
from mirrorlake.delta.log.names import LAST
from mirrorlake.storage.urls import addressed
from tests.feed.handmade_feed import INSERT, UPDATE, FeedTable
from tests.objects import S3Server

LATEST, POINTER = 12, 8
"""Versions of the table, and its newest checkpoint. Another one is at version 4."""
LISTED, PROBED = 1_000_000, 2
"""The length from which on a log counts as long."""
RANGES: tuple[dict[str, Any], ...] = (
    {"from_version": 10},
    {"from_version": 7},
    {"from_version": 3, "to_version": 6},
    {"from_version": 9, "to_version": 11},
    {"from_version": 11, "to_version": 40},
    {"from_version": 13},
    {"from_version": 10, "beyond_latest": "error", "to_version": 13},
    {"from_beginning": True},
    {"from_version": 2, "on_gap": "report"},
)


@pytest.fixture
def table(tmp_path: Path) -> FeedTable:
    table = FeedTable(tmp_path / "orders")
    table.change(*((INSERT, (key, "")) for key in range(3)))
    while (version := table.log.snapshot().version) < LATEST:
        table.change((UPDATE, (version % 3, f"at {version}")))
        if version + 1 in (4, POINTER):
            checkpoint.write(table.path)
    return table


def log_of(table: FeedTable) -> Path:
    return table.path / files.FOLDER


def answer(location: Path | str, request: dict[str, Any]) -> object:
    """The rows of a range, or its error."""
    try:
        feed = read_feed(location, **request)
        rows = feed.to_arrow().to_pylist()
    except FeedError as error:
        return error.facts() | {"message": str(error), "hint": error.hint}
    return feed.facts(), rows


def assert_same(patch: pytest.MonkeyPatch, location: Path | str) -> None:
    for request in RANGES:
        patch.setattr(table_log, "LONG", LISTED)
        expected = answer(location, request)
        patch.setattr(table_log, "LONG", PROBED)
        assert answer(location, request) == expected, request


def counted(patch: pytest.MonkeyPatch, kind: type) -> list[int]:
    """Counts listings of whole logs."""
    made, names = [0], kind.names  # type: ignore[attr-defined]

    def listed(self: Any) -> list[str]:
        made[0] += 1
        return names(self)  # type: ignore[no-any-return]

    patch.setattr(kind, "names", listed)
    return made


def uploaded(table: FeedTable, s3: S3Server, patch: pytest.MonkeyPatch) -> str:
    s3.described(patch)
    url = f"{s3.new_bucket()}/orders"
    for path in table.path.rglob("*"):
        if path.is_file():
            s3.put(f"{url}/{path.relative_to(table.path)}", path.read_bytes())
    return url


@pytest.mark.clause("CF-170")
@pytest.mark.parametrize("place", ["folder", pytest.param("objects", marks=pytest.mark.full)])
def test_the_last_versions_are_read_without_listing_the_log(
    table: FeedTable, s3: S3Server, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    location: Path | str = table.path
    if place == "objects":
        location = uploaded(table, s3, monkeypatch)
    assert_same(monkeypatch, location)
    kind = files._LocalLogFiles if place == "folder" else files._ObjectLogFiles
    made = counted(monkeypatch, kind)
    # Version 6 is before the newest checkpoint, so that its columns are in the one before.
    for first in (POINTER + 1, LATEST, 6):
        assert read_feed(location, from_version=first).to_arrow().num_rows
    assert made == [0]
    read_feed(location, from_beginning=True)
    assert made != [0]


@pytest.mark.clause("CF-165", "CF-169")
def test_whatever_is_missing_is_noticed_as_in_a_listed_log(
    table: FeedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in [*log_of(table).iterdir(), *table.path.glob("_change_data/*")]:
        content = path.read_bytes()
        path.unlink()
        assert_same(monkeypatch, table.path)
        if path.parent == log_of(table):
            path.write_bytes(b"damaged")
            assert_same(monkeypatch, table.path)
        path.write_bytes(content)


@pytest.mark.full
def test_whatever_is_missing_among_objects_is_noticed(
    table: FeedTable, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = uploaded(table, s3, monkeypatch)
    store, key = addressed(url)
    for version in (3, POINTER, POINTER + 1, LATEST - 1):
        path = log_of(table) / f"{version:020d}.json"
        store.delete(f"{key}/{files.FOLDER}/{path.name}")
        assert_same(monkeypatch, url)
        s3.put(f"{url}/{files.FOLDER}/{path.name}", path.read_bytes())


def cleaned(table: FeedTable) -> None:
    """The log begins at its newest checkpoint, of which `_last_checkpoint` does not know yet."""
    checkpoint.write(table.path)
    pointer = json.loads((log_of(table) / LAST).read_bytes())
    (log_of(table) / LAST).write_text(json.dumps(pointer | {"version": POINTER}))
    for version in range(LATEST):
        (log_of(table) / f"{version:020d}.json").unlink()


def in_parts(table: FeedTable) -> None:
    """The newest checkpoint has two parts, one of them without actions."""
    name = log_of(table) / f"{POINTER:020d}.checkpoint.parquet"
    content = name.read_bytes()
    name.unlink()
    for part in (1, 2):
        path = name.with_name(f"{POINTER:020d}.checkpoint.{part:010d}.{2:010d}.parquet")
        path.write_bytes(content)
    (log_of(table) / LAST).write_text(json.dumps({"version": POINTER, "size": 1, "parts": 2}))


def with_an_id(table: FeedTable) -> None:
    """The newest checkpoint is one of the second kind."""
    name = log_of(table) / f"{POINTER:020d}.checkpoint.parquet"
    path = name.rename(name.with_name(f"{POINTER:020d}.checkpoint.{'0' * 36}.parquet"))
    said = {"version": POINTER, "size": 1, "v2Checkpoint": {"path": path.name}}
    (log_of(table) / LAST).write_text(json.dumps(said))


@pytest.mark.full
@pytest.mark.parametrize("change", [cleaned, in_parts, with_an_id])
def test_other_checkpoints_are_read_as_in_a_listed_log(
    table: FeedTable, monkeypatch: pytest.MonkeyPatch, change: Callable[[FeedTable], None]
) -> None:
    change(table)
    assert_same(monkeypatch, table.path)


@pytest.mark.clause("CF-162")
@pytest.mark.parametrize("distance", [2, 300, 100_000])
def test_a_gap_of_any_length_is_not_the_end(
    table: FeedTable, monkeypatch: pytest.MonkeyPatch, distance: int
) -> None:
    monkeypatch.setattr(table_log, "LONG", PROBED)
    newest = log_of(table) / f"{LATEST:020d}.json"
    newest.rename(log_of(table) / f"{LATEST + distance:020d}.json")
    for first in (10, LATEST + distance):
        with pytest.raises(FeedError, match=f"commit {LATEST} of .* is missing"):
            read_feed(table.path, from_version=first)


@pytest.mark.clause("CF-162")
def test_a_log_is_listed_again_only_after_a_change(
    table: FeedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_log, "LONG", PROBED)
    made, list_folder = [0], listed._listed

    def counting(folder: str) -> int:
        made[0] += 1
        return list_folder(folder)

    monkeypatch.setattr(listed, "_listed", counting)
    read_feed(table.path, from_version=10)
    read_feed(table.path, from_version=10)
    assert made == [2]  # the next change of the folder could have the same time as its last one
    monkeypatch.setattr(listed, "SETTLED", 0)
    for _ in range(3):
        assert read_feed(table.path, from_version=10).last == LATEST
    assert made == [3]
    later = log_of(table) / f"{LATEST + 300:020d}.json"
    later.write_text("{}")
    folder = log_of(table).stat()
    os.utime(log_of(table), ns=(folder.st_atime_ns, 0))  # as a restored copy has it
    with pytest.raises(FeedError, match=f"commit {LATEST + 1} of .* is missing"):
        read_feed(table.path, from_version=10)
    later.unlink()
    assert read_feed(table.path, from_version=10).last == LATEST
