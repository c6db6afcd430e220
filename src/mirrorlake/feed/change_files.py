"""The change feed of a table, read from its log and its files, without a JVM.

Delta Lake protocol, "Add CDC File" and "Reading Change Data Files": what a commit changed stands in
its change files. One that has none only added or only took away rows, and its data files and
deletion vectors say which.
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
from mirrorlake.delta.workspace import TableWorkspace, at_hand
from mirrorlake.delta.write.data_files import CHANGE_TYPE
from mirrorlake.model import types
from mirrorlake.model.table import Column, Schema
from mirrorlake.storage.options import ObjectOptions

COMMIT_VERSION, COMMIT_TIMESTAMP = "_commit_version", "_commit_timestamp"


def read(
    location: str | Path, first: int, last: int | None = None, options: ObjectOptions | None = None
) -> Iterator[pa.Table]:
    """What the commits from version `first` to `last` changed, in their order; to the newest if
    there is no `last`, or no such version yet (CF-118).

    Tables with the columns that the newest version has, NULL where a row is older than its column,
    and `_change_type` (string: insert, delete, update_preimage, update_postimage),
    `_commit_version` (int64), `_commit_timestamp` (timestamp, microseconds in UTC). Each holds the
    rows of one file at most. Of commits without the feed, updates are told as a delete and an
    insert. options: how a URL is reached.

    Raises FileNotFoundError for a table, commit or file that is not there (any more), LostFile for
    a file of a table on objects, BrokenLog, UnknownColumnType, BrokenVector.
    """
    log = TableLog(location, options)
    snapshot = log.snapshot()
    if not snapshot.exists:
        raise FileNotFoundError(f"there is no table at {location}")
    schema = parse(snapshot.metadata)
    end = snapshot.version if last is None else min(last, snapshot.version)
    with at_hand(str(location), options) as workspace:
        for version in range(first, end + 1):
            yield from changes(workspace, schema, version, log.actions(version))


def changes(
    workspace: TableWorkspace, schema: TableSchema, version: int, actions: Sequence[Action]
) -> Iterator[pa.Table]:
    """As `read`, of one commit, whose actions these are, with the columns of `schema`."""
    moment = commit_time(version, actions)
    for kinds, rows in _changed(workspace, schema, version, actions):
        if rows.num_rows:
            yield with_metadata(rows, kinds, version, moment)


def _changed(
    location: TableWorkspace, schema: TableSchema, version: int, actions: Sequence[Action]
) -> Iterator[tuple[pa.ChunkedArray | str, pa.Table]]:
    """The rows that one commit changed, file by file, and the kind of each or of all."""
    if changes := [action["cdc"] for action in actions if "cdc" in action]:
        told = _with_kind(schema)
        for cdc in changes:
            location.fetch([cdc])
            rows = rows_of_file(location.folder, cdc, told, version)
            yield rows[CHANGE_TYPE], rows.drop_columns([CHANGE_TYPE])
        return
    for add, remove in _by_file(actions):
        location.fetch([one for one in (add, remove) if one])
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
    """What was added and what was taken away, where that changes rows: of a file whose deletion
    vector is another now it is both."""
    found: dict[str, dict[str, Action]] = {}
    for action in actions:
        for kind in ("add", "remove"):
            if (one := action.get(kind)) and one["dataChange"]:
                found.setdefault(one["path"], {})[kind] = one
    for both in found.values():
        yield both.get("add"), both.get("remove")


def gone_rows(table: Path, file: Action | None) -> np.ndarray | None:
    """The rows that are gone of a file; None where there is no file."""
    if file is None:
        return None
    vector = file.get("deletionVector")
    return deletion_vectors.read(table, vector) if vector else NONE


def rows_only_in(rows: int, one: np.ndarray | None, other: np.ndarray | None) -> pa.Array:
    """The rows of a file that are there with `one` and not with `other`, of what is gone of it."""
    if one is None:
        return pa.array(NONE)
    return pa.array(np.setdiff1d(np.arange(rows) if other is None else other, one))


def rows_of_file(
    table: Path, file: Mapping[str, Any], schema: TableSchema, version: int
) -> pa.Table:
    if schema.partitions and file.get("partitionValues") is None:
        raise BrokenLog(f"commit {version} of {table} does not name the partition of a file")
    return table_rows(path_of(table, file), partitions.of_file(file, schema))


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
    """When a commit was made, Unix time in milliseconds (CF-143)."""
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
