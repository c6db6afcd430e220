"""Files that are flushed while others are written are durable when their task says so."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from mirrorlake.delta.write import data_files, flush


class Disk:
    """Notes which files are durable, and is as slow as it is told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.durable: list[str] = []
        self.goes_on = threading.Event()
        self.error: OSError | None = None
        self._flush = os.fsync
        monkeypatch.setattr(flush.os, "fsync", self._fsync)

    def _fsync(self, handle: int) -> None:
        assert self.goes_on.wait(10)
        if self.error is not None:
            raise self.error
        self._flush(handle)
        self.durable.append(Path(f"/proc/self/fd/{handle}").readlink().name)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def written(path: Path) -> None:
    data_files.write_bytes(path, b"some bytes")


def test_a_file_is_durable_when_it_is_written(tmp_path: Path, disk: Disk) -> None:
    disk.goes_on.set()
    written(tmp_path / "a")
    assert disk.durable == ["a"]


def test_files_are_durable_together_and_no_later_than_the_end(tmp_path: Path, disk: Disk) -> None:
    with flush.flush_in_background():
        for name in ("a", "b", "c"):
            written(tmp_path / name)
        assert disk.durable == []  # and yet the next one could be written
        disk.goes_on.set()
    assert sorted(disk.durable) == ["a", "b", "c"]


def test_nested_contexts_are_durable_at_their_own_end(tmp_path: Path, disk: Disk) -> None:
    disk.goes_on.set()
    with flush.flush_in_background():
        with flush.flush_in_background():
            written(tmp_path / "a")
        assert disk.durable == ["a"]
        written(tmp_path / "b")
    assert disk.durable == ["a", "b"]


def test_files_of_other_threads_are_not_waited_for(tmp_path: Path, disk: Disk) -> None:
    """Each flushes what it has written itself."""
    disk.goes_on.set()
    with flush.flush_in_background():
        other = threading.Thread(target=written, args=(tmp_path / "theirs",))
        other.start()
        other.join()
        assert disk.durable == ["theirs"]


def test_files_that_wait_for_a_slow_disk_are_bounded(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them is open until it is durable."""
    monkeypatch.setattr(flush, "MAX_PENDING", 2)
    names = [f"{n}" for n in range(9)]
    threading.Timer(0.2, disk.goes_on.set).start()
    with flush.flush_in_background():
        for number, name in enumerate(names, start=1):
            written(tmp_path / name)
            assert number - len(disk.durable) <= 2
    assert sorted(disk.durable) == names


def test_a_failing_disk_is_an_error_at_the_end(tmp_path: Path, disk: Disk) -> None:
    disk.goes_on.set()
    disk.error = OSError(errno.EIO, "no more")
    with pytest.raises(OSError, match="no more"), flush.flush_in_background():
        written(tmp_path / "a")


def test_an_error_inside_waits_for_pending_flushes(tmp_path: Path, disk: Disk) -> None:
    disk.goes_on.set()

    def fail() -> None:
        with flush.flush_in_background():
            written(tmp_path / "a")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert disk.durable == ["a"]


def test_a_forked_process_has_its_own_threads(tmp_path: Path) -> None:
    with flush.flush_in_background():
        written(tmp_path / "a")
    child = os.fork()
    if not child:
        with flush.flush_in_background():
            written(tmp_path / "b")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
