"""A mirror is killed while a large batch is under way and quiet tables are ahead of it."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.app.loop.apply_loop import ApplyLoop
from mirrorlake.app.loop.background import Executors
from mirrorlake.apply.in_process.runner import InProcessRunner
from mirrorlake.mirror.batch_limits import BatchLimits
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.model.clock import WallClock
from mirrorlake.model.crash_points import CrashHook, CrashPoint, no_crash
from mirrorlake.storage.local import LocalStore
from tests.app.zones import MARKER, Zone
from tests.crash.entry import kill_at
from tests.doubles.handmade_engine import HandmadeReader, in_process_engine
from tests.profiles import some

pytestmark = pytest.mark.crash

LARGE = 3


class _Late(InProcessRunner):
    """The tasks of the busy table wait until the quiet one has its rows."""

    def __init__(self, is_ahead: threading.Event) -> None:
        super().__init__()
        self._is_ahead = is_ahead

    def run(self, work: Any, items: Sequence[Any], packing: Any = None) -> list[Any]:
        if any(getattr(item, "table", "") == "s.busy" for item in items):
            assert self._is_ahead.wait(120)
        return super().run(work, items, packing)


def mirrored(root: Path, reached: CrashHook, *, late: bool = False) -> None:
    """Apply all that is landed; late: the large batch last."""
    store, is_ahead = LocalStore(root), threading.Event()
    if not late:
        is_ahead.set()

    def noted(point: CrashPoint) -> None:
        reached(point)
        if point is CrashPoint.COMMIT_DURABLE:
            is_ahead.set()

    engine = in_process_engine(store, noted, runner=_Late(is_ahead))
    loop = ApplyLoop(
        store,
        engine,
        MirrorSettings(limits=BatchLimits(large_rows=LARGE)),
        WallClock(),
        reached=noted,
        executors=partial(Executors.threads, 2),
    )
    loop.open()
    report = loop.once()
    loop.close()
    assert not report.errors


def _killed(root: Path, point: str) -> None:
    mirrored(root, kill_at(point), late=True)


@pytest.mark.parametrize(
    "point", some(["batch.written", "commit.begun", "committed", "commit.durable"])
)
@pytest.mark.clause("LZ-258")
def test_the_large_batch_is_applied_once_whenever_the_mirror_dies(
    tmp_path: Path, point: str
) -> None:
    root = tmp_path / "root"
    zone = Zone(root, None)  # type: ignore[arg-type]
    for name, rows in (("busy", 10), ("quiet", 1)):
        zone.table(name, "id")
        zone.land(name, 1, {"id": list(range(rows)), MARKER: [4] * rows})
    child = multiprocessing.get_context("spawn").Process(
        target=_killed,
        args=(root, f"apply.{point}#2"),  # the second to pass is the busy table
    )
    child.start()
    child.join(300)
    assert child.exitcode == -signal.SIGKILL
    reader = HandmadeReader(LocalStore(root))
    assert len(reader.rows("Tables/s/quiet")) == 1
    is_applied = point in {"committed", "commit.durable"}
    assert len(reader.rows("Tables/s/busy")) == (10 if is_applied else 0)
    mirrored(root, no_crash)
    assert sorted(reader.rows("Tables/s/busy")) == [(n,) for n in range(10)]
    assert sum(sum(feed.values()) for feed in reader.feed("Tables/s/busy").values()) == 10
