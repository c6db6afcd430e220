"""A consumer is killed around each stored position: nothing is left out, and nothing is seen twice
by one that stores the position with its effect."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from mirrorlake.model.crash_points import CrashPoint
from tests.crash import consumer
from tests.crash.forked import forked
from tests.feed.handmade_feed import INSERT, FeedTable
from tests.profiles import some

pytestmark = pytest.mark.crash

POINTS = [
    f"{point}#{passage}"
    for point in (CrashPoint.SUBSCRIPTION_READ, CrashPoint.SUBSCRIPTION_STORED)
    for passage in (1, 2)
]
LAST = 4


def run(main: Callable[[str], None], root: Path, crash_at: str = "") -> int:
    ended = forked(main, str(root), CRASH_AT=crash_at)
    assert ended.code in {0, -signal.SIGKILL}, ended
    return ended.code


@pytest.mark.clause("CF-052")
@pytest.mark.parametrize("point", some(POINTS, 2))
@pytest.mark.parametrize("main", [consumer.with_its_own_position, consumer.with_ours])
def test_a_kill_anywhere_leaves_nothing_out(
    tmp_path: Path, main: Callable[[str], None], point: str
) -> None:
    table = FeedTable(tmp_path / "Tables/shop/orders")
    table.change((INSERT, (1, "a")))
    table.change((INSERT, (2, "b")))
    code, died = run(main, tmp_path, point), False
    died |= code == -signal.SIGKILL
    for number in (3, 4):
        table.change((INSERT, (number, "c")))
    code = run(main, tmp_path, point)
    died |= code == -signal.SIGKILL
    assert died
    assert run(main, tmp_path) == 0
    with closing(consumer.open_database(tmp_path)) as database:
        seen = database.execute("select version, is_snapshot from seen order by rowid").fetchall()
    times = Counter(version for version, _is_snapshot in seen)
    # A second snapshot takes the place of the first, and is newer then.
    begun = max(version for version, is_snapshot in seen if is_snapshot)
    assert {version for version in times if version >= begun} == set(range(begun, LAST + 1))
    if main is consumer.with_its_own_position:
        assert set(times.values()) == {1}
