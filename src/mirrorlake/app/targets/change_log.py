"""Change logs: every row of every landed file that a table has applied, in its order (CF-148).

A commit of a mirrored table has the net effect of its files. Its change log has each state in
between. The commits of the table say which files they applied; the files are read again from the
landing zone, or from its cleanup folder, where they stay for `landing.retention_days`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from mirrorlake.app.landed_files import LandedFile, LandedFiles, NotLanded
from mirrorlake.delta.schema import TableSchema
from mirrorlake.delta.statistics import records
from mirrorlake.delta.write.append import append
from mirrorlake.errors import FeedTargetError
from mirrorlake.feed.commits.position_map import batches_in
from mirrorlake.feed.ranges import SchemaRange
from mirrorlake.feed.reader import Feed
from mirrorlake.feed.targets.build import Basis, TargetChanges
from mirrorlake.feed.targets.rows import own_columns, target_columns
from mirrorlake.feed.targets.source import PORTION_ROWS, Begin, FeedSource, Portion
from mirrorlake.landing.parquet.reader import Rows
from mirrorlake.landing.parquet.unchanged import unpacked
from mirrorlake.mirror.table.progress import key_columns
from mirrorlake.model import types
from mirrorlake.model.change import ROW_DELETED, Marker
from mirrorlake.model.landed import FileKind
from mirrorlake.model.table import Column, Schema
from mirrorlake.storage.options import ObjectOptions

CHANGE, FILE, ROW = "_mirrorlake_change", "_mirrorlake_file", "_mirrorlake_row"
FILE_POSITION, UNCHANGED = "_mirrorlake_file_position", "_mirrorlake_unchanged"
COLUMNS = {
    CHANGE: types.STRING,
    FILE: types.LONG,
    ROW: types.LONG,
    FILE_POSITION: types.STRING,
    UNCHANGED: types.STRING,
}
"""The columns of a change log besides those of its table: what a row does, the number of its file
and its place in it, counted from 1, the position in the source up to which the file reaches, and as
JSON the columns whose values the source did not send."""

TRUNCATE, BACKFILL = "truncate", "backfill"
KIND = "a change log"


def _rows_of(file: LandedFile, schema: TableSchema) -> pa.Table:
    """The rows of a file with the columns of a change log."""
    if file.rows is None:
        return _with_own(_one_row(schema), file, [TRUNCATE])
    is_backfill = file.kind is FileKind.BACKFILL
    names = {int(one): BACKFILL if is_backfill else one.name.lower() for one in Marker}
    kinds = [names[marker] for marker in file.rows.marker.to_pylist()]
    return _with_own(file.rows.data, file, kinds, _not_sent(file.rows))


def _one_row(schema: TableSchema) -> pa.Table:
    return pa.table({name: pa.nulls(1) for name in schema.schema.names})


def _not_sent(found: Rows) -> pa.Array:
    """As JSON, the columns of each row whose values are not in the file; NULL for none."""
    if found.unchanged is None:
        return pa.nulls(found.data.num_rows, pa.string())
    missing = unpacked(found.unchanged, len(found.names))
    names = np.array(found.names, object)
    return pa.array(
        [json.dumps(list(names[row])) if row.any() else None for row in missing], pa.string()
    )


def _with_own(
    data: pa.Table, file: LandedFile, kinds: Sequence[str], not_sent: pa.Array | None = None
) -> pa.Table:
    count = data.num_rows
    own = {
        CHANGE: pa.array(kinds, pa.string()),
        FILE: pa.repeat(pa.scalar(file.number, pa.int64()), count),
        ROW: pa.array(np.arange(1, count + 1)),
        FILE_POSITION: pa.repeat(pa.scalar(file.position, pa.string()), count),
        UNCHANGED: not_sent if not_sent is not None else pa.nulls(count, pa.string()),
    }
    for name, values in own.items():
        data = data.append_column(name, values)
    return data


class ChangeLogSource(FeedSource):
    """A mirrored table, by the files that its commits say they applied."""

    def __init__(self, location: str, options: ObjectOptions | None, landed: LandedFiles) -> None:
        super().__init__(location, None, options)
        self._landed = landed

    def begin(self, version: int | None = None, *, from_latest: bool = False) -> Begin:
        """With all files, where they are all there; otherwise behind the newest version."""
        begin = super().begin(version, from_latest=from_latest)
        with self._refusals():
            if begin.snapshot < 0 and self._landed.look() >= set(self._numbers(0)):
                return begin
        latest = self._log.snapshot().version
        return Begin(latest, latest + 1)

    def portions(
        self,
        feed: Feed,  # noqa: ARG002  (of the contract)
        part: SchemaRange,
        rows: int = PORTION_ROWS,
    ) -> Iterator[Portion]:
        """By versions, as many as have changed about so many rows."""
        first, count = part.first, 0
        for version in range(part.first, part.last + 1):
            for batch in batches_in(version, self._log.actions(version)):
                count += batch.inserts + batch.updates + batch.deletes
            if count >= rows or version == part.last:
                yield Portion(first, version, part.schema, ())
                first, count = version + 1, 0

    def blocks(self, portion: Portion) -> Iterator[pa.Table]:
        """The rows of the files of a portion, file by file."""
        key = key_columns(self._log.snapshot().properties)
        with self._refusals():
            numbers = list(self._numbers(portion.first, portion.last))
            if not self._landed.numbers >= set(numbers):
                self._landed.look()
            for number in numbers:
                yield _rows_of(self._landed.read(number, portion.schema, key), portion.schema)

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except NotLanded as error:
            raise FeedTargetError(
                f"{error}, so the change log would not be complete",
                where=f"change log of {self._landed.table}",
                hint="Restore the file in the cleanup folder of the table, or delete the change "
                "log to begin a new one. landing.retention_days says how long files are kept. "
                "Tables whose files have no numbers have no change log.",
            ) from error

    def _numbers(self, first: int, last: int | None = None) -> Iterator[int]:
        """The files that some versions applied."""
        end = self._log.snapshot().version if last is None else last
        for version in range(first, end + 1):
            for batch in batches_in(version, self._log.actions(version)):
                yield from range(batch.first, batch.last + 1)


@dataclass(frozen=True, slots=True)
class ChangeLog:
    """A `TargetKind`."""

    source: ChangeLogSource
    kind: str = KIND
    portion_rows: int = PORTION_ROWS
    needs_key: bool = False

    def settings(self, key: Sequence[str]) -> Mapping[str, Any]:  # noqa: ARG002  (of the contract)
        return {}

    def properties(self, key: Sequence[str]) -> Mapping[str, str]:  # noqa: ARG002  (of the contract)
        return {}

    def columns(self, source: Schema, key: Sequence[str], where: str) -> Sequence[Column]:
        data = Schema.of([column for column in source if column.name != ROW_DELETED])
        return target_columns(data, COLUMNS, key, where)

    def sought(self, key: Sequence[str]) -> list[str]:  # noqa: ARG002  (of the contract)
        return [FILE, ROW]

    def begin(self, basis: Basis, rows: Iterator[pa.Table], version: int) -> TargetChanges:  # noqa: ARG002  (of the contract)
        """Without rows: what was applied before is not known file by file."""
        return TargetChanges()

    def apply(self, basis: Basis, portion: Portion) -> TargetChanges:
        blocks = (own_columns(some, basis.schema, {}) for some in self.source.blocks(portion))
        actions = append(basis.table.folder, basis.schema, blocks, [FILE])
        return TargetChanges(actions, sum(records(action["add"]) or 0 for action in actions))
