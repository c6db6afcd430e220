"""Reads the change feed of a table from its log and files, without a JVM.

Delta Lake protocol, "Add CDC File" and "Reading Change Data Files": the changes of a commit are in
its change files. A commit without change files only added or only removed rows, which follow from
its data files and deletion vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mirrorlake.delta import deletion_vectors, partitions
from mirrorlake.delta.log.table_log import Action, BrokenLog, TableLog
from mirrorlake.delta.lookup.key_lookup import NONE, path_of
from mirrorlake.delta.lookup.row_cache import table_rows
from mirrorlake.delta.schema import TableSchema, parse
from mirrorlake.delta.workspace import TableWorkspace, open_workspace
from mirrorlake.delta.write.data_files import CHANGE_TYPE
from mirrorlake.model import types
from mirrorlake.model.table import Column, Schema
from mirrorlake.storage.options import ObjectOptions

COMMIT_VERSION, COMMIT_TIMESTAMP = "_commit_version", "_commit_timestamp"


class DamagedFile(Exception):
    """A file of a table is not what was written."""


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
    an object store, BrokenLog, UnknownColumnType, BrokenVector, DamagedFile.
    """
    log = TableLog(location, options)
    snapshot = log.snapshot()
    if not snapshot.exists:
        raise FileNotFoundError(f"there is no table at {location}")
    schema = parse(snapshot.metadata)
    end = snapshot.version if last is None else min(last, snapshot.version)
    with open_workspace(str(location), options) as workspace:
        for version in range(first, end + 1):
            yield from changes(workspace, schema, version, log.actions(version))


def changes(
    workspace: TableWorkspace, schema: TableSchema, version: int, actions: Sequence[Action]
) -> Iterator[pa.Table]:
    """Like `read`, for one commit with these actions, with the columns of `schema`."""
    moment = commit_time(version, actions)
    for kinds, rows in _changed(workspace, schema, version, actions):
        if rows.num_rows:
            yield with_metadata(rows, kinds, version, moment)


def _changed(
    location: TableWorkspace, schema: TableSchema, version: int, actions: Sequence[Action]
) -> Iterator[tuple[pa.ChunkedArray | str, pa.Table]]:
    """The changed rows of one commit, file by file, and the change type of each row or of all."""
    if changes := [action["cdc"] for action in actions if "cdc" in action]:
        with_kind = _with_kind(schema)
        for cdc in changes:
            location.fetch([cdc])
            rows = rows_of_file(location.folder, cdc, with_kind, version)
            yield rows[CHANGE_TYPE], rows.drop_columns([CHANGE_TYPE])
        return
    for add, remove in _by_file(actions):
        location.fetch([action for action in (add, remove) if action])
        known = add or remove
        assert known is not None
        before, after = (
            gone_rows(location.folder, remove),
            gone_rows(location.folder, add),
        )
        rows = rows_of_file(location.folder, known, schema, version)
        yield "delete", rows.take(rows_only_in(rows.num_rows, before, after))
        yield "insert", rows.take(rows_only_in(rows.num_rows, after, before))


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
    if schema.partitions and file.get("partitionValues") is None:
        raise BrokenLog(f"commit {version} of {table} does not name the partition of a file")
    path = path_of(table, file)
    try:
        return table_rows(path, partitions.schema_of_file(file, schema))
    except (OSError, pa.ArrowException) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # of the file system; Arrow and page checksums name none
        raise DamagedFile(f"{path.name} of commit {version} is damaged: {error}") from error


def _with_kind(schema: TableSchema) -> TableSchema:
    """The columns of change files."""
    kind = Column(CHANGE_TYPE, types.STRING)
    return replace(
        schema,
        schema=Schema.of([*schema.schema, kind]),
        physical=(*schema.physical, CHANGE_TYPE),
        ids=(*schema.ids, None),
    )


def commit_time(version: int, actions: Sequence[Action]) -> int:
    """The time of a commit, Unix time in milliseconds (CF-143)."""
    for action in actions:
        info = action.get("commitInfo") or {}
        for name in ("inCommitTimestamp", "timestamp"):
            if info.get(name) is not None:
                return int(info[name])
    raise BrokenLog(f"commit {version} does not contain its time")


def with_metadata(
    rows: pa.Table, kinds: pa.ChunkedArray | str, version: int, moment: int
) -> pa.Table:
    if isinstance(kinds, str):
        kinds = pa.chunked_array([pa.repeat(kinds, rows.num_rows)])
    when = pa.scalar(moment * 1000, pa.timestamp("us", "UTC"))
    for name, values in (
        (CHANGE_TYPE, kinds),
        (COMMIT_VERSION, pa.repeat(pa.scalar(version, pa.int64()), rows.num_rows)),
        (COMMIT_TIMESTAMP, pa.repeat(when, rows.num_rows)),
    ):
        rows = rows.append_column(name, values)
    return rows
