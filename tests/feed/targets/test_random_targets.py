"""Histories of random tables: what they hold of each version, and that no way of cutting the
versions into runs matters."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrorlake import history
from mirrorlake.delta.write.rewrite import rewrite
from mirrorlake.mirror.compaction import small_files
from tests.delta.handmade import HandmadeTable
from tests.delta.write.test_rewrite import net_of
from tests.feed.test_random_histories import FOR_EVER, compacted
from tests.histories import SHAPES, Landing, Shape, counted, histories
from tests.profiles import tries
from tests.reference import Row, plain

KEYED = [*SHAPES.values()]


class Source:
    """A table, its rows as of each version, and whether a key is there twice."""

    def __init__(self, folder: Path, shape: Shape) -> None:
        self.table = HandmadeTable(folder / "source", shape.schema, properties=FOR_EVER)
        self.shape = shape
        self.versions = {0: Counter[Row]()}

    def land(self, landing: Landing, *, is_compacted: bool) -> bool:
        """False, and nothing is landed, where a key would be there twice (CF-200)."""
        table = self.table
        done = rewrite(table.path, table.files, table.schema, net_of(self.shape, landing), 1)
        version = table.commit(done.actions)
        rows = table.rows()
        keys = Counter(plain(tuple(row[i] for i in self.shape.indexes)) for row in rows)
        if keys and max(keys.values()) > 1:
            return False
        self.versions[version] = counted(rows)
        if is_compacted:
            compacted(table)
            self.versions[table.log.snapshot().version] = counted(rows)
        return True


@st.composite
def sources(draw: st.DrawFn, batches: int = 5) -> tuple[Shape, list[Landing], list[bool]]:
    """A shape and what lands, each key of which is there once: so nothing is inserted blindly."""
    shape, landings = draw(histories(shapes=KEYED, batches=batches))
    compactions = draw(st.lists(st.booleans(), min_size=len(landings), max_size=len(landings)))
    return shape, [_once(shape, some) for some in landings], compactions


def _once(shape: Shape, landing: Landing) -> Landing:
    from mirrorlake.model.change import Marker
    from tests.reference import UNCHANGED, Change

    def single(change: Change) -> Change:
        if change.marker in {Marker.INSERT, Marker.UPDATE} and UNCHANGED not in change.row:
            return Change(Marker.UPSERT, change.row)
        return change

    return Landing(tuple(tuple(map(single, file)) for file in landing.files), landing.truncate)


def built(source: Source, target: Path, cuts: set[int], **asked: Any) -> HandmadeTable:
    """A history, brought up to each of some versions in runs of its own, and to the last."""
    begin = asked["from_version"] or 0
    for last in sorted(cut for cut in cuts & source.versions.keys() if cut >= begin):
        history(source.table.path, target, key=source.shape.key, to_version=last, **asked)
    history(source.table.path, target, key=source.shape.key, **asked)
    return HandmadeTable(target)


@settings(max_examples=tries(24))
@given(found=sources(), cuts=st.sets(st.integers(0, 12)), start=st.none() | st.integers(0, 4))
@pytest.mark.clause("CF-202", "CF-209", "CF-211", "CF-205", "CF-203", "CF-199", "CF-075")
def test_a_history_holds_each_version_however_it_was_cut(
    found: tuple[Shape, list[Landing], list[bool]], cuts: set[int], start: int | None
) -> None:
    shape, landings, compactions = found
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(small_files, "FANOUT", 2)  # histories are compacted again and again
        patched.setattr(small_files, "SMALLEST", 2)
        source = Source(Path(folder), shape)
        for landing, is_compacted in zip(landings, compactions, strict=True):
            if not source.land(landing, is_compacted=is_compacted):
                return
        last = max(source.versions)
        start = None if start is None or start > last else start
        asked: dict[str, Any] = {"from_version": start}
        newest = built(source, Path(folder, "newest"), cuts, type=1, **asked)
        assert counted(newest.rows()) == source.versions[last]
        cut = built(source, Path(folder, "cut"), cuts, current=True, **asked)
        whole = built(source, Path(folder, "whole"), set(), current=True, **asked)
        rows = cut.rows()
        assert counted(rows) == counted(whole.rows())
        width = len(shape.schema)
        for version, expected in source.versions.items():
            if version >= (start or 0):
                at = [
                    row[:width]
                    for row in rows
                    if row[width] <= version
                    and (row[width + 1] is None or version < row[width + 1])
                ]
                assert counted(at) == expected, version
        for row in rows:
            assert row[width + 1] is None or row[width] < row[width + 1]
            assert row[width + 2] == (row[width + 1] is None)
