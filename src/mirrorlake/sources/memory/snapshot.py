"""A view of all tables in memory, and the versions of their rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from zlib import crc32

import pyarrow as pa

from mirrorlake.errors import CannotBackfill, TableAltered, TableRecreated
from mirrorlake.model.keys import KeyRange
from mirrorlake.model.position import LogPoint
from mirrorlake.model.table import TableId
from mirrorlake.sources.base import Recognising
from mirrorlake.sources.memory.columns import are_other
from mirrorlake.sources.memory.database import Key, Row
from mirrorlake.sources.memory.settings import MemorySettings
from mirrorlake.sources.memory.stream import batch_of
from mirrorlake.sources.ordered import check_readable, has_ranges
from mirrorlake.sources.table import SnapshotPart, SourceTable


class MemorySnapshot:
    """A `Snapshot` of all tables, and its own `Recognising` where rows have versions.

    The version of a row is its place, which is its key or the number of the row, and the number of
    the write that made it what it is.
    """

    def __init__(self, settings: MemorySettings) -> None:
        self._settings, self._database = settings, settings.database
        with self._database.lock:
            self.taken = self._database.clock.now()
            self.point = self._database.current
            tables = self._database.tables
            self._rows = {name: dict(table.rows) for name, table in tables.items()}
            self._written = {name: dict(table.written) for name, table in tables.items()}
            self._server = self._database.servers
            self._described = {name: table.described for name, table in tables.items()}
        self._read: dict[tuple[TableId, int], LogPoint] = {}

    @property
    def recognising(self) -> Recognising | None:
        return self if self._settings.has_versions else None

    def parts(self, table: SourceTable) -> Sequence[SnapshotPart]:
        count = self._settings.parts()
        return [SnapshotPart(table, (index, count)) for index in range(count)]

    def read(self, part: SnapshotPart) -> Iterator[pa.RecordBatch]:
        for keys in self._batches(self._keys_of(part)):
            rows = self._rows_of(part)
            yield batch_of(part.table.schema, [rows[key] for key in keys if key in rows])
        self._note_read(part)

    def ordered(
        self, table: SourceTable, keys: KeyRange
    ) -> Iterator[tuple[pa.RecordBatch, LogPoint]]:
        check_readable(table)
        part = SnapshotPart(table)
        with self._database.lock:
            self._check_described(table)
        every = batch_of(table.schema, list(self._rows_of(part).values()))
        if not has_ranges(table) and self._settings.is_consistent:
            yield every, self.point
            return
        if not table.key:
            raise CannotBackfill(
                "the table has no key, and is not read at one point", table=str(table.table)
            )
        rows = pa.Table.from_batches([every])
        rows = rows.filter(pa.array(keys.contains(rows)))
        rows = rows.sort_by([(name, "ascending") for name in table.key])
        remaining = list(zip(*(rows[name].to_pylist() for name in table.key), strict=True))
        while remaining:
            size = self._settings.rows(len(remaining))
            with self._database.lock:
                self._check_described(table)
                rows_now, point = self._rows_of(part).values(), self._database.current
                # The key may be another one by now.
                held = {tuple(row[name] for name in table.key): row for row in rows_now}
                found = [held[key] for key in remaining[:size] if key in held]
            yield (
                batch_of(table.schema, found),
                self.point if self._settings.is_consistent else point,
            )
            remaining = remaining[size:]

    @property
    def shared(self) -> str:
        return ""

    def estimated(self, table: SourceTable, keys: KeyRange) -> int | None:
        rows = batch_of(table.schema, list(self._rows_of(SnapshotPart(table)).values()))
        return int(keys.contains(pa.Table.from_batches([rows])).sum())

    def _check_described(self, table: SourceTable) -> None:
        """Raises TableAltered when the columns differ from those that the stream has described."""
        is_one, name = self._settings.is_consistent, table.table
        found = self._database.tables.get(name)
        now = found.described if found else None
        seen = self._described.get(name) if is_one else now
        if seen is not None and seen.identity != table.identity:
            raise TableRecreated(
                f"{name} was dropped and created again in the source",
                table=str(name),
                hint="The new table is loaded by itself.",
            )
        if seen is None or seen.schema != table.schema or are_other(table.known, seen.known):
            raise TableAltered(
                f"the columns of {name} have changed since its last row was read; the stream "
                "sees the change of columns with the next change of a row",
                table=str(name),
                hint=f"Change any row of it, then run `mirrorlake backfill {name}` again.",
            )

    def upto(self, part: SnapshotPart, /) -> LogPoint:
        return self._read[part.table.table, part.range[0]]

    def close(self) -> None:
        self._rows = {}

    # -- the versions of rows -------------------------------------------------------------------

    def facts(self, part: SnapshotPart) -> Mapping[str, Any] | None:
        table = part.table
        seen = self._described.get(table.table)
        if seen is None or seen.identity != table.identity:
            return None
        said = {"heap": table.identity, "timeline": self._server, "columns": dict(seen.known)}
        return {**said, "part": list(part.range)}

    def versioned(self, part: SnapshotPart) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        yield from self._with_versions(part, self._keys_of(part))
        self._note_read(part)

    def versions(self, part: SnapshotPart) -> pa.Table:
        self._check_part(part)
        found = self._versions_of(part, self._keys_of(part))
        self._note_read(part)
        return pa.Table.from_batches([found])

    def only(
        self, part: SnapshotPart, versions: pa.Table
    ) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        asked = {tuple(row.values()) for row in versions.to_pylist()}
        keys = [key for key in self._keys_of(part) if self._version(part, key) in asked]
        yield from self._with_versions(part, keys)

    def _with_versions(
        self, part: SnapshotPart, keys: Sequence[Key]
    ) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        for some in self._batches(keys):
            self._check_part(part)
            rows = self._rows_of(part)
            yield (
                batch_of(part.table.schema, [rows[key] for key in some]),
                self._versions_of(part, some),
            )

    def _versions_of(self, part: SnapshotPart, keys: Sequence[Key]) -> pa.RecordBatch:
        found = [self._version(part, key) for key in keys]
        places, writes = [place for place, _write in found], [write for _place, write in found]
        columns = [pa.array(places, pa.string()), pa.array(writes, pa.int64())]
        return pa.RecordBatch.from_arrays(columns, ["place", "write"])

    def _version(self, part: SnapshotPart, key: Key) -> tuple[str, int]:
        return repr(key), self._written[part.table.table][key]

    def _check_part(self, part: SnapshotPart) -> None:
        if part.is_described:
            with self._database.lock:
                self._check_described(part.table)

    # -- the rows of a part ---------------------------------------------------------------------

    def _keys_of(self, part: SnapshotPart) -> list[Key]:
        index, count = part.range
        return [key for key in self._rows_of(part) if crc32(repr(key).encode()) % count == index]

    def _batches(self, keys: Sequence[Key]) -> Iterator[Sequence[Key]]:
        while keys:
            size = self._settings.rows(len(keys))
            yield keys[:size]
            keys = keys[size:]

    def _note_read(self, part: SnapshotPart) -> None:
        is_one = self._settings.is_consistent
        point = self.point if is_one else self._database.current
        self._read[part.table.table, part.range[0]] = point

    def _rows_of(self, part: SnapshotPart) -> Mapping[Key, Row]:
        if self._settings.is_consistent:
            return self._rows[part.table.table]
        with self._database.lock:
            return dict(self._database.tables[part.table.table].rows)
