"""Converts rows of a source to rows of a target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from mirrorlake.delta.lookup.key_lookup import candidates, find_rows
from mirrorlake.delta.schema import TableSchema
from mirrorlake.errors import FeedTargetError, UsageError
from mirrorlake.feed.targets.build import THREADS, Basis
from mirrorlake.feed.targets.changes import KeyedChanges, named_key, occurs_twice
from mirrorlake.model import keys as codes
from mirrorlake.model.arrow import arrow_schema
from mirrorlake.model.table import Column, Schema
from mirrorlake.model.types import DataType


def target_columns(
    source: Schema,
    own: Mapping[str, DataType],
    named: Sequence[str],
    where: str,
    hint: str = "Rename the column in the source.",
) -> list[Column]:
    """The columns of the source, all nullable, and the target's own. named: columns that must
    exist. hint: for a name conflict. Raises FeedTargetError for one (CF-210), UsageError."""
    known = {name.casefold() for name in own}
    for column in source:
        if column.name.casefold() in known:
            raise FeedTargetError(
                f"its source has a column {column.name}, which is a name of the target's own",
                where=where,
                hint=hint,
            )
    if absent := sorted(set(named) - set(source.names)):
        raise UsageError(
            f"{absent[0]} is no column of the version of the source with which this begins",
            where=where,
            hint=f"Name one of {', '.join(source.names)}, or begin with a later version "
            "(--from-version).",
        )
    both = [*source, *(Column(name, kind) for name, kind in own.items())]
    return [Column(column.name, column.type) for column in both]


def own_columns(rows: pa.Table, schema: TableSchema, values: Mapping[str, Any]) -> pa.Table:
    """Rows of a source with all columns of a target. values: of the columns that the rows lack, one
    per row or one for all; NULL by default."""
    target = arrow_schema(schema.schema)
    columns = []
    for field in target:
        if field.name in rows.column_names:
            columns.append(rows[field.name].cast(field.type))
            continue
        value = values.get(field.name)
        if not isinstance(value, pa.Array):
            value = pa.repeat(pa.scalar(value, field.type), rows.num_rows)
        columns.append(value)
    return pa.table(columns, schema=target)


class RowsOfOneKey(Iterator[pa.Table]):
    """Passes rows on; at the end raises FeedTargetError for a key that occurs twice.

    count: of the rows so far. Memory: the keys of all of them.
    """

    def __init__(
        self, rows: Iterator[pa.Table], key: Sequence[str], where: str, version: int
    ) -> None:
        self._rows, self._key, self._where, self._version = rows, list(key), where, version
        self._keys: list[pa.Table] = []
        self.count = 0

    def __next__(self) -> pa.Table:
        try:
            some = next(self._rows)
        except StopIteration:
            self._check()
            raise
        self._keys.append(some.select(self._key))
        self.count += some.num_rows
        return some

    def _check(self) -> None:
        if not self._keys:
            return
        keys = pa.concat_tables(self._keys)
        coded = codes.encode(keys)
        if len(coded.first) < keys.num_rows:
            again = np.setdiff1d(np.arange(keys.num_rows), coded.first)
            raise occurs_twice(keys, int(again[0]), self._where, self._version)


def existing(
    basis: Basis, changes: KeyedChanges, files: Sequence[Mapping[str, Any]], version: int
) -> FeedTargetError:
    """The error for keys whose rows in the target differ from those that the changes expect."""
    table = basis.table
    searched = candidates(files, basis.schema, changes.keys)
    table.fetch(searched)
    found = find_rows(table.folder, searched, basis.schema, changes.keys, THREADS)
    count = np.bincount(found.code, minlength=changes.keys.num_rows)
    return unlike(changes, count, basis.where, version)


def unlike(changes: KeyedChanges, count: np.ndarray, where: str, version: int) -> FeedTargetError:
    """Like `existing`. count: the number of rows per key in the target."""
    twice = np.flatnonzero((count > 0) & ~changes.existed)
    if len(twice):
        return occurs_twice(changes.keys, int(twice[0]), where, version)
    which = int(np.flatnonzero(count != changes.existed)[0])
    return FeedTargetError(
        f"it has {count[which]} rows of key {named_key(changes.keys, which)}, of which its source "
        "had one: somebody else has changed it",
        where=where,
        hint="Restore it to its last commit by mirrorlake, or build it anew.",
    )
