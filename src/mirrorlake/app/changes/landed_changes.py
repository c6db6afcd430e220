"""Every change of a commit, by the landed files that it applied.

The feed has the net change of each key. Landed files have each state in between, in order, and with
metadata columns the transaction of each change, of deletions too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from mirrorlake.app.changes.followed_columns import FollowedColumns
from mirrorlake.app.landed_files import LandedFile, LandedFiles, NotLanded
from mirrorlake.apply.fold import LandedBatch, with_unchanged_values
from mirrorlake.delta.log.history import CommittedBatch
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.delta.schema import TableSchema
from mirrorlake.errors import BadFile, BadValue, FileTooLarge, MissingBaseRow
from mirrorlake.feed.commits.position_map import batches_in
from mirrorlake.feed.rows import BEFORE, DELETE, kinds_of
from mirrorlake.landing.parquet.reader import Rows
from mirrorlake.mirror.faults import UnreadableFile
from mirrorlake.model import keys as codes
from mirrorlake.model.arrow import nullable_schema, taken
from mirrorlake.model.change import METADATA_COLUMNS, ROW_DELETED, Marker
from mirrorlake.model.landed import FileKind


class Truncated(NotLanded):
    """A commit truncated the table between other changes."""


@dataclass(frozen=True, slots=True)
class LandedChanges:
    """rows: with the columns of the table; a deletion has the values of the row before it, where
    they are known, and metadata columns of its own. marker: INSERT, UPDATE or DELETE; int8."""

    rows: pa.Table
    marker: np.ndarray


class LandedCommits:
    """The commits of one table, by the landed files that they applied."""

    def __init__(self, log: TableLog, files: LandedFiles) -> None:
        self._log, self._files = log, files
        self._seen = -1  # the newest version at the last look for files

    @property
    def table(self) -> str:
        return str(self._files.table)

    def changes(
        self, version: int, columns: FollowedColumns, net: pa.Table | None
    ) -> LandedChanges | None:
        """The changes of a commit in their order; None if the feed has the same, as for backfills,
        without reading files that only insert.

        columns: of the table at that version; net: the rows of the feed, None for none. Raises
        NotLanded if the files are not there, or do not have all values.
        """
        batches = self._batches(version)
        key, schema = columns.key, columns.schema
        if not key or not batches or schema is None or any(one.is_backfill for one in batches):
            return None
        if all(map(_only_inserts, batches)) and not self.has_more(version, columns):
            return None
        if not columns.has_present_key:
            raise NotLanded("the files have another key")
        if self._files.suppresses_unchanged:
            raise NotLanded("the feed does not have the values before changes without effect")
        self._look(version)
        try:
            files = [self._files.read(number, schema, key) for number in _numbers(batches)]
            if any(file.kind is FileKind.TRUNCATE for file in files):
                if len(files) > 1:
                    raise Truncated
                return None
            return _resolved(self.table, schema, key, net, files)
        except UnreadableFile:
            raise  # the storage may answer later
        except (BadFile, BadValue, FileTooLarge, MissingBaseRow) as error:
            raise NotLanded(str(error)) from error

    def _look(self, version: int) -> None:
        """Look for the files of a commit, unless the last look was later. Raises NotLanded."""
        if version > self._seen:
            self._seen = self._log.snapshot().version
            self._files.look()

    def has_more(self, version: int, columns: FollowedColumns) -> bool:
        """Whether the landed files of a commit have more than its net changes, but for the order
        of different keys."""
        names = columns.schema.schema.names if columns.schema else []
        has_metadata = all(name in names for name in METADATA_COLUMNS)
        return has_metadata or any(map(repeats, self._batches(version)))

    def _batches(self, version: int) -> list[CommittedBatch]:
        return batches_in(version, self._log.actions(version))


def _only_inserts(batch: CommittedBatch) -> bool:
    return not batch.updates and not batch.deletes


def repeats(batch: CommittedBatch) -> bool:
    """Whether more rows were applied than keys were changed, but for a backfill, of which only
    what differs is a change."""
    read = sum(sum(one.rows) for one in batch.files if one.rows is not None)
    return not batch.is_backfill and read > batch.inserts + batch.updates + batch.deletes


def _numbers(batches: Sequence[CommittedBatch]) -> list[int]:
    """The files of batches. Raises NotLanded."""
    if any(batch.names for batch in batches):
        raise NotLanded("the files of the table have no single sequence of numbers")
    return [number for batch in batches for number in range(batch.first, batch.last + 1)]


def _resolved(
    table: str,
    schema: TableSchema,
    key: Sequence[str],
    net: pa.Table | None,
    files: Sequence[LandedFile],
) -> LandedChanges:
    """The rows of files, with the values that the source did not send. Raises MissingBaseRow."""
    before = _before(schema, net)
    found = [("", before), *((str(one.number), one.rows) for one in files if one.rows is not None)]
    batch = LandedBatch(table, schema.schema, key, found)
    rows, marker = with_unchanged_values(batch)
    previous = codes.previous(codes.encode(rows.select(list(key))).code)
    is_there = (previous >= 0) & (marker[np.maximum(previous, 0)] != Marker.DELETE)
    deletes = marker == Marker.DELETE
    last = np.where(deletes & is_there, previous, np.arange(len(marker)))
    values = _taken(rows, last)
    shown = np.where(deletes, marker, np.where(is_there, Marker.UPDATE, Marker.INSERT))
    begin = len(before.marker)
    return LandedChanges(values.slice(begin), shown[begin:].astype(np.int8))


def _taken(rows: pa.Table, index: np.ndarray) -> pa.Table:
    """Rows by index, none of which occurs more than twice, but for metadata columns, which stay."""
    own = [name for name in (*METADATA_COLUMNS, ROW_DELETED) if name in rows.column_names]
    found = taken(rows.drop_columns(own), index)
    for name in own:
        found = found.append_column(name, rows[name])
    return found.select(rows.column_names)


def _before(schema: TableSchema, net: pa.Table | None) -> Rows:
    """The rows of the table before a commit, of the keys that it has changed."""
    kinds = nullable_schema(schema.schema)
    rows = kinds.empty_table()
    if net is not None:
        there = net.filter(pa.array(np.isin(kinds_of(net), [BEFORE, DELETE])))
        rows = there.select(kinds.names).cast(kinds)
    deleted = np.zeros(rows.num_rows, bool)
    if ROW_DELETED in kinds.names:
        deleted = rows[ROW_DELETED].to_numpy() == True  # noqa: E712  (NULL is not)
    marker = np.where(deleted, Marker.DELETE, Marker.INSERT).astype(np.int8)
    return Rows(rows, pa.array(marker), None, tuple(kinds.names))
