"""What the system refuses to a task is told as that, and not as a fault of ours."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from mirrorlake.apply.task.errors import table_error


def test_a_full_disk_is_reported_as_such(tmp_path: Path) -> None:
    with pytest.raises(OSError) as refused, Path("/dev/full").open("wb") as full:
        full.write(b"x")
    told = table_error("t", str(tmp_path), None, [], refused.value)
    assert told.code == "storage_unavailable"
    assert "no space left on device" in told.what
    assert "Free space" in told.hint
    assert "report" not in told.hint


def test_missing_permissions_are_reported_with_the_path(tmp_path: Path) -> None:
    refused = PermissionError(errno.EACCES, "Permission denied", "/some/file")
    told = table_error("t", str(tmp_path), None, [], refused)
    assert (told.code, "/some/file" in told.what) == ("storage_unavailable", True)


def test_an_unexpected_error_is_an_internal_error(tmp_path: Path) -> None:
    assert table_error("t", str(tmp_path), None, [], OSError("odd")).code == "internal"
