"""Maps the versions of a table to the files they applied and their position in the source (CF-155).

This is recorded in the commits of a table, which its log deletes eventually. Therefore it is copied
below the root of the mirror before the log is cleaned up, in segments of consecutive versions, each
written atomically and named by its versions. A lost segment is rebuilt from what the log still has.

The last commit of a segment identifies the table: a table that was recreated, or replaced by an
older copy, has other commits.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq
import structlog

from mirrorlake.delta.log.history import CommittedBatch, batch_of
from mirrorlake.delta.log.table_log import Action, TableLog
from mirrorlake.feed.commits.coverage import CoverageFile, identity
from mirrorlake.root import POSITIONS, TABLES
from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.store import Store, UnsafePath
from mirrorlake.storage.urls import is_url, open_store

log = structlog.get_logger()

DAMAGED = "position_map_damaged"
FULL = 10_000
"""Number of batches from which on a segment is not extended, to limit rewriting."""

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
    """The facts of the versions first..last.

    commit: identity of the last version's commit.
    batches: the batches of the mirror in these versions, ascending, without row counts per file.
    """

    first: int
    last: int
    commit: str
    batches: tuple[CommittedBatch, ...]

    def encode(self) -> bytes:
        rows = [{name: getattr(batch, name) for name in _SCHEMA.names} for batch in self.batches]
        metadata = {_FORMAT: _VERSION, _COMMIT: self.commit.encode()}
        file = io.BytesIO()
        table = pa.Table.from_pylist(rows, _SCHEMA.with_metadata(metadata))
        pq.write_table(table, file, compression="zstd")
        return file.getvalue()

    @classmethod
    def decode(cls, first: int, last: int, content: bytes) -> Self:
        """Raises ValueError for damaged content, or another format."""
        try:
            table = pq.read_table(pa.BufferReader(content))
            metadata = table.schema.metadata or {}
            if metadata.get(_FORMAT) != _VERSION or not table.schema.equals(_SCHEMA):
                raise ValueError("not a segment of format 1")
            batches = tuple(CommittedBatch(**row) for row in table.to_pylist())
        except (pa.ArrowException, OSError) as error:
            raise ValueError(str(error)) from error
        if any(not first <= batch.version <= last for batch in batches):
            raise ValueError("it has other versions than its name says")
        return cls(first, last, metadata.get(_COMMIT, b"").decode(), batches)


class PositionMap:
    """The map of one table. Many processes may read it; only the mirror writes it."""

    def __init__(self, store: Store, table: str) -> None:
        """table: its path below the root."""
        self._store = store
        self._folder = f"{POSITIONS}/{table.removeprefix(f'{TABLES}/')}"
        self.coverage = CoverageFile(store, f"{self._folder}/coverage.json")

    @classmethod
    def of(cls, table: str, options: ObjectOptions | None = None) -> Self | None:
        """The map of the table at a location; None for a table outside a mirror."""
        base, inside = in_mirror(table)
        return cls(open_store(base, options), f"{TABLES}/{inside}") if base else None

    def keep(self, table_log: TableLog) -> int:
        """Copy the facts of the log that the map lacks. Returns the number of copied versions.
        Durable when it returns. Raises OSError, BrokenLog."""
        # In this order: a segment that another process adds meanwhile is not mistaken for that of
        # another table.
        listed = self._listed()
        versions = unbroken(table_log.versions())
        if not versions:
            return 0
        newest = self._newest(listed, table_log, versions)
        spans = self._spans()
        new = [v for v in versions if not any(first <= v <= last for first, last in spans)]
        for run in _runs(new):
            before: tuple[CommittedBatch, ...] = ()
            first, last = run[0], run[-1]
            if newest and newest.last == first - 1 and len(newest.batches) < FULL:
                first, before = newest.first, newest.batches
            found = [batch for v in run for batch in batches_in(v, table_log.actions(v))]
            commit = identity(table_log.actions(last))
            self._write(MappedVersions(first, last, commit, (*before, *found)))
        with suppress(FileNotFoundError):  # the log was cleaned meanwhile; kept next time
            self.coverage.keep(table_log, versions)
        return len(new)

    def newest_first(self, table_log: TableLog) -> Iterator[MappedVersions]:
        """The segments of the current table, newest first. Unreadable ones are skipped."""
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

    def _newest(
        self, listed: Sequence[tuple[int, int]], table_log: TableLog, versions: Sequence[int]
    ) -> MappedVersions | None:
        """The newest segment that is intact and of this table. Others are deleted."""
        for first, last in sorted(listed, key=lambda span: (-span[1], span[0])):
            with suppress(FileNotFoundError):
                segment = self._segment(first, last)
                if segment is not None and _is_of(segment, table_log, versions):
                    return segment
            self._store.delete(self._path(first, last))
        return None

    def _write(self, segment: MappedVersions) -> None:
        """Write a segment, then delete the segments that it contains."""
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
    """Whether a segment belongs to the table with this log, as far as can be determined."""
    if not versions or segment.last > versions[-1]:
        return False
    if segment.last < versions[0]:
        return True
    return identity(table_log.actions(segment.last)) == segment.commit


def in_mirror(table: str | Path) -> tuple[str, str]:
    """The root of the mirror that contains a table, "" for none, and the table's path below
    Tables."""
    location = str(table) if is_url(table) else Path(table).absolute().as_posix()
    base, found, inside = location.rstrip("/").rpartition(f"/{TABLES}/")
    return (base, inside) if found and inside.count("/") <= 1 else ("", inside)


def batches_in(version: int, actions: Sequence[Action]) -> list[CommittedBatch]:
    """The batch that a commit applied; empty for a commit of another writer."""
    infos = [action["commitInfo"] for action in actions if action.get("commitInfo")]
    return [batch for info in infos if (batch := batch_of(version, info))]


def unbroken(versions: Sequence[int]) -> list[int]:
    """The longest consecutive run at the end of ascending versions."""
    start = len(versions)
    while start and (start == len(versions) or versions[start - 1] == versions[start] - 1):
        start -= 1
    return list(versions[start:])


def _runs(versions: Iterable[int]) -> Iterator[list[int]]:
    """Ascending versions, grouped into consecutive runs."""
    for _offset, run in groupby(enumerate(versions), key=lambda pair: pair[1] - pair[0]):
        yield [version for _number, version in run]
