"""Files that a writer appends to while they are read."""

from __future__ import annotations

import io
import json
from collections import Counter
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from mirrorlake.apply.events.consumer import EventConsumer
from mirrorlake.apply.events.journal import ReadFile
from mirrorlake.model.crash_points import no_crash
from mirrorlake.storage.local import LocalStore
from tests.apply.events.bucket import Bucket
from tests.apply.events.bucket import event as change
from tests.events.decode.files import avro, event


class _Grown(LocalStore):
    """Appends a part to the file at each of its reads that are told, counted over all its
    openings."""

    def __init__(self, folder: Path, parts: dict[int, bytes]) -> None:
        super().__init__(folder)
        self.parts, self.reads, self.opened = parts, 0, 0

    def open(self, path: str) -> BinaryIO:
        self.opened += 1
        return _File(self, super().open(path), self.root / path)  # type: ignore[return-value]


class _File(io.RawIOBase):
    def __init__(self, store: _Grown, file: BinaryIO, path: Path) -> None:
        super().__init__()
        self._store, self._file, self._path = store, file, path

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._file.seek(offset, whence)

    def readinto(self, buffer: Any) -> int:
        """At most 2,000 bytes, so that there are many reads."""
        found = self._file.read(min(len(buffer), 2_000))
        buffer[: len(found)] = found
        self._store.reads += 1
        if part := self._store.parts.pop(self._store.reads, b""):
            with self._path.open("ab") as file:
                file.write(part)
        return len(found)

    def close(self) -> None:
        self._file.close()
        super().close()


def _consumer(bucket: Bucket, store: LocalStore) -> EventConsumer:
    return EventConsumer(
        LocalStore(bucket.root),
        store,
        bucket.settings,
        bucket.clock,
        bucket,
        reached=no_crash,
        check=bucket.check,
    )


def _dead(consumer: EventConsumer) -> dict[str, ReadFile]:
    return {one.path: one for one in consumer._journal.dead}


def _lines(first: int, last: int, **more: Any) -> bytes:
    """Events that insert rows, of about 1,000 bytes each."""
    found = (change(n, {"id": n, "v": "x" * 400, **more}) for n in range(first, last))
    return b"".join(json.dumps(one).encode() + b"\n" for one in found)


@pytest.mark.clause("ST-178", "ST-223", "ST-253")
@pytest.mark.parametrize("is_append", [False, True])
@pytest.mark.parametrize(
    ("at", "is_large"),
    [(1, False), (2, False), (7, False), (1, True), (7, True), (14, True), (18, True)],
)
def test_lines_that_are_appended_during_the_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, is_large: bool, is_append: bool
) -> None:
    """One of them is only begun: it is complete in the next cycle. A large file is read twice."""
    if is_large:
        monkeypatch.setattr("mirrorlake.apply.events.file_reader.MOST_TOGETHER", 5_000)
        monkeypatch.setattr("mirrorlake.events.decode.json.events._TOGETHER", 2_000)
    bucket = Bucket(tmp_path, is_append=is_append)
    path = bucket.folder / "a.jsonl"
    path.write_bytes(_lines(10, 30))
    added = _lines(30, 33) + _lines(33, 40, w=True)
    cut = len(added) - 300
    store = _Grown(bucket.folder, {at: added[:cut]})
    consumer = _consumer(bucket, store)
    consumer.cycle()
    assert not store.parts
    assert store.opened >= (2 if is_large else 1)
    for letters in _dead(consumer).values():
        (letter,) = letters.letters
        assert letter.rows == (29,)
        assert "the line is not JSON" in letter.reason
    found = [row["id"] for row in bucket.plain()]
    assert found == list(range(10, 10 + len(found)))
    assert len(found) in {20, 29}  # as the file was, or with what was appended
    # The writer goes on during the next cycle too.
    store.parts[store.reads + 5] = added[cut:]
    consumer.cycle()
    store.parts.clear()
    consumer.cycle()
    assert _dead(consumer) == {}
    assert bucket.errors == {}
    rows = bucket.plain()
    assert Counter(row["id"] for row in rows) == dict.fromkeys(range(10, 40), 1)
    assert {row["id"] for row in rows if row["w"]} == set(range(33, 40))
    assert consumer.cycle() == 0


@pytest.mark.clause("ST-178", "ST-223", "ST-253")
@pytest.mark.parametrize("is_append", [False, True])
@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize("at", [1, 2, 6])
def test_blocks_that_are_appended_during_the_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, is_large: bool, is_append: bool
) -> None:
    """A file that ends within a block is a dead letter as a whole, until it ends with one."""
    if is_large:
        monkeypatch.setattr("mirrorlake.apply.events.file_reader.MOST_TOGETHER", 2_000)
        monkeypatch.setattr("mirrorlake.events.decode.avro_events._TOGETHER", 1_000)
    bucket = Bucket(tmp_path, is_append=is_append)
    whole = avro([event(n) for n in range(40)], sync_interval=500)
    ends = [end + 16 for end in range(len(whole)) if whole[end : end + 16] == whole[-16:]]
    path = bucket.folder / "a.avro"
    path.write_bytes(whole[: ends[len(ends) // 2]])
    rest = whole[ends[len(ends) // 2] :]
    store = _Grown(bucket.folder, {at: rest[:-100]})
    consumer = _consumer(bucket, store)
    consumer.cycle()
    assert not store.parts
    for file in _dead(consumer).values():
        (letter,) = file.letters
        assert letter.is_file
        assert "the file ends within block" in letter.reason
    with path.open("ab") as file:
        file.write(rest[-100:])
    consumer.cycle()
    assert _dead(consumer) == {}
    rows = bucket.plain("ea_main/my_table")
    assert Counter(row["id"] for row in rows) == dict.fromkeys(range(40), 1)
    assert consumer.cycle() == 0
