"""The process of capture: what it tells, and that it never outlives who started it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from mirrorlake.app.loop.watcher import Watcher
from mirrorlake.app.running.capture_process import CaptureProcess
from mirrorlake.capture.sink import LoadProgress
from mirrorlake.capture.watch.retention import LogRetention
from mirrorlake.model.table import TableId
from tests.conformance.scene import until

TABLE = TableId("s", "t")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def tells(stop: threading.Event, watcher: Watcher) -> None:
    for rows in range(1, 1000):
        watcher.loading(LoadProgress(TABLE, rows, None))
    watcher.loading(LoadProgress(TABLE, 1000, None, done=True))
    watcher.retained(LogRetention(NOW, 7))
    stop.wait()


def never_stops(folder: Path, _stop: threading.Event, _watcher: Watcher) -> None:
    (folder / "pid").write_text(str(os.getpid()))
    time.sleep(600)


class Heard(Watcher):
    def __init__(self) -> None:
        self.rows: list[int] = []
        self.kept: list[int] = []

    def loading(self, progress: LoadProgress) -> None:
        self.rows.append(progress.rows)

    def retained(self, log: LogRetention) -> None:
        self.kept.append(log.size)


def test_what_it_tells_is_heard_now_and_then_and_at_the_end() -> None:
    heard = Heard()
    process = CaptureProcess(tells, watcher=heard)
    process.start()

    def is_told() -> bool:
        process.check()
        return bool(heard.kept)

    until(is_told)
    process.stop()
    process.check()
    assert (heard.rows[0], heard.rows[-1]) == (1, 1000)
    assert len(heard.rows) < 100
    assert heard.kept == [7]


def test_it_is_left_within_five_seconds_whatever_it_does(tmp_path: Path) -> None:
    process = CaptureProcess(partial(never_stops, tmp_path))
    process.start()
    until((tmp_path / "pid").exists)
    begun = time.monotonic()
    process.stop()
    assert time.monotonic() - begun < 5


def test_it_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    script = (
        "import os, pathlib, time\n"
        "from functools import partial\n"
        "from mirrorlake.app.running.capture_process import CaptureProcess\n"
        "from tests.app.running.test_capture_process import never_stops\n"
        "if __name__ == '__main__':\n"
        f"    folder = pathlib.Path({str(tmp_path)!r})\n"
        "    CaptureProcess(partial(never_stops, folder)).start()\n"
        "    while not (folder / 'pid').exists():\n"
        "        time.sleep(0.05)\n"
        "    os._exit(9)\n"
    )
    file = tmp_path / "parent.py"
    file.write_text(script)
    root = Path(__file__).parents[3]
    path = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
    subprocess.run([sys.executable, file], check=False, env=os.environ | {"PYTHONPATH": path})
    pid = int((tmp_path / "pid").read_text())
    until(lambda: not _runs(pid))


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
