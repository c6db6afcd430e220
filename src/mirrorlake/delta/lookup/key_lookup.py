"""Finds the rows of given keys in the files of a table.

Files whose statistics exclude every key are not opened. In the others the keys are located first,
by the key index of the file (`key_index`) or by its key columns, and then the pages that contain
them are read (`pages`). If most pages are needed, or a file has no page index, keys and rows are
joined (`key_join`). The rows of small files are kept in memory (`row_cache`). Rows that a deletion
vector has removed are excluded.
"""

from __future__ import annotations

import os
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
from mirrorlake.delta.lookup.whole_files import opened
from mirrorlake.delta.partitions import candidates
from mirrorlake.delta.schema import TableSchema
from mirrorlake.delta.statistics import SortedKeys
from mirrorlake.model import keys as codes
from mirrorlake.model.arrow import arrow_schema

__all__ = ["KeyedRows", "Matches", "candidates", "find_rows", "live_rows", "path_of"]

MIN_ROWS_PER_KEY = 128
"""If the files have fewer rows per key than this, they are read whole: with evenly distributed
keys, each page contains 16 of them."""

MAX_PAGE_SHARE = 0.8
"""The part of its pages above which a file is read whole, which is faster per page."""

HUGE_ROW, FEW_ROWS = 1 << 20, 1_000
"""Bytes of the rows of a file in the mean, and how many it has at most, from which DuckDB does not
read them, because it holds several copies of each."""

NONE = np.zeros(0, np.int64)
"""No rows."""

MAX_INDEXED_ROWS = 4_000_000
"""Maximum number of rows that are indexed per lookup, which delays a batch by less than a
second."""


@dataclass(frozen=True, slots=True)
class _Found:
    """Rows of the table that have one of the keys.

    rows: m rows with all columns; code: int64, the row number of the key of each; file: int64, the
    index of its file among the searched files; row: int64, its row number in the file.
    """

    rows: pa.Table
    code: np.ndarray
    file: np.ndarray
    row: np.ndarray


@dataclass(frozen=True, slots=True)
class Matches(_Found):
    """The result of a lookup. gone: by index of the searched file, the row numbers that its
    deletion vector had already removed, ascending."""

    deleted: Mapping[int, np.ndarray]

    def select(self, which: np.ndarray) -> Matches:
        """The rows selected by `which` (bool, m)."""
        if which.all():
            return self
        rows = self.rows.filter(pa.array(which))
        return Matches(rows, self.code[which], self.file[which], self.row[which], self.deleted)

    def of(self, keys: pa.Table, some: pa.Table) -> Matches | None:
        """The result of a lookup of some of the keys; None if others are among them.

        keys: those of this lookup; some: distinct, with columns of the same names and types.
        """
        if some.equals(keys):
            return self
        # Distinct keys, so that the code of each is its row number.
        code = codes.encode(pa.concat_tables([keys, some])).code[keys.num_rows :]
        if len(code) and code.max() >= keys.num_rows:
            return None
        number = np.full(keys.num_rows, -1)
        number[code] = np.arange(len(code))
        found = self.select(number[self.code] >= 0)
        return replace(found, code=number[found.code])


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """Rows with one of some keys, and the files in which they were searched."""

    matches: Matches
    searched: Sequence[Mapping[str, Any]]

    @property
    def rows(self) -> pa.Table:
        return self.matches.rows


def find_rows(
    table: Path,
    files: Sequence[Mapping[str, Any]],
    schema: TableSchema,
    keys: pa.Table,
    threads: int,
) -> Matches:
    """Find the rows with these keys (distinct, in the key columns of the table) in these files."""
    gone = {
        index: deletion_vectors.read(table, add["deletionVector"])
        for index, add in enumerate(files)
        if add.get("deletionVector")
    }
    search = _Search(table, files, schema, keys, gone, threads, _Allowance(MAX_INDEXED_ROWS))
    if partitions.key_partitions(schema, keys):
        found = [
            rows
            for part in partitions.keys_by_partition(files, schema, keys)
            for rows in _in_partition(search, part)
        ]
    else:
        found = search.run()
    return Matches(
        pa.concat_tables([arrow_schema(schema.schema).empty_table(), *(f.rows for f in found)]),
        _concatenated([f.code for f in found]),
        _concatenated([f.file for f in found]),
        _concatenated([f.row for f in found]),
        gone,
    )


def _in_partition(whole: _Search, part: partitions.KeysInPartition) -> list[_Found]:
    """The rows found in the files of a partition; all rows if the partition columns are the whole
    key."""
    own = [whole.files[index] for index in part.indexes]
    gone = whole.deleted
    left = {n: gone[index] for n, index in enumerate(part.indexes.tolist()) if index in gone}
    search = replace(whole, files=own, keys=part.keys, deleted=left)
    found = search.run() if part.keys.num_columns else search.every()
    return [_Found(f.rows, part.code[f.code], part.indexes[f.file], f.row) for f in found]


def live_rows(
    table: Path, add: Mapping[str, Any], schema: TableSchema, but: np.ndarray = NONE
) -> pa.Table:
    """The live rows of a file with all columns, except the row numbers in `but`."""
    rows = row_cache.table_rows(path_of(table, add), partitions.schema_of_file(add, schema))
    vector = add.get("deletionVector")
    if vector or len(but):
        live = np.ones(rows.num_rows, bool)
        live[but] = False
        live[deletion_vectors.read(table, vector) if vector else NONE] = False
        rows = rows.filter(pa.array(live))
    return rows


def path_of(table: Path, add: Mapping[str, Any]) -> Path:
    """As `text_of`, as a path."""
    return Path(text_of(str(table), add))


def text_of(table: str, add: Mapping[str, Any]) -> str:
    """The path of the file of an add action, which is relative and URL-encoded, or an absolute
    URL."""
    path = add["path"]
    if ":" in path and (parsed := urlparse(path)).scheme == "file":
        return unquote(parsed.path)
    return os.path.join(table, unquote(path))  # noqa: PTH118  (as a text)


@dataclass(slots=True)
class _Allowance:
    """The number of rows that may still be indexed in a lookup."""

    rows: int


@dataclass(frozen=True, slots=True)
class _Search:
    """The lookup of keys in files."""

    table: Path
    files: Sequence[Mapping[str, Any]]
    schema: TableSchema
    keys: pa.Table
    deleted: Mapping[int, np.ndarray]
    threads: int
    allowance: _Allowance

    def run(self) -> list[_Found]:
        few = [index for index, add in enumerate(self.files) if int(add["size"]) < row_cache.SMALL]
        large = [
            index for index, add in enumerate(self.files) if int(add["size"]) >= row_cache.SMALL
        ]
        held, whole = self._held(few)
        if self.keys.num_rows * MIN_ROWS_PER_KEY > sum(
            _records(self.files[index]) for index in large
        ):
            whole, large = [*whole, *large], []
        whole, huge = [n for n in whole if not self._is_huge(n)], list(filter(self._is_huge, whole))
        found, rest = self._by_pages(large)
        of_huge, alone = self._by_pages(huge)
        whole = sorted([*whole, *rest])
        return [
            *found,
            *of_huge,
            *self._alone(alone),
            *([self._small(held)] if held else []),
            *([self._whole(whole)] if whole else []),
        ]

    def every(self) -> list[_Found]:
        """All live rows: the files contain only rows with the one key."""
        found = []
        for index, add in enumerate(self.files):
            rows = row_cache.table_rows(path_of(self.table, add), self._within(index))
            row = np.setdiff1d(np.arange(rows.num_rows), self.deleted.get(index, NONE))
            file, code = np.full(len(row), index), np.zeros(len(row), np.int64)
            found.append(_Found(rows.take(pa.array(row)), code, file, row))
        return found

    def _by_pages(self, indexes: Sequence[int]) -> tuple[list[_Found], list[int]]:
        """The rows found in files by their pages, and the indexes of the files that have to be read
        whole."""
        if not indexes:
            return [], []
        located = self._located(indexes)
        with ThreadPoolExecutor(self.threads, thread_name_prefix="pages") as pool:
            found = list(pool.map(lambda index: self._paged(index, *located[index]), indexes))
        rest = [index for index, rows in zip(indexes, found, strict=True) if rows is None]
        paged = [rows for rows in found if rows is not None and len(rows.code)]
        return self._verified(paged), rest

    def _is_huge(self, index: int) -> bool:
        """Whether a file has few, huge rows, also if they take little room when compressed."""
        rows = _records(self.files[index])
        if not 0 < rows <= FEW_ROWS:
            return False
        with opened(str(path_of(self.table, self.files[index]))) as file:
            groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
            size: int = sum(group.total_byte_size for group in groups)
            return size >= HUGE_ROW * rows

    def _alone(self, indexes: Sequence[int]) -> list[_Found]:
        """The rows with the keys in files with huge rows: one file after the other, with no copy of
        a value but the one that is returned."""
        found, located = [], self._located(indexes) if indexes else {}
        for index in indexes:
            code, row = located[index]
            if len(row):
                path = path_of(self.table, self.files[index])
                every = row_cache.table_rows(path, self._within(index))
                rows = pa.concat_tables([every.slice(number, 1) for number in row.tolist()])
                found.append(_Found(rows, code, np.full(len(row), index), row))
                pa.default_memory_pool().release_unused()
        return self._verified(found)

    # -- locating keys --------------------------------------------------------------------------

    def _located(self, numbers: Sequence[int]) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """By file: the row numbers of the keys that it may contain, and of the rows that may have
        them."""
        indexes = self._indexes(numbers)
        located = {}
        if indexes:
            sought = key_index.LookupKeys.of(self.keys, self.schema)
            ordered = SortedKeys(self.schema, self.keys)
            located = {
                number: index.find(sought.select(ordered.candidates(self.files[number])))
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
        """The existing key indexes of files, and those that are built now."""
        key, indexes = self.keys.column_names, {}
        missing = []
        for number in numbers:
            add = self.files[number]
            if _records(add) < key_index.MIN_ROWS:
                continue
            index = key_index.open_index(self.table, add, self.schema, key)
            if index is not None:
                indexes[number] = index
            elif _records(add) <= key_index.MAX_ROWS and self.allowance.rows > 0:
                missing.append(number)
                self.allowance.rows -= _records(add)
        with ThreadPoolExecutor(self.threads, thread_name_prefix="index") as pool:
            made = pool.map(
                lambda number: key_index.build_index(
                    self.table, self.files[number], self.schema, key
                ),
                missing,
            )
            indexes |= {p: index for p, index in zip(missing, made, strict=True) if index}
        return indexes

    def _still_there(
        self, index: int, code: np.ndarray, row: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The rows that no deletion vector has removed, sorted by row number."""
        if index in self.deleted:
            live = ~np.isin(row, self.deleted[index])
            code, row = code[live], row[live]
        order = np.argsort(row, kind="stable")
        return code[order], row[order]

    # -- reading rows ---------------------------------------------------------------------------

    def _paged(self, index: int, code: np.ndarray, row: np.ndarray) -> _Found | None:
        """Rows of one file, read by their pages; None if the file has to be read whole."""
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
        # A column of one value need not be read; one column is, for the number of rows.
        known = {name: only for name in present if (only := layout.only(name)) is not None}
        wanted = [name for name in present if name not in known] or present[:1]
        stored = pages.read(path, layout, own, wanted).take(pa.array(of))
        for name, (value,) in known.items():
            if value is not None and name not in wanted:
                stored = stored.append_column(name, pa.repeat(pa.scalar(value), len(row)))
        return _Found(self._of_table(stored, self.schema.physical, file), code, file, row)

    def _layout(self, path: Path, rows: np.ndarray) -> pages.PageLayout | None:
        """The page layout of a file; None if it has no page index, does not contain these rows
        (ascending), or has them in too many of its pages."""
        key = self.schema.physical_of(self.keys.column_names[0])
        try:
            layout = pages.layout(path)
        except pages.NoPageIndex:
            return None
        if rows[-1] >= layout.rows or key not in layout.columns:
            return None
        return layout if layout.share(rows, key) <= MAX_PAGE_SHARE else None

    def _verified(self, found: Sequence[_Found]) -> list[_Found]:
        """The rows that really have the key: equal hashes do not prove it."""
        if not found:
            return []
        rows, code = (
            pa.concat_tables([f.rows for f in found]),
            _concatenated([f.code for f in found]),
        )
        file, row = _concatenated([f.file for f in found]), _concatenated([f.row for f in found])
        same = key_join.equal(rows.select(self.keys.column_names), code, self.keys)
        if not same.all():
            rows = rows.filter(pa.array(same))
        return [_Found(rows, code[same], file[same], row[same])]

    def _held(self, indexes: Sequence[int]) -> tuple[dict[int, pa.Table], list[int]]:
        """The cached rows of small files, and the files whose rows are too large for the cache."""
        paths = {index: path_of(self.table, self.files[index]) for index in indexes}
        found = {
            index: row_cache.cached_rows(path, self._within(index)) for index, path in paths.items()
        }
        held = {index: rows for index, rows in found.items() if rows is not None}
        return held, [index for index, rows in found.items() if rows is None]

    def _small(self, held: Mapping[int, pa.Table]) -> _Found:
        """The rows with the keys, among the cached rows of small files."""
        names = self.keys.column_names
        code, at = row_cache.matches(
            self.keys, pa.concat_tables([rows.select(names) for rows in held.values()])
        )
        ends = np.cumsum([rows.num_rows for rows in held.values()])
        number = np.searchsorted(ends, at, side="right")
        row = at - np.concatenate(([0], ends[:-1]))[number]
        file = np.asarray(list(held), np.int64)[number]
        live = ~_is_deleted(file, row, self.deleted)
        code, file, row = code[live], file[live], row[live]
        # File by file: `take` from several chunks would copy all of them first.
        rows = [held[index].take(pa.array(row[file == index])) for index in held]
        return _Found(pa.concat_tables(rows), code, file, row)

    def _whole(self, indexes: Sequence[int]) -> _Found:
        """The rows with the keys, by a join with all rows of the files."""
        possible = bounds.possible_keys([self.files[i] for i in indexes], self.schema, self.keys)
        keys = self.keys if possible is None else self.keys.take(pa.array(possible))
        found = key_join.rows(self._paths(indexes), self.schema, keys, self.threads)
        code, row = _numbers(found, key_join.CODE), _numbers(found, key_join.ROW)
        if possible is not None:
            code = possible[code]
        file = np.asarray(indexes, np.int64)[_numbers(found, key_join.FILE)]
        rows = self._of_table(found, self.schema.schema.names, file)
        live = ~_is_deleted(file, row, self.deleted)
        if not live.all():
            rows = rows.filter(pa.array(live))
        return _Found(rows, code[live], file[live], row[live])

    def _within(self, index: int) -> TableSchema:
        return partitions.schema_of_file(self.files[index], self.schema)

    def _of_table(self, found: pa.Table, names: Sequence[str], file: np.ndarray) -> pa.Table:
        """Complete rows to all columns of the table. names: the names of these columns in `found`;
        file: the index of the file of each row."""
        target = arrow_schema(self.schema.schema)
        there = dict(zip(found.column_names, found.columns, strict=True))
        columns = [
            there[name].cast(field.type) if name in there else self._absent(field.name, file)
            for name, field in zip(names, target, strict=True)
        ]
        return pa.table(columns, schema=target)

    def _absent(self, name: str, file: np.ndarray) -> pa.Array:
        """The values of a column that the files of these rows do not contain."""
        if name not in self.schema.partitions or not len(file):
            return pa.nulls(len(file), arrow_schema(self.schema.schema).field(name).type)
        indexes, of = np.unique(file, return_inverse=True)
        values = [self._within(index).missing_column(name, 1) for index in indexes.tolist()]
        return pa.concat_arrays(values).take(pa.array(of))

    def _paths(self, indexes: Sequence[int]) -> list[str]:
        return [str(path_of(self.table, self.files[index])) for index in indexes]


def _records(add: Mapping[str, Any]) -> int:
    """The number of rows of a file, deleted ones included; 0 if unknown."""
    return bounds.records(add) or 0


def _numbers(table: pa.Table, name: str) -> np.ndarray:
    numbers: np.ndarray = table[name].to_numpy().astype(np.int64)
    return numbers


def _concatenated(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros(0, np.int64), *arrays])


def _is_deleted(file: np.ndarray, row: np.ndarray, gone: Mapping[int, np.ndarray]) -> np.ndarray:
    removed = np.zeros(len(file), bool)
    for index, rows in gone.items():
        mine = file == index
        removed[mine] = np.isin(row[mine], rows)
    return removed
