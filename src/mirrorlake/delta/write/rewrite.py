"""Applies net changes to the files of a table: data files, change files, deletion vectors.

Nothing here commits. The files are written and made durable, and the actions to commit are
returned. Readers ignore the files until a commit refers to them.

The feed of a commit (CF-144): a key that had one row and still has one is an update with both
images; any other removed row is a delete, any other new row is an insert.
With `FeedMode.REPLACE` there are no change files, so that readers see an update as a delete and an
insert (CF-145).
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
from mirrorlake.delta.lookup.early_lookup import Search
from mirrorlake.delta.lookup.key_lookup import (
    KeyedRows,
    Matches,
    candidates,
    find_rows,
    live_rows,
    path_of,
)
from mirrorlake.delta.partitions import split
from mirrorlake.delta.schema import FeedMode, TableSchema
from mirrorlake.delta.write import data_files
from mirrorlake.delta.write.equal_rows import without_equal
from mirrorlake.delta.write.soft_deletes import considered, is_deleted, marked, with_marks
from mirrorlake.model import keys as codes
from mirrorlake.model.arrow import taken_values
from mirrorlake.model.net_changes import NetChanges

ROWS_PER_FILE = 2_000_000

Action = dict[str, Any]
"""An action of the Delta log."""


Fetch = Callable[[Sequence[Mapping[str, Any]]], None]
"""Makes the files of add actions available in the folder; see `TableWorkspace.fetch`."""


def no_fetch(_files: Sequence[Mapping[str, Any]]) -> None:
    """The `Fetch` of a local table: does nothing."""


class NoBaseRow(ValueError):
    """An unchanged value cannot be taken from the table, which has no row, or several, with the
    key. The argument is the index of the row among those with unchanged values."""


class NoSuchRow(ValueError):
    """More equal rows were deleted than the table contains."""


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The actions of one commit, and the numbers of changed rows."""

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
    fetch: Fetch = no_fetch,
    *,
    skip_equal: bool = False,
    search: Search | None = None,
) -> Rewritten:
    """Apply net changes to the live files of a table. Raises NoBaseRow, NoSuchRow, and the errors
    of `fetch`.

    joins: small files among `files`, whose other rows are merged into the new file. That is done
    only if a change file is written, because without one the commit's add and remove actions are
    the change feed. skip_equal: do not rewrite rows whose values do not change. search: finds the
    rows of keys; by default, `searcher`.
    """
    keys = list(net.keys.column_names)
    if net.truncate and net.marks is not None:
        fetch(files)
        return _mark_all(table, files, schema, net.marks, keys)
    if net.truncate:
        fetch(files if _has_vectors(files) else [add for add in files if _is_read(add)])
        return _truncate(table, files, schema, net.rows, keys)
    if net.is_append:
        return Rewritten(write_data_files(table, schema, net.rows, keys), net.rows.num_rows, 0, 0)
    numbers = np.flatnonzero(net.reset | (net.deleted is not None))
    search = search or searcher(table, files, schema, threads, fetch)
    located = search(net.keys.take(pa.array(numbers)))
    searched, found = located.searched, located.matches
    if net.take is not None:
        found = found.select(choose_rows(found.code, net.take[numbers]))
    code = numbers[found.code]
    if net.deleted is not None:
        applies = considered(found.rows, code, len(net.reset))
        code, found = code[applies], found.select(applies)
    rows = fill_unchanged(net, found.rows, code)
    if net.deleted is not None:
        net, matters = with_marks(net, rows, code, found.rows)
        rows, code, found = net.rows, code[matters], found.select(matters)
    if skip_equal:
        net, matters = without_equal(net, rows, code, found.rows)
        rows, code, found = net.rows, code[matters], found.select(matters)
    before = np.bincount(code, minlength=len(net.reset))
    single = before == 1
    updated = net.first & single[net.code]  # rows that replace exactly one
    replaced = np.zeros(len(net.reset), bool)
    replaced[net.code[updated]] = True
    new, actions = rows, list[Action]()
    work: list[Callable[[], list[Action]]] = [lambda: write_data_files(table, schema, new, keys)]
    if len(code):
        if schema.feed is FeedMode.IMAGES:
            images = _images(found.rows, replaced[code], rows, updated)
            work.append(lambda: write_changes(table, *images, schema))
            fetch(joins)
            remaining = remaining_rows(table, joins, schema, searched, found)
            new = pa.concat_tables([rows, *(block.cast(rows.schema) for block in remaining)])
            actions = [{"remove": data_files.removed(add)} for add in joins]
        else:
            joins = ()  # without a change file, readers would take moved rows for changed ones
        work.append(lambda: delete_rows(table, searched, found, joins))
    count = int(updated.sum())
    return Rewritten(
        [*actions, *_in_parallel(work, threads)],
        inserted=rows.num_rows - count,
        updated=count,
        deleted=len(code) - count,
        duplicates=0 if net.take is not None else int(np.maximum(before - 1, 0).sum()),
    )


def searcher(
    table: Path,
    files: Sequence[Mapping[str, Any]],
    schema: TableSchema,
    threads: int,
    fetch: Fetch = no_fetch,
) -> Search:
    """Finds rows of these files, which it fetches as far as they are needed."""

    def search(keys: pa.Table) -> KeyedRows:
        searched = candidates(files, schema, keys)
        fetch(searched)
        return KeyedRows(find_rows(table, searched, schema, keys, threads), searched)

    return search


def choose_rows(code: np.ndarray, take: np.ndarray) -> np.ndarray:
    """Select `take[code]` of the found rows of each key; bool. Raises NoSuchRow."""
    if (np.bincount(code, minlength=len(take)) < take).any():
        raise NoSuchRow
    chosen = np.zeros(len(code), bool)
    chosen[codes.up_to(code, take)] = True
    return chosen


def remaining_rows(
    table: Path,
    joins: Sequence[Mapping[str, Any]],
    schema: TableSchema,
    searched: Sequence[Mapping[str, Any]],
    found: Matches,
) -> list[pa.Table]:
    """The live rows of the files `joins` without those in `found`."""
    indexes = {file_id(add): index for index, add in enumerate(searched)}
    return [
        live_rows(table, add, schema, found.row[found.file == indexes.get(file_id(add), -1)])
        for add in joins
    ]


def _in_parallel(work: Sequence[Callable[[], list[Action]]], threads: int) -> list[Action]:
    """Write files in parallel; most of the time is compression and waiting for the disk."""
    if threads == 1:
        return [action for write in work for action in write()]
    with ThreadPoolExecutor(min(threads, len(work)), thread_name_prefix="write") as pool:
        done = [pool.submit(write) for write in work]
    return [action for future in done for action in future.result()]


def _truncate(
    table: Path,
    files: Sequence[Mapping[str, Any]],
    schema: TableSchema,
    rows: pa.Table,
    keys: list[str],
) -> Rewritten:
    """Remove all files, and write the rows."""
    actions = write_data_files(table, schema, rows, keys)
    actions += [{"remove": data_files.removed(add)} for add in files]
    if _has_vectors(files):
        # Without change files the feed is derived from the log, and delta-rs then returns the rows
        # that the deletion vector removed before as the deleted rows of such a file.
        for add in files:
            gone = live_rows(table, add, schema)
            actions += write_changes(table, gone, _all_of_type("delete", gone), schema)
        actions += (
            write_changes(table, rows, _all_of_type("insert", rows), schema)
            if rows.num_rows
            else []
        )
    live = sum(_records(table, add) - _deleted_count(add) for add in files)
    return Rewritten(actions, rows.num_rows, 0, live)


def _mark_all(
    table: Path,
    files: Sequence[Mapping[str, Any]],
    schema: TableSchema,
    marks: pa.Table,
    keys: list[str],
) -> Rewritten:
    """Mark all rows as deleted, file by file. marks: one row."""
    actions: list[Action] = []
    updated = 0
    for add in files:
        rows = live_rows(table, add, schema)
        live = ~is_deleted(rows)
        if not live.any():
            continue
        new = marked(rows, live, marks.take(pa.array(np.zeros(rows.num_rows, np.int64))))
        count, chosen = int(live.sum()), pa.array(live)
        images = pa.concat_tables([rows.filter(chosen), new.filter(chosen)])
        kind = change_types(np.arange(2 * count) < count, "update_preimage", "update_postimage")
        actions += [
            {"remove": data_files.removed(add)},
            *write_data_files(table, schema, new, keys),
        ]
        actions += write_changes(table, images, kind, schema)
        updated += count
    return Rewritten(actions, 0, updated, 0)


def _has_vectors(files: Sequence[Mapping[str, Any]]) -> bool:
    return any(add.get("deletionVector") for add in files)


def write_changes(table: Path, rows: pa.Table, kind: pa.Array, schema: TableSchema) -> list[Action]:
    """Write rows with their change types as change files, one per partition. Returns the
    actions; none for a table without a change feed."""
    if schema.feed is FeedMode.OFF:
        return []
    images = rows.append_column(data_files.CHANGE_TYPE, kind)
    return [
        {"cdc": data_files.write_changes(table, _as_file(part, schema), values)}
        for values, part in split(images, schema)
    ]


def change_types(which: np.ndarray, chosen: str, otherwise: str) -> pa.Array:
    """The change type of each row: `chosen` where `which` is true, else `otherwise`."""
    # A dictionary: creating a million texts takes longer than the rest of a change file.
    return pa.DictionaryArray.from_arrays(pa.array((~which).astype(np.int8)), [chosen, otherwise])


def _all_of_type(kind: str, rows: pa.Table) -> pa.Array:
    return change_types(np.ones(rows.num_rows, bool), kind, "")


def _records(table: Path, add: Mapping[str, Any]) -> int:
    """The number of rows of a file, deleted ones included."""
    known = bounds.records(add)
    return int(pq.read_metadata(path_of(table, add)).num_rows) if known is None else known


def _is_read(add: Mapping[str, Any]) -> bool:
    """Whether a file has to be read to truncate its table."""
    return bool(add.get("deletionVector")) or bounds.records(add) is None


def _deleted_count(add: Mapping[str, Any]) -> int:
    vector = add.get("deletionVector")
    return int(vector["cardinality"]) if vector else 0


def write_data_files(
    table: Path,
    schema: TableSchema,
    rows: pa.Table,
    keys: list[str],
    *,
    data_change: bool = True,
) -> list[dict[str, Any]]:
    """Write rows as data files, one or more per partition. Returns the add actions."""
    names = dict(zip(schema.schema.names, schema.physical, strict=True))
    physical = [names[key] for key in keys if key not in schema.partitions]
    return [
        {
            "add": data_files.write_data(
                table,
                _as_file(part.slice(start, ROWS_PER_FILE), schema),
                physical,
                values,
                data_change=data_change,
            )
        }
        for values, part in split(rows, schema)
        for start in range(0, part.num_rows, ROWS_PER_FILE)
    ]


def fill_unchanged(net: NetChanges, found: pa.Table, code: np.ndarray) -> pa.Table:
    """The rows of `net`, with unchanged values taken from the table.

    found: existing rows with all columns; code: the key of each. Raises NoBaseRow.
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
    """The rows of the change file, before and after images, and their change types."""
    # Of one dictionary: a Parquet writer that meets a second one repeats each text from there on.
    kinds = ["update_preimage", "delete", "update_postimage", "insert"]
    which = np.concatenate((np.where(replaced, 0, 1), np.where(updated, 2, 3)))
    both = pa.concat_tables([found.cast(rows.schema), rows])
    return both, pa.DictionaryArray.from_arrays(pa.array(which.astype(np.int8)), kinds)


def delete_rows(
    table: Path,
    files: Sequence[Mapping[str, Any]],
    found: Matches,
    but: Sequence[Mapping[str, Any]] = (),
) -> list[dict[str, Any]]:
    """Delete the found rows: replace each file, except those in `but`, by the same file with a new
    deletion vector, or remove it if no row is left. Returns the actions."""
    new = deletion_vectors.VectorFile()
    actions: list[dict[str, Any]] = []
    others = {file_id(add) for add in but}
    for index in np.flatnonzero(np.bincount(found.file)):
        add = files[int(index)]
        if file_id(add) in others:
            continue
        earlier = found.deleted.get(int(index), np.zeros(0, np.int64))
        # Found rows are live and distinct, so no union is needed.
        rows = np.concatenate((earlier, found.row[found.file == index]))
        rows.sort(kind="stable")  # a merge, because both parts are usually sorted
        actions.append({"remove": data_files.removed(add)})
        records = _records(table, add)
        if len(rows) < records:
            actions.append({"add": data_files.deleted_from(add, new.add(rows), records)})
    if any("add" in action for action in actions):
        data_files.write_bytes(table / new.name, new.content())
    return actions


def _as_file(rows: pa.Table, schema: TableSchema) -> pa.Table:
    """The rows with the names and ids of the columns in data files."""
    fields = list(schema.file_schema())
    extra = [rows.schema.field(i) for i in range(len(fields), rows.num_columns)]
    assert tuple(rows.column_names[: len(fields)]) == schema.stored
    return pa.table(rows.columns, schema=pa.schema([*fields, *extra]))
