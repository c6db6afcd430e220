"""Finds the rows of given keys in the files of a table.

Files whose statistics exclude every key are not opened. In the others the keys are located first,
by an index of the file (`key_index`) or by its key columns, and then the pages that contain them
are read (`pages`). If most pages are wanted anyway, or a file does not say where its pages are,
keys and rows are read by a join (`key_join`). The rows of small files are kept in memory
(`row_cache`). Rows that a deletion vector has removed are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import numpy as np
import pyarrow as pa

from mirrorlake.delta import deletion_vectors, partitions
from mirrorlake.delta import statistics as bounds
from mirrorlake.delta.lookup import key_index, key_join, pages, row_cache
from mirrorlake.delta.partitions import candidates
from mirrorlake.delta.schema import TableSchema
from mirrorlake.delta.statistics import Ordered
from mirrorlake.model.arrow import arrow_schema

__all__ = ["Matches", "candidates", "find_rows", "live_rows", "path_of"]

DENSE = 128
"""Rows for each key sought, below which it is not asked any more where the keys are: spread evenly,
sixteen of them lie in each page."""

MOST_PAGES = 0.8
"""The part of its pages from which on a file is read whole: that takes less for each page."""

NONE = np.zeros(0, np.int64)
"""No rows."""

INDEXED_ROWS = 4_000_000
"""Rows whose index is made in one search at most: it delays the batch by less than a second."""


@dataclass(frozen=True, slots=True)
class _Found:
    """Rows of the table that have one of the keys.

    rows: m rows with all columns; code: int64, the key of each; file: int64, which of the probed
    files; row: int64, the row number in it.
    """

    rows: pa.Table
    code: np.ndarray
    file: np.ndarray
    row: np.ndarray


@dataclass(frozen=True, slots=True)
class Matches(_Found):
    """What a search has found. gone: for each probed file the rows that its deletion vector had
    removed already, ascending."""

    gone: Mapping[int, np.ndarray]

    def only(self, which: np.ndarray) -> Matches:
        """Some of the rows: bool, m."""
        rows = self.rows.filter(pa.array(which))
        return Matches(rows, self.code[which], self.file[which], self.row[which], self.gone)


def find_rows(
    table: Path,
    files: Sequence[Mapping[str, Any]],
    schema: TableSchema,
    keys: pa.Table,
    threads: int,
) -> Matches:
    """The rows with these keys (distinct, in the table's key columns) in these files."""
    gone = {
        index: deletion_vectors.read(table, add["deletionVector"])
        for index, add in enumerate(files)
        if add.get("deletionVector")
    }
    search = _Search(table, files, schema, keys, gone, threads, _Allowance(INDEXED_ROWS))
    if partitions.in_key(schema, keys):
        found = [
            one
            for part in partitions.parts(files, schema, keys)
            for one in _in_partition(search, part)
        ]
    else:
        found = search.run()
    return Matches(
        pa.concat_tables([arrow_schema(schema.schema).empty_table(), *(f.rows for f in found)]),
        _joined([f.code for f in found]),
        _joined([f.file for f in found]),
        _joined([f.row for f in found]),
        gone,
    )


def _in_partition(whole: _Search, part: partitions.KeysInPartition) -> list[_Found]:
    """What is found in some of the files; all of them, where their partition is all of the key."""
    own = [whole.files[index] for index in part.indexes]
    gone = whole.gone
    left = {n: gone[index] for n, index in enumerate(part.indexes.tolist()) if index in gone}
    search = replace(whole, files=own, keys=part.keys, gone=left)
    found = search.run() if part.keys.num_columns else search.every()
    return [_Found(f.rows, part.code[f.code], part.indexes[f.file], f.row) for f in found]


def live_rows(
    table: Path, add: Mapping[str, Any], schema: TableSchema, but: np.ndarray = NONE
) -> pa.Table:
    """All rows of a file, `but` some, that no deletion vector has removed, with all columns."""
    rows = row_cache.table_rows(path_of(table, add), partitions.of_file(add, schema))
    vector = add.get("deletionVector")
    if vector or len(but):
        live = np.ones(rows.num_rows, bool)
        live[but] = False
        live[deletion_vectors.read(table, vector) if vector else NONE] = False
        rows = rows.filter(pa.array(live))
    return rows


def path_of(table: Path, add: Mapping[str, Any]) -> Path:
    """The file of an add action: relative and URL-encoded, or an absolute URL."""
    path = add["path"]
    parsed = urlparse(path)
    if parsed.scheme == "file":
        return Path(unquote(parsed.path))
    return table / unquote(path)


@dataclass(slots=True)
class _Allowance:
    """How many rows may still be indexed in a search."""

    rows: int


@dataclass(frozen=True, slots=True)
class _Search:
    """The search for some keys in some files."""

    table: Path
    files: Sequence[Mapping[str, Any]]
    schema: TableSchema
    keys: pa.Table
    gone: Mapping[int, np.ndarray]
    threads: int
    allowance: _Allowance

    def run(self) -> list[_Found]:
        few = [index for index, add in enumerate(self.files) if int(add["size"]) < row_cache.SMALL]
        large = [
            index for index, add in enumerate(self.files) if int(add["size"]) >= row_cache.SMALL
        ]
        held, whole = self._held(few)
        if self.keys.num_rows * DENSE > sum(_records(self.files[index]) for index in large):
            whole, large = [*whole, *large], []
        found, rest = self._by_pages(large)
        whole = sorted([*whole, *rest])
        return [
            *found,
            *([self._small(held)] if held else []),
            *([self._whole(whole)] if whole else []),
        ]

    def every(self) -> list[_Found]:
        """All rows that are there, which have the one key."""
        found = []
        for index, add in enumerate(self.files):
            rows = row_cache.table_rows(path_of(self.table, add), self._within(index))
            row = np.setdiff1d(np.arange(rows.num_rows), self.gone.get(index, NONE))
            file, code = np.full(len(row), index), np.zeros(len(row), np.int64)
            found.append(_Found(rows.take(pa.array(row)), code, file, row))
        return found

    def _by_pages(self, indexes: Sequence[int]) -> tuple[list[_Found], list[int]]:
        """What is found in some files, and which of them are to be read whole."""
        if not indexes:
            return [], []
        located = self._located(indexes)
        with ThreadPoolExecutor(self.threads, thread_name_prefix="pages") as pool:
            found = list(pool.map(lambda index: self._paged(index, *located[index]), indexes))
        rest = [index for index, one in zip(indexes, found, strict=True) if one is None]
        paged = [one for one in found if one is not None and len(one.code)]
        return self._verified(paged), rest

    # -- where ----------------------------------------------------------------------------------

    def _located(self, numbers: Sequence[int]) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """For each of these files the keys that it may have, and the rows that may have them."""
        indexes = self._indexes(numbers)
        located = {}
        if indexes:
            sought = key_index.Sought.of(self.keys, self.schema)
            ordered = Ordered(self.schema, self.keys)
            located = {
                number: index.find(sought.only(ordered.held(self.files[number])))
                for number, index in indexes.items()
            }
        plain = [number for number in numbers if number not in located]
        if plain:
            found = key_join.matches(self._paths(plain), self.schema, self.keys, self.threads)
            code, file, row = (
                _numbers(found, name) for name in (key_join.CODE, key_join.FILE, key_join.ROW)
            )
            for n, number in enumerate(plain):
                own = file == n
                located[number] = code[own], row[own]
        return {number: self._still_there(number, *located[number]) for number in numbers}

    def _indexes(self, numbers: Sequence[int]) -> dict[int, key_index.KeyIndex]:
        """The indexes that there are, and some that are made now."""
        key, indexes = self.keys.column_names, {}
        missing = []
        for number in numbers:
            add = self.files[number]
            if _records(add) < key_index.LEAST_ROWS:
                continue
            index = key_index.opened(self.table, add, self.schema, key)
            if index is not None:
                indexes[number] = index
            elif _records(add) <= key_index.MOST_ROWS and self.allowance.rows > 0:
                missing.append(number)
                self.allowance.rows -= _records(add)
        with ThreadPoolExecutor(self.threads, thread_name_prefix="index") as pool:
            made = pool.map(
                lambda number: key_index.build(self.table, self.files[number], self.schema, key),
                missing,
            )
            indexes |= {p: index for p, index in zip(missing, made, strict=True) if index}
        return indexes

    def _still_there(
        self, index: int, code: np.ndarray, row: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Those that no deletion vector has removed, by row."""
        if index in self.gone:
            live = ~np.isin(row, self.gone[index])
            code, row = code[live], row[live]
        order = np.argsort(row, kind="stable")
        return code[order], row[order]

    # -- what -----------------------------------------------------------------------------------

    def _paged(self, index: int, code: np.ndarray, row: np.ndarray) -> _Found | None:
        """Rows of one file, by their pages; None when it is to be read whole."""
        file = np.full(len(row), index)
        target = arrow_schema(self.schema.schema)
        if not len(row):
            return _Found(target.empty_table(), code, file, row)
        path = path_of(self.table, self.files[index])
        own, of = np.unique(row, return_inverse=True)
        layout = self._layout(path, own)
        if layout is None:
            return None
        present = [n for n in self.schema.file_schema().names if n in layout.columns]
        stored = pages.read(path, layout, own, present).take(pa.array(of))
        return _Found(self._of_table(stored, self.schema.physical, file), code, file, row)

    def _layout(self, path: Path, rows: np.ndarray) -> pages.PageLayout | None:
        """Where the pages of a file are, if it says so, has these rows (ascending), and has them
        in few enough of its pages."""
        key = self.schema.physical_of(self.keys.column_names[0])
        try:
            layout = pages.layout(path)
        except pages.NoPageIndex:
            return None
        if rows[-1] >= layout.rows or key not in layout.columns:
            return None
        return layout if layout.share(rows, key) <= MOST_PAGES else None

    def _verified(self, found: Sequence[_Found]) -> list[_Found]:
        """Those rows that have the key: a hash is only a hint."""
        if not found:
            return []
        rows, code = pa.concat_tables([f.rows for f in found]), _joined([f.code for f in found])
        file, row = _joined([f.file for f in found]), _joined([f.row for f in found])
        same = key_join.equal(rows.select(self.keys.column_names), code, self.keys)
        if not same.all():
            rows = rows.filter(pa.array(same))
        return [_Found(rows, code[same], file[same], row[same])]

    def _held(self, indexes: Sequence[int]) -> tuple[dict[int, pa.Table], list[int]]:
        """The rows of small files, and those files whose rows are too much to be held."""
        paths = {index: path_of(self.table, self.files[index]) for index in indexes}
        found = {index: row_cache.held(path, self._within(index)) for index, path in paths.items()}
        held = {index: rows for index, rows in found.items() if rows is not None}
        return held, [index for index, rows in found.items() if rows is None]

    def _small(self, held: Mapping[int, pa.Table]) -> _Found:
        """Rows of small files, among all of theirs in memory."""
        names = self.keys.column_names
        code, at = row_cache.matches(
            self.keys, pa.concat_tables([rows.select(names) for rows in held.values()])
        )
        ends = np.cumsum([rows.num_rows for rows in held.values()])
        number = np.searchsorted(ends, at, side="right")
        row = at - np.concatenate(([0], ends[:-1]))[number]
        file = np.asarray(list(held), np.int64)[number]
        live = ~_is_gone(file, row, self.gone)
        code, file, row = code[live], file[live], row[live]
        # File by file: what is taken from several tables at once is taken from a copy of them all.
        rows = [held[index].take(pa.array(row[file == index])) for index in held]
        return _Found(pa.concat_tables(rows), code, file, row)

    def _whole(self, indexes: Sequence[int]) -> _Found:
        """Rows of some files, by a join with all of their rows."""
        found = key_join.rows(self._paths(indexes), self.schema, self.keys, self.threads)
        code, row = _numbers(found, key_join.CODE), _numbers(found, key_join.ROW)
        file = np.asarray(indexes, np.int64)[_numbers(found, key_join.FILE)]
        rows = self._of_table(found, self.schema.schema.names, file)
        live = ~_is_gone(file, row, self.gone)
        if not live.all():
            rows = rows.filter(pa.array(live))
        return _Found(rows, code[live], file[live], row[live])

    def _within(self, index: int) -> TableSchema:
        return partitions.of_file(self.files[index], self.schema)

    def _of_table(self, found: pa.Table, names: Sequence[str], file: np.ndarray) -> pa.Table:
        """The columns of the table, of which `found` has some, under these names. file: which of
        the files each row is in."""
        target = arrow_schema(self.schema.schema)
        columns = [
            found[name].cast(field.type)
            if name in found.column_names
            else self._absent(field.name, file)
            for name, field in zip(names, target, strict=True)
        ]
        return pa.table(columns, schema=target)

    def _absent(self, name: str, file: np.ndarray) -> pa.Array:
        """A column that the files of some rows do not have."""
        if name not in self.schema.partitions or not len(file):
            return pa.nulls(len(file), arrow_schema(self.schema.schema).field(name).type)
        indexes, of = np.unique(file, return_inverse=True)
        values = [self._within(index).absent(name, 1) for index in indexes.tolist()]
        return pa.concat_arrays(values).take(pa.array(of))

    def _paths(self, indexes: Sequence[int]) -> list[str]:
        return [str(path_of(self.table, self.files[index])) for index in indexes]


def _records(add: Mapping[str, Any]) -> int:
    """The rows of a file, gone ones included; 0 when the log does not say."""
    return bounds.records(add) or 0


def _numbers(table: pa.Table, name: str) -> np.ndarray:
    numbers: np.ndarray = table[name].to_numpy().astype(np.int64)
    return numbers


def _joined(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros(0, np.int64), *arrays])


def _is_gone(file: np.ndarray, row: np.ndarray, gone: Mapping[int, np.ndarray]) -> np.ndarray:
    removed = np.zeros(len(file), bool)
    for index, rows in gone.items():
        mine = file == index
        removed[mine] = np.isin(row[mine], rows)
    return removed
