"""Replays: a copy is its source, version by version, and so is a copy of it."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrorlake import FeedTargetError, replay
from mirrorlake.model.change import Marker
from mirrorlake.model.crash_points import CrashPoint
from tests.delta.handmade import HandmadeTable
from tests.delta.readers import feed_of
from tests.feed.handmade_feed import DELETE, INSERT, SHAPE, UPDATE, FeedTable
from tests.feed.targets.test_random_targets import Source, sources
from tests.histories import Landing, Shape, counted
from tests.profiles import tries
from tests.reference import Change


class Killed(Exception):
    """Stands for the end of a process."""


def killed_at(passage: int) -> object:
    """A hook that ends its process at the n-th point, and at none after it."""
    left = [passage]

    def reached(_point: CrashPoint) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise Killed

    return reached


def changes_of(path: Path) -> list[Counter[object]]:
    """What each commit that changed rows tells, without versions and times."""
    feed = feed_of(path)
    return [feed[version] for version in sorted(feed) if feed[version]]


@settings(max_examples=tries(20))
@given(
    found=sources(),
    kills=st.lists(st.integers(1, 6), max_size=4),
    start=st.none() | st.integers(0, 3),
)
@pytest.mark.clause("CF-212", "CF-213", "CF-214", "CF-215")
def test_a_chain_of_copies_is_the_first_table(
    found: tuple[Shape, list[Landing], list[bool]], kills: list[int], start: int | None
) -> None:
    shape, landings, compactions = found
    with tempfile.TemporaryDirectory() as folder:
        source, one, two = Source(Path(folder), shape), Path(folder, "one"), Path(folder, "two")
        begun, last = None, 0
        for landing, is_compacted in zip(landings, compactions, strict=True):
            if not source.land(landing, is_compacted=is_compacted):
                return
            last = max(source.versions)
            if start is None or begun is not None or start <= last:
                begun = min(last, start or 0) if begun is None else begun
                _copied(source.table.path, one, shape, kills, None if start is None else begun)
                assert counted(HandmadeTable(one).rows()) == source.versions[last]
                _copied(one, two, shape, kills, None)
                assert counted(HandmadeTable(two).rows()) == source.versions[last]
        if start is None and begun is not None:
            assert changes_of(one) == changes_of(source.table.path)
            assert changes_of(two) == changes_of(source.table.path)


def _copied(source: Path, target: Path, shape: Shape, kills: list[int], begin: int | None) -> None:
    for passage in kills:
        try:
            replay(source, target, key=shape.key, from_version=begin, reached=killed_at(passage))
        except Killed:
            continue
    replay(source, target, key=shape.key, from_version=begin)


@pytest.mark.clause("CF-214")
def test_a_key_deleted_and_inserted_in_one_version_has_both_changes(tmp_path: Path) -> None:
    source, row = Source(tmp_path, SHAPE), (1, "a")
    for is_truncated in (False, True):
        source.land(Landing(((Change(Marker.UPSERT, row),),), is_truncated), is_compacted=False)
    _copied(source.table.path, tmp_path / "copy", SHAPE, [], None)
    assert changes_of(source.table.path)[-1].keys() == {("delete", row), ("insert", row)}
    assert changes_of(tmp_path / "copy") == changes_of(source.table.path)


@pytest.mark.clause("CF-212", "CF-213")
def test_it_begins_with_a_snapshot_and_goes_on_without_overlap_or_gap(tmp_path: Path) -> None:
    orders, copy = FeedTable(tmp_path / "orders"), tmp_path / "copy"
    orders.change((INSERT, (1, "a")), (INSERT, (2, "b")))
    orders.change((UPDATE, (1, "c")))
    assert replay(orders.path, copy, from_version=1, to_version=1).covered == 1
    assert sorted(HandmadeTable(copy).rows()) == [(1, "a"), (2, "b")]
    orders.change((DELETE, (2, None)))
    report = replay(orders.path, copy)
    assert (report.commits, report.updated, report.deleted, report.covered) == (2, 1, 1, 3)
    assert HandmadeTable(copy).rows() == [(1, "c")]
    assert replay(copy, tmp_path / "next").covered == 2  # which knows its key
    with pytest.raises(FeedTargetError, match="would leave some out"):
        replay(orders.path, copy, from_version=9)
