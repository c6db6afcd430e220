"""Compares the rows of a range of keys: which are missing, which are extra, and which differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import numpy as np
import pyarrow as pa

from mirrorlake.errors import TableError
from mirrorlake.model.arrow import contiguous
from mirrorlake.model.keys import encode, in_order, same

_FOLLOWS = "The mirror follows with the next change of the table. Verify it again after that."


@dataclass(frozen=True, slots=True)
class Differences:
    """What differs in a range.

    source, mirrored: numbers of rows. missing: rows that only the source has; extra: rows that only
    the mirror has, or has twice; different: rows with other values in the mirror. columns: in how
    many of these each column differs. examples: some keys of each kind; whole rows of a table
    without a key.
    """

    source: int = 0
    mirrored: int = 0
    missing: int = 0
    extra: int = 0
    different: int = 0
    columns: Mapping[str, int] = field(default_factory=dict)
    examples: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return self.missing + self.extra + self.different

    def joined(self, other: Differences, most: int) -> Differences:
        """Those of two ranges, with at most so many examples of each kind."""
        columns = {
            name: self.columns.get(name, 0) + other.columns.get(name, 0)
            for name in {**self.columns, **other.columns}
        }
        examples = {
            kind: [*self.examples.get(kind, ()), *other.examples.get(kind, ())][:most]
            for kind in {**self.examples, **other.examples}
        }
        return Differences(
            self.source + other.source,
            self.mirrored + other.mirrored,
            self.missing + other.missing,
            self.extra + other.extra,
            self.different + other.different,
            columns,
            examples,
        )


def compare(
    source: pa.Table, mirrored: pa.Table, key: Sequence[str], table: str, most: int
) -> Differences:
    """Compare the rows of one range, both in any order.

    The columns of `source` count; the mirror may have more. key: empty for rows that are compared
    as a whole, as often as they occur. most: how many examples of each kind. Raises TableError
    when the mirror lacks a column, or has it with another type.
    """
    both = pa.concat_tables([source, _aligned(mirrored, source.schema, table)]).combine_chunks()
    rows = source.num_rows
    code = encode(both.select(list(key) or both.column_names)).code
    missing, extra, pairs = _paired(code, rows)
    columns: dict[str, int] = {}
    differs = np.zeros(len(pairs), bool)
    for name in both.column_names if key else ():
        column = contiguous(both[name])
        alike = same(column.take(pa.array(pairs[:, 0])), column.take(pa.array(pairs[:, 1])))
        if not alike.all():
            columns[name] = int((~alike).sum())
            differs |= ~alike
    found = {"missing": missing, "extra": extra, "different": pairs[differs, 0]}
    shown = both.select(list(key) or both.column_names)
    return Differences(
        rows,
        mirrored.num_rows,
        len(missing),
        len(extra),
        int(differs.sum()),
        columns,
        {
            kind: plain(shown.take(pa.array(which[:most])))
            for kind, which in found.items()
            if len(which)
        },
    )


def plain(rows: pa.Table) -> list[dict[str, Any]]:
    """A few rows as JSON can have them. Moments are texts, because Python's calendar is shorter
    than that of databases."""
    texts = {
        name: column.cast(pa.string())
        for name, column in zip(rows.column_names, rows.columns, strict=True)
        if pa.types.is_temporal(column.type) or pa.types.is_decimal(column.type)
    }
    for name, column in texts.items():
        rows = rows.set_column(rows.column_names.index(name), name, column)
    return [{name: _plain(value) for name, value in row.items()} for row in rows.to_pylist()]


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    return str(value) if isinstance(value, float) and not isfinite(value) else value


def _paired(code: np.ndarray, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The rows of the source without one of the mirror, those of the mirror without one of the
    source, and the pairs. code: of all rows, of which the first `rows` are those of the source."""
    order = in_order(code)
    ordered, is_source = code[order], order < rows
    # The n-th row of a key in the source belongs to the n-th one in the mirror.
    number = np.arange(len(code)) - np.searchsorted(ordered, ordered)
    sources = np.bincount(code[:rows], minlength=len(code))[ordered]
    number = np.where(is_source, number, number - sources)
    mirrors = np.bincount(code[rows:], minlength=len(code))[ordered]
    has_other = number < np.where(is_source, mirrors, sources)
    missing, extra = order[is_source & ~has_other], order[~is_source & ~has_other]
    pairs = np.column_stack((order[is_source & has_other], order[~is_source & has_other]))
    return np.sort(missing), np.sort(extra), pairs


def _aligned(mirrored: pa.Table, schema: pa.Schema, table: str) -> pa.Table:
    """The columns of the mirror as those of the source."""
    for name in schema.names:
        if name not in mirrored.column_names:
            raise lacking(table, name)
    columns = [aligned(mirrored[one.name], one.type, table, one.name) for one in schema]
    return pa.table(columns, schema=schema)


def aligned(values: pa.ChunkedArray, kind: pa.DataType, table: str, column: str) -> pa.ChunkedArray:
    """The same values of a column as another type. Raises TableError when it cannot have them."""
    if values.type == kind:
        return values
    reason: pa.ArrowException | None = None
    try:
        cast = values.cast(kind)
        if same(contiguous(values), contiguous(cast.cast(values.type))).all():
            return cast
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        reason = error
    raise TableError(
        f"the types of the column differ: {values.type} and {kind}",
        table=table,
        column=column,
        hint=_FOLLOWS,
    ) from reason


def lacking(table: str, column: str) -> TableError:
    """The error of a mirrored table without a column of the source."""
    return TableError(
        "the mirror does not have a column of the source", table=table, column=column, hint=_FOLLOWS
    )
