"""A column of texts as a column of values.

Arrow reads the ordinary values of a column in one pass. Only when it meets one that the type of
the table cannot hold (an infinity, a year beyond 9999 or before 1, NaN in a decimal) are those
few values looked for and treated as the settings say.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.errors import BadValue
from mirrorlake.model.arrow import arrow_type
from mirrorlake.sources.postgresql.types.arrays import arrays_to_json
from mirrorlake.sources.postgresql.types.mapping import Form, PgType

INFINITIES = ["infinity", "-infinity"]
FIRST_DAY, LAST_DAY = "0001-01-01", "9999-12-31"
FIRST_MOMENT, LAST_MOMENT = f"{FIRST_DAY} 00:00:00", f"{LAST_DAY} 23:59:59.999999"

_DAY = r"^\d{4}-\d\d-\d\d$"
_MOMENT = r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?(\+00)?$"


@dataclass(frozen=True, slots=True)
class Extremes:
    """What becomes of values that no Delta type can hold."""

    dates: Literal["clamp", "null", "error"] = "clamp"  # keeps `valid_to = infinity` comparable
    numbers: Literal["null", "error"] = "error"  # NaN is not near any decimal


Noted = Callable[[str, int], None]
"""Told of a column and how many of its values were replaced."""


@dataclass(frozen=True, slots=True)
class ColumnDecoder:
    """Reads the texts of one column. `noted` hears of every replacement; is_key: rows are found by
    it, so that nothing of it may be replaced."""

    table: str
    column: str
    type: PgType
    extremes: Extremes
    noted: Noted
    is_key: bool = False

    def decode(self, texts: pa.Array) -> pa.Array:  # noqa: PLR0911  (one line per form)
        """texts: string; returns the type of the table. Raises BadValue."""
        target = arrow_type(self.type.type)
        match self.type.form:
            case Form.TEXT:
                return self._checked(texts)
            case Form.BOOLEAN:
                return pc.equal(texts, "t")
            case Form.NUMBER:
                return texts.cast(target)
            case Form.DECIMAL:
                return self._decimal(texts, target)
            case Form.DATE:
                return self._calendar(texts, target, _DAY, FIRST_DAY, LAST_DAY)
            case Form.TIMESTAMP:
                local = self._calendar(
                    texts, pa.timestamp("us"), _MOMENT, FIRST_MOMENT, LAST_MOMENT
                )
                return local.cast(target)
            case Form.INSTANT:
                return self._calendar(
                    texts, target, _MOMENT, f"{FIRST_MOMENT}+00", f"{LAST_MOMENT}+00"
                )
            case Form.BYTEA:
                return _bytea(texts)
            case Form.ARRAY:
                return arrays_to_json(self._with_bounds_of_json(texts), self.type.element)

    def _checked(self, texts: pa.Array) -> pa.Array:
        """The texts, all of them UTF-8: a SQL_ASCII database may hold anything."""
        try:
            texts.validate(full=True)
        except pa.ArrowInvalid:
            raise self._refused("a text is not UTF-8", "Convert the database to UTF8.") from None
        return texts

    def _with_bounds_of_json(self, texts: pa.Array) -> pa.Array:
        """Texts of arrays; in a key none with other lower bounds, which would become another key.
        Raises BadValue."""
        texts = self._checked(texts)
        if self.is_key and pc.any(others := pc.starts_with(texts, "[")).as_py():
            example = texts.filter(others)[0].as_py()
            raise self._key_refused(f"{example!r} has other lower bounds than 1")
        return texts

    def _calendar(
        self, texts: pa.Array, target: pa.DataType, ordinary: str, first: str, last: str
    ) -> pa.Array:
        try:
            return texts.cast(target)
        except pa.ArrowInvalid:
            odd = pc.fill_null(pc.invert(pc.match_substring_regex(texts, ordinary)), False)
            if not pc.any(odd, min_count=0).as_py():
                raise  # they are of another type
        replaced = texts.filter(odd)
        finite = replaced.filter(pc.invert(pc.is_in(replaced, value_set=pa.array(INFINITIES))))
        self.note_moments(
            len(replaced), lambda: str((finite or replaced)[0]), is_finite=bool(len(finite))
        )
        early = pc.or_(pc.ends_with(texts, " BC"), pc.starts_with(texts, "-"))
        bound = pc.if_else(early, first, last) if self.extremes.dates == "clamp" else None
        return pc.if_else(odd, bound, texts).cast(target)

    def note_moments(self, count: int, example: Callable[[], str], *, is_finite: bool) -> None:
        """Note that moments beyond the calendar are replaced. example: one of them; is_finite:
        whether any is no infinity, and then the example is not. Raises BadValue if the settings do
        not allow that, or in a key where several keys would become one."""
        is_lost = self.is_key and (is_finite or self.extremes.dates != "clamp")
        if not (is_lost or self.extremes.dates == "error"):
            self.noted(self.column, count)
            return
        what = f"{example()!r} is outside the years 1 to 9999"
        if is_lost:
            raise self._key_refused(what, " source.extremes.dates is for other columns.")
        raise self._refused(what, "Set source.extremes.dates to clamp or null.")

    def _decimal(self, texts: pa.Array, target: pa.DataType) -> pa.Array:
        try:
            return texts.cast(target)
        except pa.ArrowInvalid:
            odd = pc.fill_null(pc.match_substring_regex(texts, "[a-zA-Z]"), False)
            if not pc.any(odd, min_count=0).as_py():
                raise
        self.note_numbers(pc.sum(odd).as_py(), lambda: str(texts.filter(odd)[0]))
        return pc.if_else(odd, None, texts).cast(target)

    def note_numbers(self, count: int, example: Callable[[], str]) -> None:
        """As `note_moments`, of NaN and infinities in a decimal."""
        if self.extremes.numbers == "error":
            raise self._refused(
                f"{example()} is not a value of {self.type.type}",
                "Set source.extremes.numbers to null, or declare the column as numeric without "
                "precision, which is mirrored as text.",
            )
        self.noted(self.column, count)

    def _key_refused(self, what: str, more: str = "") -> BadValue:
        return self._refused(
            f"{what}, and the rows of the table are found by the column: with another value in its "
            "place, two rows could become one",
            f"Change the value in the source and run `mirrorlake reset {self.table}`, or remove "
            f"{self.table} from source.tables.{more}",
        )

    def _refused(self, what: str, hint: str) -> BadValue:
        return BadValue(what, table=self.table, column=self.column, hint=hint)


def _bytea(texts: pa.Array) -> pa.Array:
    """The bytes of `\\x0af1…`: all hex digits of the column are read in one call."""
    digits = pc.utf8_slice_codeunits(texts, 2)
    valid, offsets, data = digits.buffers()
    bounds = np.frombuffer(offsets, np.int32)[digits.offset : digits.offset + len(digits) + 1]
    decoded = binascii.unhexlify(memoryview(data)[bounds[0] : bounds[-1]]) if data else b""
    halved = (bounds - bounds[0]) // 2
    return pa.Array.from_buffers(
        pa.binary(),
        len(digits),
        [valid, pa.py_buffer(halved.astype(np.int32)), pa.py_buffer(decoded)],
        offset=0,
    )
