"""The order rules of each source: the log position of an event, read from its metadata.

A position is a log and up to four numbers, compared one after another. Positions in different logs
cannot be compared: those of two MySQL servers (ST-205), and Oracle positions with and without a
system change number (ST-206). The last changes of two logs are compared by source time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.mirror.event_order.numbers import (
    ParsedNumbers,
    hexadecimal,
    hexadecimal_pairs,
    whole,
)
from mirrorlake.model.arrow import contiguous

SECTIONS = 4
POSITION_FIELDS = ("log_file", "log_position", "scn", "rs_id", "ssn", "lsn")
"""The metadata that positions are read from, of all sources."""

_HALF = np.uint64(32)


@dataclass(frozen=True, slots=True)
class Places:
    """The log positions of n changes. log: n texts, none NULL; sections: uint64, n x 4; readable: n
    bool, whether the metadata contain a position."""

    log: pa.Array
    sections: np.ndarray
    readable: np.ndarray


@dataclass(frozen=True, slots=True)
class OrderRule:
    """How the changes of one source are ordered.

    places: reads the positions from the metadata columns, including `source_timestamp` (int64,
    milliseconds) and `sort_keys` (list of texts); a missing column counts as NULL.
    width: how many of the four numbers it uses.
    by_time: whether the first number is the source time, so that a later change never has an
    earlier time.
    deletion_last: whether a deletion is the last change at a position (ST-214), or the first
    (ST-212).
    """

    places: Callable[[pa.Table], Places]
    width: int
    by_time: bool = False
    deletion_last: bool = False


def _mysql(events: pa.Table) -> Places:
    """File and offset (ST-187); files by base name, then number (ST-208).

    A fourth sort key is the commit sequence in GTID mode, in which offsets are local to a server.
    """
    # A dictionary, because there are many changes per file.
    file = pc.dictionary_encode(_texts(events, "log_file"), null_encoding="encode")
    named = pc.extract_regex(file.dictionary, r"^(?P<base>.*?)(?P<number>[0-9]*)$")
    number = _optional(pc.struct_field(named, "number"))
    has_name = pc.fill_null(pc.greater(pc.utf8_length(file.dictionary), 0), False)
    number = ParsedNumbers(number.value, number.known & has_name.to_numpy(zero_copy_only=False))
    number = _taken(number, file.indices.to_numpy())
    position = whole(_column(events, "log_position"))
    sequence = whole(_sort_key(events, 3))
    base = pc.binary_join_element_wise("file ", pc.struct_field(named, "base"), "")
    log = pc.if_else(pa.array(sequence.known), "sequence", base.take(file.indices))
    readable = number.known & position.known
    in_log = np.where(readable, position.value, 0), np.where(readable, number.value, 0)
    first = np.where(sequence.known, sequence.value, in_log[1])
    second = np.where(sequence.known, in_log[1], in_log[0])
    third = np.where(sequence.known, in_log[0], 0)
    return _places(log, readable | sequence.known, first, second, third)


def _oracle(events: pa.Table) -> Places:
    """SCN, then the parts of the record set, then the SQL sequence number (ST-206, ST-210)."""
    scn = whole(_column(events, "scn"))
    record, sequence = _record_set(events), whole(_column(events, "ssn"))
    log = pc.if_else(pa.array(scn.known), "scn", "record")
    has_record = record[0].known & sequence.known
    # Without a record set the number says all that is known; one that cannot be read says more.
    text = pc.fill_null(pc.utf8_trim_whitespace(_texts(events, "rs_id")), "")
    no_record = pc.equal(text, "").to_numpy(zero_copy_only=False)
    readable = (scn.known & (no_record | record[0].known)) | has_record
    return _places(log, readable, scn.value, record[0].value, record[1].value, sequence.value)


def _oracle_strict(events: pa.Table) -> Places:
    """Record set and SQL sequence number only (ST-190)."""
    record, sequence = _record_set(events), whole(_column(events, "ssn"))
    readable = record[0].known & sequence.known
    return _places(_one_log(events), readable, record[0].value, record[1].value, sequence.value)


def _postgresql(events: pa.Table) -> Places:
    """Time, then the two numbers of the LSN (ST-193, ST-209)."""
    if (pair := hexadecimal_pairs(_texts(events, "lsn"))) is None:
        return _timed(events, "^(?P<p0>[0-9A-Fa-f]+)/(?P<p1>[0-9A-Fa-f]+)$", 2)
    return _at_time(events, pair)


def _sqlserver(events: pa.Table) -> Places:
    """Time, then the three numbers of the LSN (ST-196, ST-209)."""
    return _timed(events, "^(?P<p0>[0-9A-Fa-f]+):(?P<p1>[0-9A-Fa-f]+):(?P<p2>[0-9A-Fa-f]+)$", 3)


def _salesforce(events: pa.Table) -> Places:
    """Time alone (ST-197)."""
    time = whole(_column(events, "source_timestamp"))
    return _places(_one_log(events), time.known, time.value)


def _mongodb(events: pa.Table) -> Places:
    """The two numbers of `ts` or `clusterTime`, which only the sort keys contain (ST-198,
    ST-204)."""
    seconds, increment = whole(_sort_key(events, 0)), whole(_sort_key(events, 1))
    return _places(
        _one_log(events), seconds.known & increment.known, seconds.value, increment.value
    )


RULES: Mapping[str, OrderRule] = {
    "mysql": OrderRule(_mysql, 3),
    "oracle": OrderRule(_oracle, 4),
    "oracle-strict": OrderRule(_oracle_strict, 3),
    "postgresql": OrderRule(_postgresql, 3, by_time=True),
    "sqlserver": OrderRule(_sqlserver, 4, by_time=True),
    "salesforce": OrderRule(_salesforce, 1, by_time=True, deletion_last=True),
    "mongodb": OrderRule(_mongodb, 2),
}
"""The order rules by source; `oracle-strict` does not use the system change number (ST-190)."""


def _timed(events: pa.Table, pattern: str, parts: int) -> Places:
    found = pc.extract_regex(_texts(events, "lsn"), pattern)
    return _at_time(
        events, [hexadecimal(pc.struct_field(found, f"p{part}")) for part in range(parts)]
    )


def _at_time(events: pa.Table, numbers: Sequence[ParsedNumbers]) -> Places:
    time = whole(_column(events, "source_timestamp"))
    readable = np.logical_and.reduce([time.known, *(number.known for number in numbers)])
    return _places(_one_log(events), readable, time.value, *(number.value for number in numbers))


def _record_set(events: pa.Table) -> tuple[ParsedNumbers, ParsedNumbers]:
    """Parse record sets such as `0x0073c9.000a4e4c.01d0`, with or without blanks. Returns the first
    two parts, of 32 bits each, as one number, and the third part."""
    text = pc.utf8_trim_whitespace(_texts(events, "rs_id"))
    part = "[0-9A-Fa-f]{1,8}"
    found = pc.extract_regex(text, rf"^0[xX](?P<a>{part})\.(?P<b>{part})\.(?P<c>{part})$")
    high, low, last = (hexadecimal(pc.struct_field(found, name)) for name in "abc")
    return ParsedNumbers(
        (high.value << _HALF) | low.value, high.known & low.known & last.known
    ), last


def _places(log: pa.Array, readable: np.ndarray, *numbers: np.ndarray) -> Places:
    # By columns, which are used one by one.
    sections = np.zeros((SECTIONS, len(readable)), np.uint64).T
    for index, number in enumerate(numbers):
        sections[:, index] = np.where(readable, number, 0)
    return Places(contiguous(pc.fill_null(log, "")), sections, readable)


def _one_log(events: pa.Table) -> pa.Array:
    return pa.repeat(pa.scalar(""), events.num_rows)


def _column(events: pa.Table, name: str) -> pa.Array:
    if name not in events.column_names:
        return pa.nulls(events.num_rows, pa.string())
    return contiguous(events.column(name))


def _texts(events: pa.Table, name: str) -> pa.Array:
    column = _column(events, name)
    return column.cast(pa.string())


def _sort_key(events: pa.Table, index: int) -> pa.Array:
    """The sort key with this index of each event, as text; NULL if there are fewer."""
    column = _column(events, "sort_keys")
    if not pa.types.is_list(column.type):
        return pa.nulls(len(column), pa.string())
    there = pc.fill_null(pc.greater(pc.list_value_length(column), index), False)
    rows = np.flatnonzero(there.to_numpy(zero_copy_only=False))
    found = pc.list_element(column.take(pa.array(rows)), index).cast(pa.string())
    places = np.zeros(len(column), np.int64)
    places[rows] = np.arange(len(rows))
    return found.take(pa.array(places, mask=~there.to_numpy(zero_copy_only=False)))


def _taken(numbers: ParsedNumbers, indexes: np.ndarray) -> ParsedNumbers:
    return ParsedNumbers(numbers.value[indexes], numbers.known[indexes])


def _optional(digits: pa.Array) -> ParsedNumbers:
    """Parse an optional number; an empty text is 0."""
    given = whole(digits)
    missing = pc.fill_null(pc.equal(digits, ""), False).to_numpy(zero_copy_only=False)
    return ParsedNumbers(given.value, given.known | missing)
