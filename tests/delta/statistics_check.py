"""Whether what the log says of its files truly bounds their rows: readers pass over files by it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mirrorlake.delta import deletion_vectors
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.delta.lookup.key_lookup import path_of
from mirrorlake.delta.schema import parse
from mirrorlake.model.arrow import arrow_type
from tests.delta.handmade import HandmadeTable


def check_bounds(table: Path | str) -> None:
    """Each live file holds as many rows, NULLs and values within bounds as its statistics say."""
    snapshot = TableLog(table).snapshot()
    schema = parse(snapshot.metadata)
    kinds = {
        physical: arrow_type(column.type)
        for column, physical in zip(schema.schema, schema.physical, strict=True)
    }
    copy = HandmadeTable(table)  # of a table on objects
    folder = copy.path
    for add in snapshot.files.values():
        _check_file(folder, add, kinds)


def _check_file(table: Path, add: Mapping[str, Any], kinds: Mapping[str, pa.DataType]) -> None:
    stats = json.loads(add["stats"], parse_float=Decimal)
    file = path_of(table, add)
    rows = pq.read_table(file, coerce_int96_timestamp_unit="us", partitioning=None)
    assert stats["numRecords"] == rows.num_rows, file.name
    vector = add.get("deletionVector")
    live = np.ones(rows.num_rows, bool)
    if vector:
        live[deletion_vectors.read(table, vector)] = False
        assert vector["cardinality"] == int((~live).sum())
        assert not stats.get("tightBounds", True), f"{file.name} lost rows, and says it did not"
    # Delta leaves the kind of change in the data files of a MERGE; it is no column of the table.
    for name in [name for name in rows.column_names if name in kinds]:
        column = rows[name].cast(kinds[name]).filter(pa.array(live))
        _check_column(stats, name, column, whole=not vector)


def _check_column(
    stats: Mapping[str, Any], name: str, column: pa.ChunkedArray, *, whole: bool
) -> None:
    nulls = stats["nullCount"].get(name)
    if nulls is not None and whole:
        assert nulls == column.null_count, name
    elif nulls is not None:
        assert column.null_count <= nulls, name
        assert nulls < stats["numRecords"] or column.null_count == len(column), name
    values = column.drop_null().to_pylist()
    bounds = (stats[side].get(name) for side in ("minValues", "maxValues"))
    least, most = (_bound_value(bound, column.type) for bound in bounds)
    for value in values:
        if (number := _number(value)) is not None:
            assert least is None or _bound(least, value) <= number, name
            assert most is None or _less(number) <= _bound(most, value), name


def _bound_value(bound: Any, kind: pa.DataType) -> Any:
    """A bound; None for NaN, which some writers take for the largest number of all.

    A float of 32 bits is told in as few digits as tell it from its neighbours of 32 bits.
    """
    if bound is None or bound == "NaN":
        return None
    return float(np.float32(bound)) if kind == pa.float32() else bound


def _number(value: Any) -> Any:
    """The value as it is compared; None for one that has no order, or that JSON cannot tell."""
    match value:
        case float():
            return None if value != value else Decimal(value)  # noqa: PLR0124  (NaN)
        case str():
            return value.encode()
        case bool() | bytes():
            return None
        case _:
            return value


def _less(number: Any) -> Any:
    """Moments are cut off at their milliseconds by some writers, and every reader allows for it."""
    if isinstance(number, datetime):
        return number.replace(microsecond=number.microsecond // 1000 * 1000)
    return number


def _bound(bound: Any, value: Any) -> Any:
    match value:
        case float():
            # As text it may have fewer digits than the value it stands for.
            return Decimal(float(bound))
        case datetime():
            return datetime.fromisoformat(bound.replace("Z", "+00:00")).astimezone(UTC)
        case date():
            return date.fromisoformat(bound)
        case str():
            return bound.encode()
        case Decimal():
            return Decimal(bound)
        case _:
            return bound
