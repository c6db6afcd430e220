"""Writes checkpoints of Delta tables: all actions of a log that still count, in one Parquet file.

Delta Lake protocol, "Checkpoints" and "Action Reconciliation", the classic form with the V1
schema. A checkpoint is made of the one before and of the commits since, so that its cost follows
these; Delta writes the same by three jobs, which take a second of both cores. What was deleted
stays known for as long as Delta keeps files for older versions, because VACUUM rests on it.

Whatever is met that this room does not know raises Unfamiliar: then Delta has to write it.
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
from mirrorlake.delta.log.retention import FILES, KeepTimes, parse_interval
from mirrorlake.delta.log.table_log import Action, TableLog, file_id
from mirrorlake.model.arrow import contiguous
from mirrorlake.storage.local import LocalStore

LAST = "_last_checkpoint"
_OTHERWISE = frozenset(
    {
        "delta.setTransactionRetentionDuration",
        "delta.checkpointPolicy",
        "delta.checkpoint.writeStatsAsJson",
    }
)
"""Properties of tables whose checkpoints are others."""

_AS_STRUCT = "delta.checkpoint.writeStatsAsStruct"
"""Asks for the statistics in typed columns too, where it is true."""

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
"""Members that stand in commits only."""

_REQUIRED = {
    "add": ("path", "partitionValues", "size", "modificationTime"),
    "remove": ("path",),
    "metaData": ("id", "format", "schemaString", "partitionColumns", "configuration"),
    "protocol": ("minReaderVersion", "minWriterVersion"),
}
"""Members for which Delta puts in values where a commit lacks them."""

_OF_COMMITS = frozenset({"commitInfo", "cdc"})
_TYPED = frozenset({"stats_parsed", "partitionValues_parsed"})
"""Members of earlier checkpoints that say again what others say."""


class Unfamiliar(ValueError):
    """The log holds what is not known here."""


def write(table: Path, now: float | None = None) -> int:
    """Write a checkpoint of the newest version of the table in a folder, durable, if there is none.

    now: Unix time. Returns the version. Raises Unfamiliar, BrokenLog, OSError.
    """
    try:
        return _write(table, time.time() if now is None else now)
    finally:
        # Each takes a little more than the one before, and what the allocator keeps of them all is
        # ten times what one takes: 60 MiB after 4,000 commits.
        pa.default_memory_pool().release_unused()


def _write(table: Path, now: float) -> int:
    log = TableLog(table)
    basis, newest = log.basis()
    if newest < 0:
        raise FileNotFoundError(f"there is no table at {table}")
    if basis is not None and basis[0] == newest:
        return newest
    read = log.identity(newest)
    try:
        since = _Since()
        for version in range(basis[0] + 1 if basis else 0, newest + 1):
            since.replay(log.actions(version))
        before = _earlier(table, basis[1], since) if basis else _SCHEMA.empty_table()
        rows = pa.concat_tables([before, since.rows()])
        keeps = KeepTimes.of(_checked(rows))
        rows = _living(rows, int((now - keeps.files.total_seconds()) * 1000))
    except (pa.ArrowException, AttributeError, KeyError, TypeError, UnicodeError) as error:
        # A value of another type, a member that is missing: whoever wrote it knows what it means.
        raise Unfamiliar(type(error).__name__) from error
    if log.identity(newest) == read:  # else another table was made in this place meanwhile
        _publish(table / FOLDER, newest, rows)
    return newest


@dataclass(slots=True)
class _Since:
    """What the commits since the last checkpoint leave, by kind and identity."""

    actions: dict[tuple[str, Any], Action] = field(default_factory=dict)

    def replay(self, actions: Iterable[Action]) -> None:
        for action in actions:
            for kind, said in action.items():
                if kind not in _OF_COMMITS:
                    self._take(kind, said)

    def _take(self, kind: str, said: Action) -> None:
        if kind not in _KINDS or not isinstance(said, dict):
            raise Unfamiliar(f"action {kind}")
        left = {name: value for name, value in said.items() if name not in _LEFT_OUT.get(kind, ())}
        if not _is_known(left, _KINDS[kind]):
            raise Unfamiliar(f"{kind} with other members")
        if any(said[name] is None for name in _REQUIRED.get(kind, ())):
            raise Unfamiliar(f"{kind} without a member")
        if kind in {"add", "remove"}:
            other = "remove" if kind == "add" else "add"
            self.actions.pop((other, file_id(said)), None)
            self.actions[kind, file_id(said)] = {**said, "dataChange": False}
        else:
            self.actions[kind, _name(kind, said)] = said

    def names(self, *kinds: str) -> list[Any]:
        """The identities of what was said in these kinds."""
        return [name for kind, name in self.actions if kind in kinds]

    def rows(self) -> pa.Table:
        members: dict[str, list[Action | None]] = {kind: [] for kind in _KINDS}
        for (kind, _name), said in self.actions.items():
            for column, values in members.items():
                values.append(said if column == kind else None)
        return pa.table(
            [pa.array(values, _KINDS[kind]) for kind, values in members.items()], schema=_SCHEMA
        )


_NO_LINKS = frozenset(
    {errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}
)
_NAMED_BY = {"txn": "appId", "domainMetadata": "domain"}


def _is_known(said: Any, target: pa.DataType) -> bool:
    """Whether all members are among ours, those of members too."""
    if not pa.types.is_struct(target) or said is None:
        return True
    members = {member.name: member.type for member in target}
    return said.keys() <= members.keys() and all(
        _is_known(value, members[name]) for name, value in said.items()
    )


def _name(kind: str, said: Mapping[str, Any]) -> Any:
    """What a later action of the same kind must share to take the place of this one."""
    return said[_NAMED_BY[kind]] if kind in _NAMED_BY else None


# -- the checkpoint before ------------------------------------------------------------------------


def _earlier(table: Path, names: list[str], since: _Since) -> pa.Table:
    """The rows of the checkpoint before of which the commits since say nothing."""
    rows = pa.concat_tables([_read(table / FOLDER / name) for name in names])
    gone = pa.array(["\0".join(name) for name in since.names("add", "remove")], pa.string())
    keep = pa.repeat(True, rows.num_rows)
    for kind in ("add", "remove"):
        keep = pc.and_(keep, pc.invert(pc.is_in(_identities(rows[kind]), gone)))
    for kind, member in _NAMED_BY.items():
        said = pa.array(since.names(kind), pa.string())
        keep = pc.and_(keep, pc.invert(_is_in(pc.struct_field(rows[kind], member), said)))
    for kind in ("metaData", "protocol"):
        if since.names(kind):
            keep = pc.and_(keep, rows[kind].is_null())
    return rows.filter(keep)


def _read(path: Path) -> pa.Table:
    """A checkpoint in our schema."""
    if path.suffix != ".parquet":
        raise Unfamiliar(path.suffix)
    # In this thread alone: what other threads keep of their memory cannot be given back from here.
    with pq.ParquetFile(path, pre_buffer=False, page_checksum_verification=True) as file:
        leaves = [file.schema.column(index).path for index in range(len(file.schema.names))]
        members = {tuple(leaf.split(".")[:2]) for leaf in leaves}
        known = {(kind, member.name) for kind, type_ in _KINDS.items() for member in type_}
        for kind, member in members - known:
            if kind != "add" or member not in _TYPED:
                raise Unfamiliar(f"{kind}.{member}")
        columns = [".".join(member) for member in sorted(members & known)]
        found = file.read(columns=columns, use_threads=False)
        if ("add", "stats_parsed") in members and _lacks_statistics(found):
            raise Unfamiliar("statistics in typed columns alone")
    return pa.table(
        [
            _as(contiguous(found[kind]), type_)
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


def _as(column: pa.Array, target: pa.DataType) -> pa.Array:
    """A column of actions in the members of ours; those that are absent are NULL."""
    if not pa.types.is_struct(target):
        return column.cast(target)
    there = {member.name for member in column.type}
    members = [
        _as(pc.struct_field(column, member.name), member.type)
        if member.name in there
        else pa.nulls(len(column), member.type)
        for member in target
    ]
    return pa.StructArray.from_arrays(members, fields=list(target), mask=column.is_null())


def _identities(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """`file_id` of each row, as one text; NULL where there is no file."""
    vector = pc.struct_field(column, "deletionVector")
    offset = pc.struct_field(vector, "offset").cast(pa.string())
    identity = pc.binary_join_element_wise(
        pc.struct_field(vector, "storageType"),
        pc.struct_field(vector, "pathOrInlineDv"),
        pc.binary_join_element_wise("@", offset, "").fill_null(""),
        "",
    ).fill_null("")
    return pc.binary_join_element_wise(pc.struct_field(column, "path"), identity, "\0")


def _is_in(values: pa.ChunkedArray, some: pa.Array) -> pa.ChunkedArray:
    return pc.and_(values.is_valid(), pc.is_in(values, some))


# -- what still counts ----------------------------------------------------------------------------


def _living(rows: pa.Table, expired: int) -> pa.Table:
    """Without what was deleted so long ago that nobody asks for it; expired: milliseconds."""
    deleted = pc.struct_field(rows["remove"], "deletionTimestamp").fill_null(0)
    old = pc.and_(rows["remove"].is_valid(), pc.less_equal(deleted, expired))
    removed = pc.struct_field(rows["domainMetadata"], "removed").fill_null(False)
    return rows.filter(pc.invert(pc.or_(old, removed)))


def _checked(rows: pa.Table) -> dict[str, str]:
    """The properties of the table. Refuses tables that want another kind of checkpoint, or that are
    none."""
    for kind in ("metaData", "protocol"):
        if rows[kind].null_count != rows.num_rows - 1:
            raise Unfamiliar(f"not one {kind}")
    (metadata,) = rows["metaData"].drop_null().to_pylist(maps_as_pydicts="lossy")
    properties: dict[str, str] = metadata["configuration"] or {}
    if others := _OTHERWISE & properties.keys():
        raise Unfamiliar(min(others))
    if properties.get(_AS_STRUCT, "").lower() == "true":
        raise Unfamiliar(_AS_STRUCT)
    if FILES in properties and parse_interval(properties[FILES]) is None:
        raise Unfamiliar(FILES)
    return properties


def _publish(log: Path, version: int, rows: pa.Table) -> None:
    """Write the file, then what points to it. A file that somebody else wrote meanwhile stays."""
    content, folder, name = io.BytesIO(), LocalStore(log), f"{version:020d}.checkpoint.parquet"
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
        raise Unfamiliar("this file system has no hard links") from error
    if _pointed_to(log) > version:
        return
    adds = rows.num_rows - rows["add"].null_count
    pointer = {"version": version, "size": rows.num_rows, "sizeInBytes": content.tell()}
    said = json.dumps({**pointer, "numOfAddFiles": adds}, separators=(",", ":"))
    _forget_checksum(log / LAST)
    folder.replace(LAST, said.encode())


def _forget_checksum(path: Path) -> None:
    """Hadoop writes one beside each local file, by which ours in its place would be damaged."""
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def _pointed_to(log: Path) -> int:
    """The version that the pointer names; -1 when there is none."""
    try:
        return int(json.loads((log / LAST).read_bytes())["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return -1
