"""The side record of a table in timestamp mode: the names of all files it has applied (LZ-127).

The commits contain these names first, but the log of a table loses its commits after some time; the
record does not. It is append-only, and consists of segments, each written atomically and named by
its batches `first-last`. The newest segments are merged from time to time, so that there are never
many.

The content of a batch is defined by its commit. So a segment is correct no matter which process
writes it, and when, and overlapping segments agree.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

import structlog

from mirrorlake.model.landed import FORMAT, LaterFormat, NamedBatch
from mirrorlake.storage.store import Store

log = structlog.get_logger()

DAMAGED = "processed_record_damaged"
FAN = 16
"""Number of segments of similar size that are merged."""
FULL = 50_000
"""Number of names from which a segment is not merged again, which limits the cost of a merge."""

_ATTEMPTS = 5
_NAME = re.compile(r"([0-9]{20})-([0-9]{20})\.json")


@dataclass(frozen=True, slots=True)
class Segment:
    """The names that the batches first..last applied, in order. version: that of the last batch."""

    first: int
    last: int
    version: int
    names: tuple[str, ...]

    @property
    def width(self) -> int:
        return self.last - self.first + 1

    @classmethod
    def of(cls, batches: Sequence[NamedBatch]) -> Self:
        """The segment of consecutive batches; at least one."""
        names = tuple(name for batch in batches for name in batch.names)
        return cls(batches[0].number, batches[-1].number, batches[-1].version, names)

    def encode(self) -> bytes:
        record = {
            "format": FORMAT,
            "batches": [self.first, self.last],
            "version": self.version,
            "names": self.names,
        }
        return (json.dumps(record, ensure_ascii=False) + "\n").encode()

    @classmethod
    def decode(cls, content: bytes) -> Self:
        """Raises LaterFormat for a segment of a later release, another ValueError for a damaged
        one."""
        record: dict[str, Any] = json.loads(content)
        try:
            if record["format"] != FORMAT:
                raise LaterFormat(
                    f"processed files have format {record['format']}; this release reads format "
                    f"{FORMAT}"
                )
            first, last = record["batches"]
            return cls(int(first), int(last), int(record["version"]), tuple(record["names"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a valid segment: {error}") from None


class SideRecord:
    """The segments of one table in `folder`. Many processes may read; only the mirror writes."""

    def __init__(self, store: Store, folder: str) -> None:
        self._store, self._folder = store, folder
        self._segments: list[tuple[int, int, int]] = []  # first, last, names; ascending

    def read(self) -> list[Segment]:
        """The segments from batch 1, ascending, up to the first gap.

        A damaged segment counts as missing. Raises LaterFormat.
        """
        for _ in range(_ATTEMPTS):
            with suppress(FileNotFoundError):  # merged with others since they were listed
                return self._read()
        return self._read()

    def append(self, batches: Sequence[NamedBatch]) -> None:
        """Write the batches that follow the recorded ones; durable on return."""
        segment = Segment.of(batches)
        self._write(segment)
        while (start := _tail(self._segments)) is not None:
            self._join(start)

    def _write(self, segment: Segment) -> None:
        self._store.replace(self._path(segment.first, segment.last), segment.encode())
        self._segments.append((segment.first, segment.last, len(segment.names)))

    def _join(self, start: int) -> None:
        """Write the segments from `start` as one segment, then delete them."""
        spans = self._segments[start:]
        del self._segments[start:]
        try:
            parts = [self._segment(first, last) for first, last, _names in spans]
        except FileNotFoundError:
            return  # another process took over and has merged them
        whole = [part for part in parts if part]
        if len(whole) < len(parts):
            return  # damaged since they were written: the next start detects it
        first, last = whole[0].first, whole[-1].last
        names = tuple(dict.fromkeys(name for part in whole for name in part.names))
        self._write(Segment(first, last, whole[-1].version, names))
        for span in self._listed():
            if first <= span[0] and span[1] <= last and span != (first, last):
                self._store.delete(self._path(*span))

    def _read(self) -> list[Segment]:
        found: list[Segment] = []
        covered = 0
        for first, last in sorted(self._listed(), key=lambda span: (span[0], -span[1])):
            if first > covered + 1:
                break
            if last > covered and (segment := self._segment(first, last)):
                found.append(segment)
                covered = last
        self._segments = [(s.first, s.last, len(s.names)) for s in found]
        return found

    def _listed(self) -> list[tuple[int, int]]:
        names = (_NAME.fullmatch(file.name) for file in self._store.list(self._folder).files)
        return [(int(match[1]), int(match[2])) for match in names if match]

    def _segment(self, first: int, last: int) -> Segment | None:
        path = self._path(first, last)
        try:
            return Segment.decode(self._store.read(path))
        except LaterFormat:
            raise
        except ValueError as error:
            log.warning(DAMAGED, path=path, reason=type(error).__name__)
            return None

    def _path(self, first: int, last: int) -> str:
        return f"{self._folder}/{first:020d}-{last:020d}.json"


def _tail(segments: Sequence[tuple[int, int, int]]) -> int | None:
    """The index of the first of the newest segments to merge; None if there is nothing to merge.

    For each power of `FAN`, fewer than `FAN` segments of at most that width remain, not counting
    full ones.
    """
    limit = 1
    while True:
        start = len(segments)
        while start > 0 and _is_small(segments[start - 1], limit):
            start -= 1
        if len(segments) - start >= FAN:
            return start
        if start == 0 or segments[start - 1][2] >= FULL:
            return None
        limit *= FAN


def _is_small(segment: tuple[int, int, int], limit: int) -> bool:
    first, last, names = segment
    return last - first < limit and names < FULL
