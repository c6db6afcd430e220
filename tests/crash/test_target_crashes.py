"""What builds a table from a change feed is killed: nothing is lost, nothing twice."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from mirrorlake.model.crash_points import CrashPoint
from tests.crash.forked import mirrorlake
from tests.delta.handmade import HandmadeTable
from tests.feed.handmade_feed import DELETE, INSERT, UPDATE, FeedTable
from tests.profiles import some

pytestmark = pytest.mark.crash

POINTS = [CrashPoint.TARGET_WRITTEN, CrashPoint.TARGET_COMMITTED]
COMMANDS = ["history", "history --type 1", "history --from-version 1", "archive", "replay"]


@pytest.mark.parametrize("point", some(POINTS))
@pytest.mark.parametrize("command", some(COMMANDS))
@pytest.mark.clause("CF-193", "CF-201", "CF-211", "CF-215")
def test_a_target_whose_builder_is_killed_goes_on(
    tmp_path: Path, point: CrashPoint, command: str
) -> None:
    orders = FeedTable(tmp_path / "orders")
    orders.change((INSERT, (1, "a")), (INSERT, (2, "b")))

    def build(target: str, **environment: str) -> int:
        arguments = [*command.split(), str(orders.path), "--to", str(tmp_path / target)]
        return mirrorlake(*arguments, **environment).code

    def rows(target: str) -> list[str]:
        return sorted(map(repr, HandmadeTable(tmp_path / target).rows()))

    assert build("killed", CRASH_AT=point) == -signal.SIGKILL
    orders.change((UPDATE, (1, "c")))
    assert build("killed", CRASH_AT=point) == -signal.SIGKILL
    orders.change((DELETE, (1, None)), (INSERT, (3, "d")))
    assert build("killed") == 0
    assert build("whole") == 0
    assert rows("killed") == rows("whole")
