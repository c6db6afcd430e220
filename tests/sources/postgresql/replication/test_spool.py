"""Messages that wait in memory and in a file."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.errors import StorageUnavailable
from mirrorlake.sources.postgresql.replication import spool as module
from mirrorlake.sources.postgresql.replication.spool import Spool

MESSAGES = st.binary(max_size=40)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), MESSAGES),
        st.tuples(st.just("write out"), st.none()),
        st.tuples(st.just("cut"), st.floats(0, 1)),
    ),
    max_size=40,
)


@given(STEPS, st.sampled_from([1, 7, 64, 1 << 20]))
def test_messages_come_back_in_order_wherever_they_wait(
    steps: list[tuple[str, object]], block: int
) -> None:
    spool, model, places = Spool(), [], []
    for number, (step, value) in enumerate(steps):
        if step == "append":
            assert isinstance(value, bytes)
            places.append(spool.end)
            spool.append(number, value)
            model.append((number, value))
        elif step == "write out":
            spool.write_out()
            assert spool.in_memory == 0
        elif places:
            assert isinstance(value, float)
            left = int(value * (len(places) - 1))
            spool.cut(places[left])
            del model[left:], places[left:]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BLOCK", block)
        assert list(spool.messages()) == model


def test_a_message_may_be_larger_than_what_is_read_at_once() -> None:
    spool = Spool()
    large = os.urandom(3 << 20)
    for message in (b"a", large, b"b"):
        spool.append(1, message)
        spool.write_out()
    assert [message for _, message in spool.messages()] == [b"a", large, b"b"]


def test_the_file_has_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    spool = Spool()
    spool.append(1, b"a")
    spool.write_out()
    assert list(tmp_path.iterdir()) == []
    files = _open_files()
    spool.close()
    assert _open_files() == files - 1


def test_a_full_disk_is_one_error_that_names_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    spool = Spool()
    spool.append(1, b"a")
    with Path("/dev/full").open("r+b", buffering=0) as full:
        monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: full)
        with pytest.raises(StorageUnavailable) as raised:
            spool.write_out()
    assert "no space left on device" in raised.value.what
    assert raised.value.where == str(tmp_path)
    assert "TMPDIR" in raised.value.hint


def test_without_a_folder_for_files_the_error_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    spool = Spool()
    spool.append(1, b"a")
    with pytest.raises(StorageUnavailable, match="missing"):
        spool.write_out()


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
