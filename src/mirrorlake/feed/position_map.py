"""Which version of a table applied which files, up to which position of the source (CF-155).

The commits of a table say so, and its log forgets them. So what they say is copied below the root
of the mirror before the log is cleaned, in segments of consecutive versions, each written
atomically and named by them. A segment that is lost is made again of what the log still has.

The commit that a segment ends with tells whether the table is still that of which it was made: a
table that was made anew in its place, or replaced by an older copy, has other commits.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq
import structlog

from mirrorlake.delta.log.history import CommittedBatch, batch_of
from mirrorlake.delta.log.table_log import Action, TableLog
from mirrorlake.root import POSITIONS, TABLES
from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.store import Store, UnsafePath
from mirrorlake.storage.urls import is_url, open_store

log = structlog.get_logger()

DAMAGED = "position_map_damaged"
FULL = 10_000
"""Batches from which a segment gets no more, so that little is written again."""

_FORMAT, _COMMIT = b"mirrorlake.format", b"mirrorlake.commit"
_VERSION = b"1"
_NAME = re.compile(r"([0-9]{20})-([0-9]{20})\.parquet")
_TIME = pa.timestamp("us", "UTC")
_SCHEMA = pa.schema(
    [
        pa.field("version", pa.int64(), nullable=False),
        pa.field("time", _TIME, nullable=False),
        pa.field("first", pa.int64(), nullable=False),
        pa.field("last", pa.int64(), nullable=False),
        pa.field("position", pa.string()),
        pa.field("cut", pa.int64()),
        pa.field("inserts", pa.int64(), nullable=False),
        pa.field("updates", pa.int64(), nullable=False),
        pa.field("deletes", pa.int64(), nullable=False),
        pa.field("source_time", _TIME),
    ]
)


@dataclass(frozen=True, slots=True)
class MappedVersions:
    """What the versions first..last said. commit: identity of the last of them; batches: those of
    the mirror among them, ascending, without the rows of single files."""

    first: int
    last: int
    commit: str
    batches: tuple[CommittedBatch, ...]

    def encode(self) -> bytes:
        rows = [{name: getattr(one, name) for name in _SCHEMA.names} for one in self.batches]
        told = {_FORMAT: _VERSION, _COMMIT: self.commit.encode()}
        file = io.BytesIO()
        table = pa.Table.from_pylist(rows, _SCHEMA.with_metadata(told))
        pq.write_table(table, file, compression="zstd")
        return file.getvalue()

    @classmethod
    def decode(cls, first: int, last: int, content: bytes) -> Self:
        """Raises ValueError for what is damaged, or of another format."""
        try:
            table = pq.read_table(pa.BufferReader(content))
            told = table.schema.metadata or {}
            if told.get(_FORMAT) != _VERSION or not table.schema.equals(_SCHEMA):
                raise ValueError("not a segment of format 1")
            batches = tuple(CommittedBatch(**row) for row in table.to_pylist())
        except (pa.ArrowException, OSError) as error:
            raise ValueError(str(error)) from error
        if any(not first <= one.version <= last for one in batches):
            raise ValueError("it has other versions than its name says")
        return cls(first, last, told.get(_COMMIT, b"").decode(), batches)


class PositionMap:
    """The map of one table. Many processes may read it; only the mirror writes it."""

    def __init__(self, store: Store, table: str) -> None:
        """table: its path below the root."""
        self._store = store
        self._folder = f"{POSITIONS}/{table.removeprefix(f'{TABLES}/')}"

    @classmethod
    def of(cls, table: str, options: ObjectOptions | None = None) -> Self | None:
        """That of the table at a location; None for a table that is in no mirror."""
        base, inside = in_mirror(table)
        return cls(open_store(base, options), f"{TABLES}/{inside}") if base else None

    def keep(self, table_log: TableLog) -> int:
        """Copy what the log says beyond the map. Returns how many versions that were. Durable when
        it returns. Raises OSError, BrokenLog."""
        versions = unbroken(table_log.versions())
        if not versions:
            return 0
        newest = self._newest(table_log, versions)
        spans = self._spans()
        new = [v for v in versions if not any(first <= v <= last for first, last in spans)]
        for last in [v for v in new if v + 1 not in new]:
            run = unbroken([v for v in new if v <= last])
            before: tuple[CommittedBatch, ...] = ()
            first = run[0]
            if newest and newest.last == first - 1 and len(newest.batches) < FULL:
                first, before = newest.first, newest.batches
            found = [one for v in run for one in batches_in(v, table_log.actions(v))]
            commit = identity(table_log.actions(last))
            self._write(MappedVersions(first, last, commit, (*before, *found)))
        return len(new)

    def newest_first(self, table_log: TableLog) -> Iterator[MappedVersions]:
        """What is kept of the table as it is now, from the newest versions back. What cannot be
        read is left out."""
        try:
            spans, versions = self._spans(), unbroken(table_log.versions())
        except (OSError, UnsafePath):
            return
        is_true = False
        for span in reversed(spans):
            try:
                segment = self._segment(*span)
                is_true = is_true or (segment is not None and _is_of(segment, table_log, versions))
            except OSError:
                continue
            if segment is not None and is_true:
                yield segment

    def _newest(self, table_log: TableLog, versions: Sequence[int]) -> MappedVersions | None:
        """The newest segment that is not damaged, nor of another table: such are removed."""
        while spans := self._spans():
            with suppress(FileNotFoundError):
                segment = self._segment(*spans[-1])
                if segment is not None and _is_of(segment, table_log, versions):
                    return segment
            self._store.delete(self._path(*spans[-1]))
        return None

    def _write(self, segment: MappedVersions) -> None:
        """Those that it contains are removed afterwards."""
        self._store.replace(self._path(segment.first, segment.last), segment.encode())
        for first, last in self._listed():
            is_inside = segment.first <= first and last <= segment.last
            if is_inside and (first, last) != (segment.first, segment.last):
                self._store.delete(self._path(first, last))

    def _spans(self) -> list[tuple[int, int]]:
        """First and last version of each segment, ascending, without those inside others."""
        found: list[tuple[int, int]] = []
        for first, last in sorted(self._listed(), key=lambda span: (span[0], -span[1])):
            if not found or last > found[-1][1]:
                found.append((first, last))
        return found

    def _listed(self) -> list[tuple[int, int]]:
        names = (_NAME.fullmatch(file.name) for file in self._store.list(self._folder).files)
        return [(int(match[1]), int(match[2])) for match in names if match]

    def _segment(self, first: int, last: int) -> MappedVersions | None:
        path = self._path(first, last)
        try:
            return MappedVersions.decode(first, last, self._store.read(path))
        except ValueError as error:
            log.warning(DAMAGED, path=path, reason=type(error).__name__)
            return None

    def _path(self, first: int, last: int) -> str:
        return f"{self._folder}/{first:020d}-{last:020d}.parquet"


def _is_of(segment: MappedVersions, table_log: TableLog, versions: Sequence[int]) -> bool:
    """Whether a segment is of the table that has this log, as far as that can be told."""
    if not versions or segment.last > versions[-1]:
        return False
    if segment.last < versions[0]:
        return True
    return identity(table_log.actions(segment.last)) == segment.commit


def in_mirror(table: str | Path) -> tuple[str, str]:
    """The root of the mirror that a table lies in, empty for none, and its path below Tables."""
    location = str(table) if is_url(table) else Path(table).absolute().as_posix()
    base, found, inside = location.rstrip("/").rpartition(f"/{TABLES}/")
    return (base, inside) if found and inside.count("/") <= 1 else ("", inside)


def batches_in(version: int, actions: Sequence[Action]) -> list[CommittedBatch]:
    """What a commit says of the batch that it applied; nothing for a commit of somebody else."""
    infos = [action["commitInfo"] for action in actions if action.get("commitInfo")]
    return [batch for info in infos if (batch := batch_of(version, info))]


def unbroken(versions: Sequence[int]) -> list[int]:
    """The last versions of some, ascending, between which none is missing."""
    start = len(versions)
    while start and (start == len(versions) or versions[start - 1] == versions[start] - 1):
        start -= 1
    return list(versions[start:])


def identity(actions: Sequence[Action]) -> str:
    """What tells a commit from another of the same version."""
    said = [action["commitInfo"] for action in actions if "commitInfo" in action]
    return hash_of(said or list(actions))


def hash_of(value: Any) -> str:
    """A short text for plain data; another one for other data."""
    return sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]
