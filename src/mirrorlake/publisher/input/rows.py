"""Converts any source of rows to Arrow blocks, which limits the memory for a large input.

DataFrames are recognized by their methods, not by their classes: `__arrow_c_stream__` (the Arrow
PyCapsule interface: Polars, DuckDB, Spark, pandas), `to_batches`, `toArrow` or `to_arrow`. No
DataFrame library is imported. A Spark DataFrame is streamed, unless it contains timestamps: then
Spark returns it as a whole.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from mirrorlake.errors import UnsupportedColumn, UsageError

ROWS = 1 << 16
"""Rows per block: limits the memory, and is enough for columnar work."""


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Some consecutive rows.

    rows: in any Arrow types; before: number of rows before them; lacking: for rows without columns
    that others have, the index in this block and the name of one such column.
    """

    rows: pa.Table
    before: int
    lacking: Mapping[int, str] = field(default_factory=dict)


def row_blocks(rows: Any, *, table: str) -> Iterator[RowBlock]:
    """The rows in order; at least one block if the columns are known.

    rows: a pyarrow Table, RecordBatch, RecordBatchReader, Dataset or Scanner; a DataFrame of
    pandas, Polars or Spark; anything with `__arrow_c_stream__`; dicts, or an iterable of dicts or
    of Arrow tables. Raises UsageError for anything else, UnsupportedColumn if the values of a
    column have no common type.
    """
    before = 0
    for batch, lacking in _batches(rows, table):
        yield RowBlock(batch, before, lacking)
        before += batch.num_rows


Lacking = dict[int, str]


def _batches(rows: Any, table: str) -> Iterator[tuple[pa.Table, Lacking]]:
    if isinstance(rows, Mapping):
        rows = [rows]
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if type(rows).__module__.partition(".")[0] == "pandas":
        rows = _from_pandas(rows)
    try:
        arrow = _arrow(rows)
    except pa.ArrowInvalid as error:
        raise UsageError(
            f"a {type(rows).__name__} has a type that Arrow does not support here: {error}",
            where=f"table {table}",
            hint="Convert that column to text or to a number first.",
        ) from error
    if arrow is not None:
        yield from ((part, {}) for part in _sliced(arrow))
    elif isinstance(rows, Iterable) and not isinstance(rows, str | bytes):
        yield from _from_iterable(rows, table)
    else:
        raise UsageError(
            f"a {type(rows).__name__} is not a table of rows",
            where=f"table {table}",
            hint="Pass a DataFrame of pandas, Polars or Spark (for a lazy one, the result of "
            "`collect()`), an Arrow table or reader, or dicts.",
        )


def _arrow(rows: Any) -> pa.Table | pa.RecordBatchReader | None:
    """Rows that are Arrow already, streamed if possible."""
    if isinstance(rows, pa.Table | pa.RecordBatchReader):
        return rows
    if hasattr(rows, "toArrow") and _has_times(rows):
        # The stream of Spark 4.2 fails for timestamps, because it does not know the time zone.
        return rows.toArrow()
    for method in ("__arrow_c_stream__", "to_reader", "toArrow", "to_arrow"):
        if not hasattr(rows, method):
            continue
        if method == "__arrow_c_stream__":
            return pa.RecordBatchReader.from_stream(rows)
        return _arrow(getattr(rows, method)())
    if hasattr(rows, "scanner"):  # a dataset
        rows = rows.scanner()
    if hasattr(rows, "projected_schema") and hasattr(rows, "to_batches"):
        return pa.RecordBatchReader.from_batches(rows.projected_schema, rows.to_batches())
    return None


def _has_times(frame: Any) -> bool:
    return any("timestamp" in kind for _name, kind in getattr(frame, "dtypes", ()))


def _sliced(arrow: pa.Table | pa.RecordBatchReader) -> Iterator[pa.Table]:
    count = 0
    batches = arrow.to_batches() if isinstance(arrow, pa.Table) else arrow
    for batch in batches:
        for start in range(0, batch.num_rows, ROWS):
            yield pa.Table.from_batches([batch.slice(start, ROWS)])
            count += 1
    if not count:
        yield arrow.schema.empty_table()


def _from_pandas(frame: Any) -> pa.Table:
    """The columns, and the index if it has a name."""
    if any(name is not None for name in frame.index.names):
        frame = frame.reset_index()
    return pa.Table.from_pandas(frame, preserve_index=False)


def _from_iterable(rows: Iterable[Any], table: str) -> Iterator[tuple[pa.Table, Lacking]]:
    iterator, names = iter(rows), dict[str, None]()
    whole = len(rows) if isinstance(rows, Sequence) else ROWS
    # Rows in memory are processed as a whole: one block, one type for each column.
    while group := list(itertools.islice(iterator, max(whole, ROWS))):
        if isinstance(group[0], Mapping):
            for row in group:
                names.update(dict.fromkeys(row))
            arrow = _from_dicts(group, list(names), table)
            for start in range(0, len(group), ROWS):
                part = group[start : start + ROWS]
                yield arrow.slice(start, ROWS), _lacking(part, names)
            continue
        for item in group:
            inner = _arrow(
                pa.Table.from_batches([item]) if isinstance(item, pa.RecordBatch) else item
            )
            if inner is None:
                raise UsageError(
                    f"a {type(item).__name__} is not a row",
                    where=f"table {table}",
                    hint="Pass dicts that map column names to values.",
                )
            yield from ((part, {}) for part in _sliced(inner))


def _from_dicts(group: list[Mapping[str, Any]], names: list[str], table: str) -> pa.Table:
    columns = []
    for name in names:
        try:
            columns.append(pa.array([row.get(name) for row in group]))
        except (pa.ArrowException, OverflowError) as error:
            raise UnsupportedColumn(
                f"its values do not have a common type: {error}",
                table=table,
                column=str(name),
                hint="Pass values of one type, and None for missing values.",
            ) from error
    return pa.table(columns, names=[str(name) for name in names])


def _lacking(part: list[Mapping[str, Any]], names: Mapping[str, None]) -> Lacking:
    return {
        index: next(name for name in names if name not in row)
        for index, row in enumerate(part)
        if len(row) < len(names)
    }
