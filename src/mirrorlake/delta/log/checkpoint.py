"""Writes checkpoints of Delta tables: the reconciled actions of a log in one Parquet file.

Delta Lake protocol, "Checkpoints" and "Action Reconciliation", classic checkpoints with the V1
schema. A checkpoint is built from the previous one and the commits since, so its cost depends on
the number of these; Delta runs three jobs for the same, which take a second on two cores. Remove
actions are kept for as long as Delta keeps files for older versions, because VACUUM needs them.

Raises UnsupportedLog if the log contains anything that this module does not know: then Delta has to
write the checkpoint.
"""

from __future__ import annotations

import errno
import io
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirrorlake.delta.log.files import FOLDER
from mirrorlake.delta.log.names import LAST, whole_checkpoint
from mirrorlake.delta.log.retention import FILES, RetentionTimes, parse_interval
from mirrorlake.delta.log.table_log import Action, TableLog, file_id
from mirrorlake.model.arrow import contiguous
from mirrorlake.model.crash_points import CrashHook, CrashPoint, no_crash
from mirrorlake.storage.local import LocalStore

_UNSUPPORTED_PROPERTIES = frozenset(
    {
        "delta.setTransactionRetentionDuration",
        "delta.checkpointPolicy",
        "delta.checkpoint.writeStatsAsJson",
    }
)
"""Properties that require other checkpoints."""

_TYPED_STATISTICS = "delta.checkpoint.writeStatsAsStruct"
"""The property that requires statistics in typed columns, if it is true."""

_TEXTS = pa.map_(pa.string(), pa.string())
_VECTOR = pa.struct(
    {
        "storageType": pa.string(),
        "pathOrInlineDv": pa.string(),
        "offset": pa.int32(),
        "sizeInBytes": pa.int32(),
        "cardinality": pa.int64(),
        "maxRowIndex": pa.int64(),
    }
)
_FILE = {
    "path": pa.string(),
    "partitionValues": _TEXTS,
    "size": pa.int64(),
    "dataChange": pa.bool_(),
    "deletionVector": _VECTOR,
    "baseRowId": pa.int64(),
    "defaultRowCommitVersion": pa.int64(),
}
_KINDS: dict[str, pa.StructType] = {
    "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
    "add": pa.struct(
        {
            **_FILE,
            "modificationTime": pa.int64(),
            "tags": _TEXTS,
            "clusteringProvider": pa.string(),
            "stats": pa.string(),
        }
    ),
    "remove": pa.struct(
        {**_FILE, "deletionTimestamp": pa.int64(), "extendedFileMetadata": pa.bool_()}
    ),
    "metaData": pa.struct(
        {
            "id": pa.string(),
            "name": pa.string(),
            "description": pa.string(),
            "format": pa.struct({"provider": pa.string(), "options": _TEXTS}),
            "schemaString": pa.string(),
            "partitionColumns": pa.list_(pa.string()),
            "configuration": _TEXTS,
            "createdTime": pa.int64(),
        }
    ),
    "protocol": pa.struct(
        {
            "minReaderVersion": pa.int32(),
            "minWriterVersion": pa.int32(),
            "readerFeatures": pa.list_(pa.string()),
            "writerFeatures": pa.list_(pa.string()),
        }
    ),
    "domainMetadata": pa.struct(
        {"domain": pa.string(), "configuration": pa.string(), "removed": pa.bool_()}
    ),
}
_SCHEMA = pa.schema(list(_KINDS.items()))
_LEFT_OUT = {"remove": {"tags", "stats"}}
"""Members that occur only in commits."""

_REQUIRED = {
    "add": ("path", "partitionValues", "size", "modificationTime"),
    "remove": ("path",),
    "metaData": ("id", "format", "schemaString", "partitionColumns", "configuration"),
    "protocol": ("minReaderVersion", "minWriterVersion"),
}
"""Members for which Delta sets a value if a commit lacks them."""

_OF_COMMITS = frozenset({"commitInfo", "cdc"})
_TYPED = frozenset({"stats_parsed", "partitionValues_parsed"})
"""Members of earlier checkpoints that repeat others in typed columns."""


class UnsupportedLog(ValueError):
    """The log contains something that this module does not support."""


def write(table: Path, now: float | None = None, reached: CrashHook = no_crash) -> int:
    """Write a checkpoint of the newest version of a local table, if there is none; durable on
    return.

    now: Unix time. Returns the version. Raises UnsupportedLog, BrokenLog, OSError.
    """
    try:
        return _write(table, time.time() if now is None else now, reached)
    finally:
        # Checkpoints grow, and the allocator would keep ten times the memory of one of them: 60 MiB
        # after 4,000 commits.
        pa.default_memory_pool().release_unused()


def _write(table: Path, now: float, reached: CrashHook) -> int:
    log = TableLog(table)
    basis, newest = log.basis()
    if newest < 0:
        raise FileNotFoundError(f"there is no table at {table}")
    if basis is not None and basis[0] == newest:
        return newest
    read = log.identity(newest)
    try:
        since = _CommitActions()
        for version in range(basis[0] + 1 if basis else 0, newest + 1):
            since.replay(log.actions(version))
        before = _unchanged_rows(table, basis[1], since) if basis else _SCHEMA.empty_table()
        rows = pa.concat_tables([before, since.rows()])
        keeps = RetentionTimes.of(_table_properties(rows))
        rows = _without_expired(rows, int((now - keeps.files.total_seconds()) * 1000))
    except (pa.ArrowException, AttributeError, KeyError, TypeError, UnicodeError) as error:
        # A value of another type, or a missing member: only its writer knows what it means.
        raise UnsupportedLog(type(error).__name__) from error
    if log.identity(newest) == read:  # otherwise the table was replaced in the meantime
        _publish(table / FOLDER, newest, rows, reached)
    return newest


@dataclass(slots=True)
class _CommitActions:
    """The reconciled actions of the commits since the last checkpoint, by kind and identity."""

    actions: dict[tuple[str, Any], Action] = field(default_factory=dict)

    def replay(self, actions: Iterable[Action]) -> None:
        for action in actions:
            for kind, value in action.items():
                if kind not in _OF_COMMITS:
                    self._take(kind, value)

    def _take(self, kind: str, value: Action) -> None:
        if kind not in _KINDS or not isinstance(value, dict):
            raise UnsupportedLog(f"action {kind}")
        omitted = _LEFT_OUT.get(kind, ())
        kept = {name: member for name, member in value.items() if name not in omitted}
        if not _is_known(kept, _KINDS[kind]):
            raise UnsupportedLog(f"{kind} with other members")
        if any(value[name] is None for name in _REQUIRED.get(kind, ())):
            raise UnsupportedLog(f"{kind} without a member")
        if kind in {"add", "remove"}:
            other = "remove" if kind == "add" else "add"
            self.actions.pop((other, file_id(value)), None)
            self.actions[kind, file_id(value)] = {**value, "dataChange": False}
        else:
            self.actions[kind, _identity(kind, value)] = value

    def names(self, *kinds: str) -> list[Any]:
        """The identities of the actions of these kinds."""
        return [name for kind, name in self.actions if kind in kinds]

    def rows(self) -> pa.Table:
        members: dict[str, list[Action | None]] = {kind: [] for kind in _KINDS}
        for (kind, _name), value in self.actions.items():
            for column, values in members.items():
                values.append(value if column == kind else None)
        return pa.table(
            [pa.array(values, _KINDS[kind]) for kind, values in members.items()], schema=_SCHEMA
        )


_NO_LINKS = frozenset(
    {errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}
)
_NAMED_BY = {"txn": "appId", "domainMetadata": "domain"}


def _is_known(value: Any, target: pa.DataType) -> bool:
    """Whether the type has all members of a value, at every level."""
    if not pa.types.is_struct(target) or value is None:
        return True
    members = {member.name: member.type for member in target}
    return value.keys() <= members.keys() and all(
        _is_known(member, members[name]) for name, member in value.items()
    )


def _identity(kind: str, value: Mapping[str, Any]) -> Any:
    """The identity of an action: a later action of the same kind and identity replaces it."""
    return value[_NAMED_BY[kind]] if kind in _NAMED_BY else None


# -- the previous checkpoint ----------------------------------------------------------------------


def _unchanged_rows(table: Path, names: list[str], since: _CommitActions) -> pa.Table:
    """The rows of the previous checkpoint that no commit since has replaced."""
    rows = pa.concat_tables([_read(table / FOLDER / name) for name in names])
    changed_files = pa.array(
        ["\0".join(name) for name in since.names("add", "remove")], pa.string()
    )
    keep = pa.repeat(True, rows.num_rows)
    for kind in ("add", "remove"):
        keep = pc.and_(keep, pc.invert(pc.is_in(_identities(rows[kind]), changed_files)))
    for kind, member in _NAMED_BY.items():
        replaced = pa.array(since.names(kind), pa.string())
        keep = pc.and_(keep, pc.invert(_is_in(pc.struct_field(rows[kind], member), replaced)))
    for kind in ("metaData", "protocol"):
        if since.names(kind):
            keep = pc.and_(keep, rows[kind].is_null())
    return rows.filter(keep)


def _read(path: Path) -> pa.Table:
    """Read a checkpoint in the schema `_SCHEMA`. Raises UnsupportedLog."""
    if path.suffix != ".parquet":
        raise UnsupportedLog(path.suffix)
    # In this thread only: memory that other threads cache cannot be released from here.
    with pq.ParquetFile(path, pre_buffer=False, page_checksum_verification=True) as file:
        leaves = [file.schema.column(index).path for index in range(len(file.schema.names))]
        members = {tuple(leaf.split(".")[:2]) for leaf in leaves}
        known = {(kind, member.name) for kind, type_ in _KINDS.items() for member in type_}
        for kind, member in members - known:
            if kind != "add" or member not in _TYPED:
                raise UnsupportedLog(f"{kind}.{member}")
        columns = [".".join(member) for member in sorted(members & known)]
        found = file.read(columns=columns, use_threads=False)
        if ("add", "stats_parsed") in members and _lacks_statistics(found):
            raise UnsupportedLog("statistics in typed columns alone")
    return pa.table(
        [
            _converted(contiguous(found[kind]), type_)
            if kind in found.column_names
            else pa.nulls(found.num_rows, type_)
            for kind, type_ in _KINDS.items()
        ],
        schema=_SCHEMA,
    )


def _lacks_statistics(rows: pa.Table) -> bool:
    files = contiguous(rows["add"]).drop_null()
    if "stats" not in {member.name for member in files.type}:
        return len(files) > 0
    return bool(pc.struct_field(files, "stats").null_count)


def _converted(column: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert a column of actions to the type `target`; missing members are NULL."""
    if not pa.types.is_struct(target):
        return column.cast(target)
    there = {member.name for member in column.type}
    members = [
        _converted(pc.struct_field(column, member.name), member.type)
        if member.name in there
        else pa.nulls(len(column), member.type)
        for member in target
    ]
    return pa.StructArray.from_arrays(members, fields=list(target), mask=column.is_null())


def _identities(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The `file_id` of each row as one text; NULL for a row without a file."""
    vector = pc.struct_field(column, "deletionVector")
    offset = pc.struct_field(vector, "offset").cast(pa.string())
    identity = pc.binary_join_element_wise(
        pc.struct_field(vector, "storageType"),
        pc.struct_field(vector, "pathOrInlineDv"),
        pc.binary_join_element_wise("@", offset, "").fill_null(""),
        "",
    ).fill_null("")
    return pc.binary_join_element_wise(pc.struct_field(column, "path"), identity, "\0")


def _is_in(values: pa.ChunkedArray, members: pa.Array) -> pa.ChunkedArray:
    return pc.and_(values.is_valid(), pc.is_in(values, members))


# -- expired actions and properties ---------------------------------------------------------------


def _without_expired(rows: pa.Table, expired: int) -> pa.Table:
    """The rows without remove actions up to `expired` (Unix time in milliseconds), and without
    removed domain metadata."""
    deleted = pc.struct_field(rows["remove"], "deletionTimestamp").fill_null(0)
    old = pc.and_(rows["remove"].is_valid(), pc.less_equal(deleted, expired))
    removed = pc.struct_field(rows["domainMetadata"], "removed").fill_null(False)
    return rows.filter(pc.invert(pc.or_(old, removed)))


def _table_properties(rows: pa.Table) -> dict[str, str]:
    """The properties of the table. Raises UnsupportedLog if the table requires another kind of
    checkpoint, or has not exactly one metaData and one protocol action."""
    for kind in ("metaData", "protocol"):
        if rows[kind].null_count != rows.num_rows - 1:
            raise UnsupportedLog(f"not one {kind}")
    (metadata,) = rows["metaData"].drop_null().to_pylist(maps_as_pydicts="lossy")
    properties: dict[str, str] = metadata["configuration"] or {}
    if others := _UNSUPPORTED_PROPERTIES & properties.keys():
        raise UnsupportedLog(min(others))
    if properties.get(_TYPED_STATISTICS, "").lower() == "true":
        raise UnsupportedLog(_TYPED_STATISTICS)
    if FILES in properties and parse_interval(properties[FILES]) is None:
        raise UnsupportedLog(FILES)
    return properties


def _publish(log: Path, version: int, rows: pa.Table, reached: CrashHook) -> None:
    """Write the checkpoint, then `_last_checkpoint`. An existing checkpoint is not replaced."""
    content, folder, name = io.BytesIO(), LocalStore(log), whole_checkpoint(version)
    pq.write_table(
        rows, content, compression="snappy", store_schema=False, write_page_checksum=True
    )
    _forget_checksum(log / name)
    try:
        folder.create(name, content.getvalue())
    except FileExistsError:
        return
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        raise UnsupportedLog("this file system has no hard links") from error
    reached(CrashPoint.CHECKPOINT_WRITTEN)
    if _last_checkpoint(log) > version:
        return
    adds = rows.num_rows - rows["add"].null_count
    pointer = {"version": version, "size": rows.num_rows, "sizeInBytes": content.tell()}
    encoded = json.dumps({**pointer, "numOfAddFiles": adds}, separators=(",", ":"))
    _forget_checksum(log / LAST)
    folder.replace(LAST, encoded.encode())


def _forget_checksum(path: Path) -> None:
    """Delete the checksum that Hadoop writes beside a local file: it would not match our file."""
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def _last_checkpoint(log: Path) -> int:
    """The version in `_last_checkpoint`; -1 if there is none."""
    try:
        return int(json.loads((log / LAST).read_bytes())["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return -1
