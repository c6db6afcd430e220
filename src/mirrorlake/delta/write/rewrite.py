"""Carries net changes into the files of a table: new data, change images, deletion vectors.

Nothing here commits. The files are written and made durable; the actions that would make them part
of the table are returned. Until a commit they are orphans that no reader looks at.

The feed of a commit (CF-144): a key that had one row and keeps one is an update with both images;
whatever else goes is a delete, whatever else comes is an insert.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mirrorlake.delta import deletion_vectors
from mirrorlake.delta import statistics as bounds
from mirrorlake.delta.log.table_log import file_id
from mirrorlake.delta.lookup.key_lookup import (
    Matches,
    candidates,
    find_rows,
    live_rows,
    path_of,
)
from mirrorlake.delta.partitions import split
from mirrorlake.delta.schema import TableSchema
from mirrorlake.delta.write import data_files
from mirrorlake.delta.write.spared import without_equal
from mirrorlake.model import keys as codes
from mirrorlake.model.arrow import taken_values
from mirrorlake.model.net import NetChanges

ROWS_PER_FILE = 2_000_000

Action = dict[str, Any]
"""Of Delta's log."""


Fetch = Callable[[Sequence[Mapping[str, Any]]], None]
"""Lets the files of add actions be in the folder of the table; see `place`."""


def here(_files: Sequence[Mapping[str, Any]]) -> None:
    """Of a table in a folder: its files are there."""


class NoBaseRow(ValueError):
    """A value that did not change has no single row of the table to be taken from."""


class NoSuchRow(ValueError):
    """The table has fewer rows that are equal to a deleted one than were deleted."""


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The actions of one commit, and how many rows they touch."""

    actions: list[dict[str, Any]]
    inserted: int
    updated: int
    deleted: int
    duplicates: int = 0


def rewrite(
    table: Path,
    files: Sequence[Mapping[str, Any]],
    schema: TableSchema,
    net: NetChanges,
    threads: int = 1,
    joins: Sequence[Mapping[str, Any]] = (),
    fetch: Fetch = here,
    *,
    spares_equal: bool = False,
) -> Rewritten:
    """Apply net changes to the live files of a table. Raises NoBaseRow, NoSuchRow, and what `fetch`
    raises.

    joins: small ones of these files, whose rows are written into the new one when there is a change
    file that tells what has truly changed: without one the log is the feed. spares_equal: rows that
    are as they shall be are left alone.
    """
    keys = list(net.keys.column_names)
    if net.truncate:
        fetch(files if _has_vectors(files) else [add for add in files if _is_read(add)])
        return _emptied(table, files, schema, net.rows, keys)
    if net.is_append:
        return Rewritten(written(table, schema, net.rows, keys), net.rows.num_rows, 0, 0)
    wanted = np.flatnonzero(net.reset)
    sought = net.keys.take(pa.array(wanted))
    searched = candidates(files, schema, sought)
    fetch(searched)
    found = find_rows(table, searched, schema, sought, threads)
    if net.take is not None:
        found = found.only(some_of(found.code, net.take[wanted]))
    code = wanted[found.code]
    rows = completed(net, found.rows, code)
    if spares_equal:
        net, matters = without_equal(net, rows, code, found.rows)
        rows, code, found = net.rows, code[matters], found.only(matters)
    before = np.bincount(code, minlength=len(net.reset))
    single = before == 1
    updated = net.first & single[net.code]  # rows that take the place of exactly one
    replaced = np.zeros(len(net.reset), bool)
    replaced[net.code[updated]] = True
    new, actions = rows, list[Action]()
    work: list[Callable[[], list[Action]]] = [lambda: written(table, schema, new, keys)]
    if len(code):
        images = _images(found.rows, replaced[code], rows, updated)
        work.append(lambda: told(table, *images, schema))
        fetch(joins)
        left = joined(table, joins, schema, searched, found)
        new = pa.concat_tables([rows, *(rest.cast(rows.schema) for rest in left)])
        actions = [{"remove": data_files.removed(add)} for add in joins]
        work.append(lambda: taken_out(table, searched, found, joins))
    count = int(updated.sum())
    return Rewritten(
        [*actions, *_together(work, threads)],
        inserted=rows.num_rows - count,
        updated=count,
        deleted=len(code) - count,
        duplicates=0 if net.take is not None else int(np.maximum(before - 1, 0).sum()),
    )


def some_of(code: np.ndarray, take: np.ndarray) -> np.ndarray:
    """Which of the found rows go, where so many of each key do: bool. Raises NoSuchRow."""
    if (np.bincount(code, minlength=len(take)) < take).any():
        raise NoSuchRow
    chosen = np.zeros(len(code), bool)
    chosen[codes.up_to(code, take)] = True
    return chosen


def joined(
    table: Path,
    joins: Sequence[Mapping[str, Any]],
    schema: TableSchema,
    searched: Sequence[Mapping[str, Any]],
    found: Matches,
) -> list[pa.Table]:
    """What is left of the rows of some files."""
    indexes = {file_id(add): index for index, add in enumerate(searched)}
    return [
        live_rows(table, add, schema, found.row[found.file == indexes.get(file_id(add), -1)])
        for add in joins
    ]


def _together(work: Sequence[Callable[[], list[Action]]], threads: int) -> list[Action]:
    """Write files at the same time: most of it is compression, and waiting for the disk."""
    if threads == 1:
        return [action for one in work for action in one()]
    with ThreadPoolExecutor(min(threads, len(work)), thread_name_prefix="write") as pool:
        done = [pool.submit(one) for one in work]
    return [action for one in done for action in one.result()]


def _emptied(
    table: Path,
    files: Sequence[Mapping[str, Any]],
    schema: TableSchema,
    rows: pa.Table,
    keys: list[str],
) -> Rewritten:
    """All files go, and the rows come."""
    actions = written(table, schema, rows, keys)
    actions += [{"remove": data_files.removed(add)} for add in files]
    if _has_vectors(files):
        # Without change files the feed is what the log says, and delta-rs takes for the deleted
        # rows of such a file those that were gone before.
        for add in files:
            gone = live_rows(table, add, schema)
            actions += told(table, gone, _all("delete", gone), schema)
        actions += told(table, rows, _all("insert", rows), schema) if rows.num_rows else []
    live = sum(_records(table, add) - _already_gone(add) for add in files)
    return Rewritten(actions, rows.num_rows, 0, live)


def _has_vectors(files: Sequence[Mapping[str, Any]]) -> bool:
    return any(add.get("deletionVector") for add in files)


def told(table: Path, rows: pa.Table, kind: pa.Array, schema: TableSchema) -> list[Action]:
    """Rows and the kind of change of each, as change files, one for each partition: their
    actions."""
    images = rows.append_column(data_files.CHANGE_TYPE, kind)
    return [
        {"cdc": data_files.write_changes(table, _as_file(some, schema), values)}
        for values, some in split(images, schema)
    ]


def kinds(which: np.ndarray, one: str, other: str) -> pa.Array:
    """The kind of change of each row: `one` where `which`, else `other`."""
    # Numbers of two texts: a million texts take longer to make than all else of a change file.
    return pa.DictionaryArray.from_arrays(pa.array((~which).astype(np.int8)), [one, other])


def _all(kind: str, rows: pa.Table) -> pa.Array:
    return kinds(np.ones(rows.num_rows, bool), kind, "")


def _records(table: Path, add: Mapping[str, Any]) -> int:
    """The rows in a file, gone ones included."""
    known = bounds.records(add)
    return int(pq.read_metadata(path_of(table, add)).num_rows) if known is None else known


def _is_read(add: Mapping[str, Any]) -> bool:
    """Whether a file is looked into when all of its table goes."""
    return bool(add.get("deletionVector")) or bounds.records(add) is None


def _already_gone(add: Mapping[str, Any]) -> int:
    vector = add.get("deletionVector")
    return int(vector["cardinality"]) if vector else 0


def written(
    table: Path,
    schema: TableSchema,
    rows: pa.Table,
    keys: list[str],
    *,
    data_change: bool = True,
) -> list[dict[str, Any]]:
    """The rows as data files, of one partition each: their add actions."""
    names = dict(zip(schema.schema.names, schema.physical, strict=True))
    physical = [names[key] for key in keys if key not in schema.partitions]
    return [
        {
            "add": data_files.write_data(
                table,
                _as_file(some.slice(start, ROWS_PER_FILE), schema),
                physical,
                values,
                data_change=data_change,
            )
        }
        for values, some in split(rows, schema)
        for start in range(0, some.num_rows, ROWS_PER_FILE)
    ]


def completed(net: NetChanges, found: pa.Table, code: np.ndarray) -> pa.Table:
    """The rows, with the values that the source did not send taken from the table.

    found: rows of the table with all columns; code: the key of each. Raises NoBaseRow.
    """
    if net.missing is None:
        return net.rows
    partial = np.flatnonzero(net.missing.any(axis=1))
    holders = np.full(len(net.reset), -1)
    holders[code] = np.arange(len(code))
    several = np.bincount(code, minlength=len(net.reset)) != 1
    if several[net.base[partial]].any():
        raise NoBaseRow(int(np.argmax(several[net.base[partial]])))
    source = np.zeros(net.rows.num_rows, np.int64)
    source[partial] = net.rows.num_rows + holders[net.base[partial]]
    own = np.arange(net.rows.num_rows)
    columns = []
    for index, column in enumerate(net.rows.columns):
        missing = net.missing[:, index]
        if missing.any():
            both = pa.chunked_array([*column.chunks, *found.column(index).chunks], column.type)
            column = taken_values(both, np.where(missing, source, own))  # noqa: PLW2901
        columns.append(column)
    return pa.table(columns, schema=net.rows.schema)


def _images(
    found: pa.Table, replaced: np.ndarray, rows: pa.Table, updated: np.ndarray
) -> tuple[pa.Table, pa.Array]:
    """The rows of the change file, what was there and what is there now, and their kinds."""
    old = kinds(replaced, "update_preimage", "delete")
    new = kinds(updated, "update_postimage", "insert")
    both = pa.concat_tables([found.cast(rows.schema), rows])
    return both, pa.chunked_array([old, new])


def taken_out(
    table: Path,
    files: Sequence[Mapping[str, Any]],
    found: Matches,
    but: Sequence[Mapping[str, Any]] = (),
) -> list[dict[str, Any]]:
    """Each touched file, `but` some, leaves, and comes back with its rows taken out, if any is
    left."""
    new = deletion_vectors.VectorFile()
    actions: list[dict[str, Any]] = []
    others = {file_id(add) for add in but}
    for index in np.flatnonzero(np.bincount(found.file)):
        add = files[int(index)]
        if file_id(add) in others:
            continue
        earlier = found.gone.get(int(index), np.zeros(0, np.int64))
        # What was found was not gone, and is found once: a union would look for doubles.
        rows = np.concatenate((earlier, found.row[found.file == index]))
        rows.sort(kind="stable")  # which is a merge where both are in order
        actions.append({"remove": data_files.removed(add)})
        records = _records(table, add)
        if len(rows) < records:
            actions.append({"add": data_files.deleted_from(add, new.add(rows), records)})
    if any("add" in action for action in actions):
        data_files.write_bytes(table / new.name, new.content())
    return actions


def _as_file(rows: pa.Table, schema: TableSchema) -> pa.Table:
    """The rows, in the columns of data files, under the names and ids of these."""
    fields = list(schema.file_schema())
    extra = [rows.schema.field(i) for i in range(len(fields), rows.num_columns)]
    assert tuple(rows.column_names[: len(fields)]) == schema.stored
    return pa.table(rows.columns, schema=pa.schema([*fields, *extra]))
