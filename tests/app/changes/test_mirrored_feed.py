"""What the change feed of a mirrored landing zone tells, file by file and from life to life."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from mirrorlake import FeedError, read_feed, replay, subscribe
from mirrorlake.mirror.batch_limits import BatchLimits
from mirrorlake.mirror.settings import MirrorSettings
from tests.app.zones import MARKER, Zone
from tests.delta.handmade import HandmadeTable
from tests.mirror.test_golden import KEY, ROWS_A, ROWS_B, SCHEMA, A, B, Change

TABLE = "Tables/s/t"
LOCATION = SCHEMA.names[1]
BEFORE, AFTER = "update_preimage", "update_postimage"
FEED_A = [
    [("insert", "E0001", "Redmond")],
    [("insert", "E0002", "Redmond")],
    [("insert", "E0003", "Redmond")],
    [(BEFORE, "E0001", "Redmond"), (AFTER, "E0001", "Bellevue")],
]
FEED_B = [
    [("insert", "E0001", "Bellevue")],
    [("delete", "E0001", "Bellevue")],
    [("insert", "E0002", "Bellevue")],
]


@pytest.mark.clause("CF-088")
@pytest.mark.parametrize(
    ("changes", "feed", "rows"), [(A, FEED_A, ROWS_A), (B, FEED_B, ROWS_B)], ids=["A", "B"]
)
def test_the_golden_example_file_by_file(
    tmp_path: Path, changes: Sequence[Change], feed: list[Any], rows: list[tuple[str, str]]
) -> None:
    zone = Zone(tmp_path / "root", settings=MirrorSettings(limits=BatchLimits(files=1)))
    zone.table("t", KEY)
    for number, (marker, key, location) in enumerate(changes, start=1):
        columns = {KEY: [key], LOCATION: pa.array([location], pa.string()), MARKER: [marker]}
        zone.land("t", number, columns)
    assert not zone.apply().errors
    table = zone.root / TABLE
    found = [
        [(row["_change_type"], row[KEY], row[LOCATION]) for row in commit.rows.to_pylist()]
        for commit in read_feed(table, from_beginning=True, sort=True)
    ]
    assert found == feed
    replay(table, tmp_path / "copy")
    assert sorted(HandmadeTable(tmp_path / "copy").rows()) == zone.rows("t") == rows


@pytest.mark.clause("CF-070")
def test_columns_are_only_added_and_a_recreated_table_begins_another_feed(tmp_path: Path) -> None:
    zone = Zone(tmp_path / "root")
    zone.table("t", "id")
    for number, columns in enumerate(
        ({"id": [1], "v": ["a"]}, {"id": [2], "w": [5], "v": ["b"]}, {"id": [3]}), start=1
    ):
        zone.land("t", number, columns)
        assert not zone.apply().errors
    table = zone.root / TABLE
    feed = read_feed(table, from_beginning=True, on_schema_change="error").to_arrow()
    assert [(row["id"], row["v"], row["w"]) for row in feed.to_pylist()] == [
        (1, "a", None),
        (2, "b", 5),
        (3, None, None),
    ]
    with subscribe("audit", table) as reader:
        assert [one.version for one in reader] == [feed["_commit_version"].to_pylist()[-1]]
    shutil.rmtree(zone.folder("t"))
    zone.table("t", "id")
    zone.land("t", 1, {"id": ["other"]})
    assert not zone.apply().errors
    with (
        subscribe("audit", table) as reader,
        pytest.raises(FeedError, match="the table was removed, made anew"),
    ):
        list(reader)
    again = read_feed(table, from_beginning=True).to_arrow()
    assert again["id"].to_pylist() == ["other"]
