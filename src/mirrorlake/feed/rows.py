"""Rearranges the rows of one commit by key: sorts, pairs, removes updates without effect."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.delta.feed_columns import METADATA
from mirrorlake.delta.write.data_files import CHANGE_TYPE
from mirrorlake.errors import UsageError
from mirrorlake.model import keys as codes
from mirrorlake.model.arrow import contiguous, python_rows, taken

INSERT, DELETE = "insert", "delete"
BEFORE, AFTER = "update_preimage", "update_postimage"

RowChange = tuple[dict[str, Any] | None, dict[str, Any] | None]
"""The row before and the row after."""

_ORDER = {DELETE: 0, BEFORE: 1, INSERT: 2, AFTER: 3}


def in_key_order(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Sorted by key; for one key, old rows before new ones, and the two images of an update
    adjacent (CF-178)."""
    if not rows.num_rows:
        return rows
    numbers = pa.table(
        {
            **{f"k{index}": rows[name] for index, name in enumerate(key)},
            # Equal keys stay together: Arrow sorts -0.0 and 0.0 as one value.
            "code": codes.encode(rows.select(list(key))).code,
            "pair": _occurrence(rows, key, kinds_of(rows)),
            "rank": np.array([_ORDER[kind] for kind in kinds_of(rows)], np.int8),
        }
    )
    by = [*((f"k{index}", "ascending") for index in range(len(key)))]
    found = [*by, ("code", "ascending"), ("pair", "ascending"), ("rank", "ascending")]
    return taken(
        rows, numbers.append_column("n", _range(rows)).sort_by([*found, ("n", "ascending")])["n"]
    )


def row_changes(rows: pa.Table, key: Sequence[str]) -> Iterator[RowChange]:
    """The changes of one commit as pairs; with a key, the two images of an update form one pair,
    unless it changed the key (CF-199)."""
    has_key = bool(key) and set(key) <= set(rows.column_names)
    rows = in_key_order(rows, key) if has_key else rows
    code = codes.encode(rows.select(list(key))).code if has_key else np.zeros(rows.num_rows)
    before: dict[str, Any] | None = None
    known = -1
    for of_row, row in zip(code.tolist(), python_rows(rows), strict=True):
        kind = row[CHANGE_TYPE]
        if before is not None and (kind != AFTER or of_row != known):
            yield before, None
            before = None
        known = of_row
        if kind == BEFORE and has_key:
            before = row
        elif kind in {DELETE, BEFORE}:
            yield row, None
        else:
            yield before, row
            before = None
    if before is not None:
        yield before, None


def paired(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """A delete and an insert of one key become the two images of an update (CF-146)."""
    kinds = kinds_of(rows)
    pairs = _pairs(rows, key, kinds, DELETE, INSERT)
    kinds[pairs[:, 0]], kinds[pairs[:, 1]] = BEFORE, AFTER
    at = rows.column_names.index(CHANGE_TYPE)
    return rows.set_column(at, CHANGE_TYPE, pa.array(kinds, pa.string()))


def without_unchanged(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Without the updates whose images are equal in every column (CF-023)."""
    kinds = kinds_of(rows)
    pairs = _pairs(rows, key, kinds, BEFORE, AFTER)
    code = codes.encode(codes.plain(rows.drop_columns(list(METADATA)))).code
    same = pairs[code[pairs[:, 0]] == code[pairs[:, 1]]]
    is_left = np.ones(rows.num_rows, bool)
    is_left[same.ravel()] = False
    return rows.filter(pa.array(is_left))


def of_kinds(rows: pa.Table, kinds: Sequence[str]) -> pa.Table:
    """The rows of some change types."""
    return rows.filter(pc.is_in(rows[CHANGE_TYPE], value_set=pa.array(kinds, pa.string())))


def key_values(given: Sequence[str], key: Sequence[str], columns: Sequence[str]) -> dict[str, str]:
    """Parse values of key columns: `VALUE` for a key with one column, or `COLUMN=VALUE`.

    key: of the table; columns: all of its columns. Raises UsageError.
    """
    values = {}
    for pair in given:
        column, is_named, value = pair.partition("=")
        if len(key) == 1 and not (is_named and column == key[0]):
            column, value = key[0], pair
        if column not in columns:
            raise UsageError(
                f"the key {pair} names no column of the table",
                hint="Write COLUMN=VALUE, once for each column of the key.",
            )
        values[column] = value
    return values


def of_key(rows: pa.Table, values: Mapping[str, str]) -> pa.Table:
    """The rows with these values, given as texts, in these columns; a timestamp is in UTC unless
    its text has an offset. Raises UsageError for a text that is no value of its column.

    None has a number for which the column has no room: perhaps it had a narrower type then.
    """
    for name, text in values.items():
        kind = rows[name].type
        try:
            value = _value(text, kind)
        except (ValueError, pa.ArrowNotImplementedError) as error:
            if not ((pa.types.is_integer(kind) or pa.types.is_decimal(kind)) and _is_number(text)):
                raise _no_value(name, text, kind) from error
            return rows.slice(0, 0)
        # As keys, NaN is equal to itself, and -0.0 is not 0.0 (LZ-256, LZ-257).
        sought = codes.comparable(value)
        rows = rows.filter(pc.equal(codes.comparable(contiguous(rows[name])), sought[0]))
    return rows


def _value(text: str, kind: pa.DataType) -> pa.Array:
    """The value of a type with this text, as an array of one."""
    given = pa.array([text], pa.string())
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        with suppress(ValueError):  # which names an offset
            return given.cast(pa.timestamp(kind.unit)).cast(kind)
    return given.cast(kind)


def _no_value(name: str, text: str, kind: pa.DataType) -> UsageError:
    for is_kind, word, form in _FORMS:
        if is_kind(kind):
            return UsageError(
                f"{text!r} is no value of the column {name}, which is a {word}",
                where="the key",
                hint=f"Write {form}.",
            )
    return UsageError(
        f"rows cannot be found by the column {name}, which is a {kind}",
        where="the key",
        hint="Name the key column with COLUMN=VALUE.",
    )


def _is_local(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is None


_FORMS: tuple[tuple[Callable[[pa.DataType], bool], str, str], ...] = (
    (_is_local, "timestamp without time zone", "it as 2026-11-23 10:00:00, without an offset"),
    (pa.types.is_timestamp, "timestamp", "it as 2026-11-23 10:00:00, in UTC, or with an offset"),
    (pa.types.is_date, "date", "it as 2026-11-23"),
    (pa.types.is_boolean, "boolean", "true or false"),
    (pa.types.is_integer, "whole number", "it in digits"),
    (pa.types.is_decimal, "decimal number", "it as 12.50"),
    (pa.types.is_floating, "floating point number", "it as 12.5, 1e300 or NaN"),
)
"""Kinds of types, each in a word, and how a value of it is written."""


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[+-]?[0-9]+(\.[0-9]+)?", text) is not None


def _pairs(rows: pa.Table, key: Sequence[str], kinds: np.ndarray, old: str, new: str) -> np.ndarray:
    """The numbers of the rows of kind `old` and `new` with the same key, as two columns. Several
    rows with one key are paired in order."""
    code = codes.encode(rows.select(list(key))).code
    found = []
    for kind in (old, new):
        at = np.flatnonzero(kinds == kind)
        nth = _nth(code[at])
        found.append(
            {(key_code, n): row for key_code, n, row in zip(code[at], nth, at, strict=True)}
        )
    both = [(row, found[1][which]) for which, row in found[0].items() if which in found[1]]
    return np.array(both, np.int64).reshape(-1, 2)


def _nth(code: np.ndarray) -> np.ndarray:
    """For each row, the number of earlier rows with its code."""
    order = np.argsort(code, kind="stable")
    ordered = code[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    lengths = np.diff(np.append(starts, len(code)))
    nth = np.empty(len(code), np.int64)
    nth[order] = np.arange(len(code)) - np.repeat(starts, lengths)
    return nth


def _occurrence(rows: pa.Table, key: Sequence[str], kinds: np.ndarray) -> np.ndarray:
    """For each image of an update, the number of the update among those of its key; deletes come
    first, inserts last."""
    code = codes.encode(rows.select(list(key))).code
    number = np.where(kinds == DELETE, -1, len(kinds))
    for kind in (BEFORE, AFTER):
        at = np.flatnonzero(kinds == kind)
        number[at] = _nth(code[at])
    return number


def kinds_of(rows: pa.Table) -> np.ndarray:
    """The change type of each row."""
    found: np.ndarray = contiguous(rows[CHANGE_TYPE]).to_numpy(zero_copy_only=False)
    return found.astype(object)


def _range(rows: pa.Table) -> pa.Array:
    return pa.array(np.arange(rows.num_rows))
