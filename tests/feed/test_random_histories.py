"""`read_feed` on random histories: what other readers give, and what the table becomes by it."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mirrorlake import read_feed
from tests.delta.handmade import HandmadeTable
from tests.delta.readers import feed_by_delta_rs
from tests.delta.write.test_rewrite import net_of
from tests.histories import Landing, Shape, counted, histories, rows_of
from tests.profiles import tries
from tests.reference import Row, plain

FOR_EVER = {"delta.deletedFileRetentionDuration": "interval 100000 days"}
NEW = {"insert", "update_postimage"}


def compacted(table: HandmadeTable) -> None:
    """Every file under another name, as compaction leaves it: without a change of rows."""
    actions: list[dict[str, Any]] = []
    for add in table.files:
        path = f"compacted-{table.log.snapshot().version}-{len(actions)}.parquet"
        shutil.copy(table.path / add["path"], table.path / path)
        remove = {name: add[name] for name in ("path", "deletionVector") if add.get(name)}
        actions += [
            {"remove": {**remove, "deletionTimestamp": 1, "dataChange": False}},
            {"add": {**add, "path": path, "dataChange": False}},
        ]
    table.commit(actions)


def feed_of(path: Path, **bounds: int) -> dict[int, Counter[tuple[str, Row]]]:
    return {
        commit.version: Counter(
            (kind, plain(tuple(row))) for *row, kind, _version, _time in rows_of(commit.rows)
        )
        for commit in read_feed(path, **bounds)  # type: ignore[call-overload]
    }


@settings(max_examples=tries(40))
@given(history=histories(batches=5), compactions=st.lists(st.booleans(), min_size=5, max_size=5))
def test_it_gives_what_delta_rs_gives_and_replays_to_each_version(
    history: tuple[Shape, list[Landing]], compactions: list[bool]
) -> None:
    shape, landings = history
    with tempfile.TemporaryDirectory() as folder:
        table = HandmadeTable(Path(folder, "t"), shape.schema, properties=FOR_EVER)
        versions = {0: Counter[Row]()}
        for landing, is_compacted in zip(landings, compactions, strict=False):
            table.apply(net_of(shape, landing))
            versions[table.log.snapshot().version] = counted(table.rows())
            if is_compacted:
                compacted(table)
                versions[table.log.snapshot().version] = counted(table.rows())
        found = feed_of(table.path, from_version=0)
        assert found == feed_by_delta_rs(table.path)
        rows: Counter[Row] = Counter()
        for version, expected in versions.items():
            for (kind, row), count in found.get(version, Counter()).items():
                rows[row] += count if kind in NEW else -count
            assert +rows == expected
            assert not -rows
        for cut in versions:
            parts = feed_of(table.path, from_version=0, to_version=cut)
            assert parts | feed_of(table.path, from_version=cut + 1) == found
