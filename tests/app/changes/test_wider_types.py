"""A landing zone that is made of a table whose columns get wider types."""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.app.changes.convert import convert
from mirrorlake.app.mirror import Mirror
from mirrorlake.model.crash_points import CrashPoint
from tests.app.changes.test_convert import Died, dying
from tests.app.changes.test_every_event import Converted
from tests.app.zones import Zone

POINTS = [
    None,
    CrashPoint.FOLDER_DROPPED,
    CrashPoint.BATCH_ASSIGNED,
    CrashPoint.BATCH_PUBLISHED_ONE,
    CrashPoint.BATCH_RECORDED,
]


def put(one: Converted, *changes: tuple[str, int, Any]) -> None:
    """Write a file of JSON without a schema."""
    one.put(*one.events(*changes))


@pytest.mark.clause("LZ-220", "LZ-222", "ST-262")
@pytest.mark.parametrize("point", POINTS)
def test_the_folder_is_made_anew_and_every_later_change_follows(
    tmp_path: Path, point: CrashPoint | None
) -> None:
    one = Converted(tmp_path)
    put(one, ("INSERT", 1, 10), ("INSERT", 2, 20), ("UPDATE", 2, 21))
    one.convert()
    one.zone.apply()
    assert one.zone.rows("orders") == [(1, 10), (2, 21)]
    half = Decimal("0.5")
    put(one, ("UPDATE", 1, 0.5), ("UPDATE", 1, 11), ("DELETE", 2, 0), ("INSERT", 3, 30))
    with suppress(Died):
        one.convert(dying(point, 1))
    done = one.convert()
    assert done is None or done.error is None
    landed: list[Any] = one.landed()
    assert sorted(landed[:2], key=repr) == [(4, 1, 10), (4, 2, 21)]
    assert {row for row in landed[2:] if row[1] == 1} == {(1, 1, half), (1, 1, 11)}
    assert {row for row in landed[2:] if row[1] != 1} == {(2, 2, 21), (0, 3, 30)}
    one.zone.apply()
    rows: list[Any] = one.table()
    assert one.zone.rows("orders") == rows == [(1, 11), (3, 30)]
    # It goes on with the new types, and nothing comes twice.
    put(one, ("UPDATE", 3, 2.5))
    one.convert()
    landed = one.landed()
    assert landed[-1:] == [(1, 3, Decimal("2.5"))]
    one.zone.apply()
    assert one.zone.rows("orders") == one.table()


def test_a_new_zone_begins_with_the_rows_of_the_last_wider_type(tmp_path: Path) -> None:
    one = Converted(tmp_path)
    for value in (10, 0.5, 20):
        put(one, ("INSERT", one.number + 1, value))
        one.convert()
    other = Zone(tmp_path / "other")
    with Mirror(one.project) as mirror:
        (done,) = convert(mirror, other.root)
    assert (done.error, done.snapshot, done.changes) == (None, 1, 2)
    other.apply()
    assert other.rows("orders") == one.table()
