"""Reads the change feed of a table from its log and files, without a JVM.

Delta Lake protocol, "Add CDC File" and "Reading Change Data Files": the changes of a commit are in
its change files. A commit without change files only added or only removed rows, which follow from
its data files and deletion vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.delta import deletion_vectors, partitions
from mirrorlake.delta.feed_columns import COMMIT_TIMESTAMP, COMMIT_VERSION
from mirrorlake.delta.log.history import commit_time
from mirrorlake.delta.log.table_log import Action, BrokenLog, TableLog
from mirrorlake.delta.lookup.key_lookup import NONE, text_of
from mirrorlake.delta.lookup.row_cache import read_rows, table_rows
from mirrorlake.delta.lookup.whole_files import WholeFileReader
from mirrorlake.delta.schema import TableSchema, UnknownColumnType, parse, parse_only
from mirrorlake.delta.workspace import TableWorkspace, open_workspace
from mirrorlake.delta.write.data_files import CHANGE_TYPE
from mirrorlake.feed.reading_ahead import FileRead, Steps, read_alone
from mirrorlake.feed.widening import conform, obstacle
from mirrorlake.model import types
from mirrorlake.model.table import Column, Schema
from mirrorlake.storage.options import ObjectOptions

METADATA_FIELDS = (
    pa.field(CHANGE_TYPE, pa.string()),
    pa.field(COMMIT_VERSION, pa.int64()),
    pa.field(COMMIT_TIMESTAMP, pa.timestamp("us", "UTC")),
)


class DamagedFile(Exception):
    """A file of a table is not what was written."""


class UnfitRows(Exception):
    """The rows that a commit deleted do not fit into the columns that it gave the table."""

    def __init__(self, version: int, column: str) -> None:
        super().__init__(
            f"version {version} changed the type of column {column}, and the rows that it deleted "
            "have values of the former type"
        )
        self.version = version


def unfit_version(error: BaseException) -> int | None:
    """The version whose deleted rows do not fit, of an error of the feed that says so."""
    cause = error.__cause__
    return cause.version if isinstance(cause, UnfitRows) else None


def read(
    location: str | Path, first: int, last: int | None = None, options: ObjectOptions | None = None
) -> Iterator[pa.Table]:
    """The changes of the commits from version `first` to `last`, in order; to the newest version
    without `last`, or if it is not reached yet (CF-118).

    Yields tables with the columns of the newest version, NULL where a row is older than its column,
    and `_change_type` (string: insert, delete, update_preimage, update_postimage),
    `_commit_version` (int64), `_commit_timestamp` (timestamp, microseconds in UTC). Each has the
    rows of at most one file. Updates of commits without the feed appear as a delete and an insert.

    options: how to access a URL.

    Raises FileNotFoundError for a missing table, commit or file, LostFile for a file of a table on
    an object store, BrokenLog, UnknownColumnType, BrokenVector, DamagedFile, UnfitRows.
    """
    log = TableLog(location, options)
    snapshot = log.snapshot()
    if not snapshot.exists:
        raise FileNotFoundError(f"there is no table at {location}")
    schema = parse(snapshot.metadata)
    end = snapshot.version if last is None else min(last, snapshot.version)
    with open_workspace(str(location), options) as workspace:
        reader = ChangeReader(workspace, schema)
        for version in range(first, end + 1):
            for file in reader.files(version, log.actions(version), log.metadata_at):
                yield from (with_commits([(file.of, rows)]) for rows in read_alone(file))


class ChangeReader:
    """Reads the changes of commits with the columns of `schema` and `_change_type`. `with_commits`
    adds version and time, for as many files at once as the caller likes."""

    def __init__(self, workspace: TableWorkspace, schema: TableSchema) -> None:
        self._workspace, self._schema, self._with_kind = workspace, schema, _with_kind(schema)
        self._reader = WholeFileReader(self._with_kind, CHANGE_TYPE)
        self._folder = str(workspace.folder)

    def files(
        self,
        version: int,
        actions: Sequence[Action],
        metadata_at: Callable[[int], Action] | None = None,
    ) -> list[FileRead[CommitOf, list[pa.Table]]]:
        """The files of a commit, each of which gives tables.

        metadata_at: returns the metaData action of a version; None for a commit that changes
        neither types nor partition columns. Raises BrokenLog, FileNotFoundError, UnfitRows.
        """
        commit = CommitOf(version, commit_time(version, actions))
        if changes := [action["cdc"] for action in actions if "cdc" in action]:
            return [
                FileRead(commit, int(cdc.get("size") or 0), partial(self._changes, commit, cdc))
                for cdc in changes
            ]
        files, former = list(_by_file(actions)), self._schema
        is_altered = version > 0 and any(action.get("metaData") for action in actions)
        if metadata_at and is_altered and any(add is None for add, _remove in files):
            former = self._former(version, metadata_at(version - 1))
        return [
            FileRead(
                commit, _size(add, remove), partial(self._difference, commit, add, remove, former)
            )
            for add, remove in files
        ]

    def _former(self, version: int, metadata: Action) -> TableSchema:
        """The columns of files that are no longer there after a commit that changed columns."""
        try:
            former = parse_only(metadata, self._schema.physical)
        except UnknownColumnType as error:
            raise UnfitRows(version, error.column) from error
        if (column := obstacle(former, self._schema)) is not None:
            raise UnfitRows(version, column)
        return former

    def _changes(self, commit: CommitOf, cdc: Action) -> Steps[list[pa.Table]]:
        """The rows of a change file."""
        self._workspace.fetch([cdc])
        reader = self._reader
        if self._schema.partitions:
            reader = WholeFileReader(partitions.schema_of_file(cdc, self._with_kind))
        path = _checked_path(self._folder, cdc, self._schema, commit.version)
        with _as_damaged(path, commit.version):
            rows = yield from read_rows(path, reader)
        return [rows] if rows.num_rows else []

    def _difference(
        self, commit: CommitOf, add: Action | None, remove: Action | None, former: TableSchema
    ) -> Steps[list[pa.Table]]:
        """The rows that were deleted from and inserted into a data file, in one step."""
        yield
        self._workspace.fetch([action for action in (add, remove) if action])
        known, folder = add or remove, self._workspace.folder
        assert known is not None
        before, after = gone_rows(folder, remove), gone_rows(folder, add)
        schema = former if add is None else self._schema
        rows = rows_of_file(folder, known, schema, commit.version)
        if schema is not self._schema:
            rows = conform(rows, schema, self._schema)
        found = [
            (kind, rows.take(rows_only_in(rows.num_rows, first, second)))
            for kind, first, second in (("delete", before, after), ("insert", after, before))
        ]
        return [_of_kind(part, kind) for kind, part in found if part.num_rows]


@dataclass(frozen=True, slots=True)
class CommitOf:
    """The commit of a change. moment: Unix time in milliseconds."""

    version: int
    moment: int


def _size(add: Action | None, remove: Action | None) -> int:
    return max(int((action or {}).get("size") or 0) for action in (add, remove))


def _by_file(actions: Sequence[Action]) -> Iterator[tuple[Action | None, Action | None]]:
    """The added and removed files that change rows; a file with a new deletion vector is both."""
    found: dict[str, dict[str, Action]] = {}
    for action in actions:
        for kind in ("add", "remove"):
            if (change := action.get(kind)) and change["dataChange"]:
                found.setdefault(change["path"], {})[kind] = change
    for both in found.values():
        yield both.get("add"), both.get("remove")


def gone_rows(table: Path, file: Action | None) -> np.ndarray | None:
    """The deleted rows of a file; None without a file."""
    if file is None:
        return None
    vector = file.get("deletionVector")
    return deletion_vectors.read(table, vector) if vector else NONE


def rows_only_in(rows: int, first: np.ndarray | None, second: np.ndarray | None) -> pa.Array:
    """The rows of a file that are deleted in `second` but not in `first`, where None means no
    file."""
    if first is None:
        return pa.array(NONE)
    return pa.array(np.setdiff1d(np.arange(rows) if second is None else second, first))


def rows_of_file(
    table: Path, file: Mapping[str, Any], schema: TableSchema, version: int
) -> pa.Table:
    path = _checked_path(str(table), file, schema, version)
    with _as_damaged(path, version):
        return table_rows(Path(path), partitions.schema_of_file(file, schema))


def _checked_path(table: str, file: Mapping[str, Any], schema: TableSchema, version: int) -> str:
    if schema.partitions and file.get("partitionValues") is None:
        raise BrokenLog(f"commit {version} of {table} does not name the partition of a file")
    return text_of(table, file)


@contextmanager
def _as_damaged(path: str, version: int) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # of the file system; Arrow and page checksums name none
        raise DamagedFile(f"{Path(path).name} of commit {version} is damaged: {error}") from error


def _with_kind(schema: TableSchema) -> TableSchema:
    """The columns of change files."""
    kind = Column(CHANGE_TYPE, types.STRING)
    return replace(
        schema,
        schema=Schema.of([*schema.schema, kind]),
        physical=(*schema.physical, CHANGE_TYPE),
        ids=(*schema.ids, None),
    )


def with_metadata(rows: pa.Table, kind: str, version: int, moment: int) -> pa.Table:
    """Rows of one change type."""
    return with_commits([(CommitOf(version, moment), _of_kind(rows, kind))])


def with_commits(found: Sequence[tuple[CommitOf, pa.Table]]) -> pa.Table:
    """The rows of at least one file, each with version and time of its commit."""
    rows = pa.concat_tables([rows for _commit, rows in found])
    counts = np.array([rows.num_rows for _commit, rows in found], np.int64)
    versions = np.array([commit.version for commit, _rows in found], np.int64)
    moments = np.array([commit.moment * 1000 for commit, _rows in found], np.int64)
    more = [
        _repeated(pa.array(values).view(field.type), counts)
        for field, values in zip(METADATA_FIELDS[1:], (versions, moments), strict=True)
    ]
    # What a file says of itself does not hold for all, such as which columns pandas has as index.
    fields = [field.remove_metadata() for field in rows.schema]
    schema = pa.schema([*fields, *METADATA_FIELDS[1:]])
    return pa.Table.from_arrays([*rows.columns, *more], schema=schema)


def _repeated(values: pa.Array, counts: np.ndarray) -> pa.Array:
    """Each value so many times."""
    # Not by numpy, which takes a third more time, in memory that is new to the process each time.
    some = counts > 0
    ends = pa.array(np.cumsum(counts[some]))
    runs = pa.RunEndEncodedArray.from_arrays(ends, values.filter(pa.array(some)))
    return pc.run_end_decode(runs)


def _of_kind(rows: pa.Table, kind: str) -> pa.Table:
    return rows.append_column(METADATA_FIELDS[0], pa.repeat(kind, rows.num_rows))
