"""A column whose unified type changes: a value of the new type is exact, or reported."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mirrorlake.apply.events.columns import EventTableColumns
from mirrorlake.events import types
from mirrorlake.events.rows import payload_type
from mirrorlake.events.types import UnifiedKind, UnifiedType
from tests.apply.events.bucket import Bucket, event
from tests.apply.events.genuine import avro

MOMENT = datetime(2026, 11, 30, 12, 30, tzinfo=UTC)
PLAIN = MOMENT.replace(tzinfo=None)
GEOMETRY = {"value": b"\x01", "srid": 4326, "type": "POINT"}
VALUES: dict[UnifiedType, Any] = {
    types.BOOLEAN: True,
    types.BYTES: b"\x01",
    types.DATE: date(2026, 11, 30),
    types.DATETIME: PLAIN,
    types.decimal(5, 2): Decimal("1.50"),
    types.decimal(14, 2): Decimal("1.50"),
    types.decimal(45, 2): Decimal("1.50"),
    types.decimal(60, 9): Decimal("1.500000000"),
    types.DOUBLE: 1.5,
    types.FLOAT: 1.5,
    types.GEOMETRY: GEOMETRY,
    types.INTEGER: 1,
    types.INTERVAL: {"months": 1, "hours": 2, "micros": 3},
    types.JSON: '{"a":1}',
    types.LONG: 1,
    types.NUMBER: "1.5",
    types.STRING: "text",
    types.TIME: 1_000_000,
    types.TIME_INTERVAL: 1_000_000,
    types.TIMESTAMP: PLAIN,
    types.TIMESTAMP_WITH_TIME_ZONE: {"timestamp": PLAIN, "offset": 3_600_000},
    types.TIME_WITH_TIME_ZONE: {"time": 1_000_000, "offset": 0},
    types.UNSUPPORTED: None,
    types.varchar(5): "text",
    types.varchar(10): "text",
    types.array(types.INTEGER): {"dimensions": [1], "elements": [1]},
    types.array(types.LONG): {"dimensions": [1], "elements": [1]},
    types.array(types.decimal(14, 2)): {"dimensions": [1], "elements": [Decimal("1.50")]},
    types.array(types.NUMBER): {"dimensions": [1], "elements": ["1.5"]},
    types.array(types.STRING): {"dimensions": [1], "elements": ["text"]},
    types.array(types.TIME_INTERVAL): {"dimensions": [1], "elements": [1]},
}
INTEGER, LONG, FLOAT, DOUBLE = types.INTEGER, types.LONG, types.FLOAT, types.DOUBLE
FITS: dict[UnifiedType, dict[UnifiedType, Any]] = {
    types.DATETIME: {types.TIMESTAMP: MOMENT},
    types.TIMESTAMP: {types.DATETIME: MOMENT},
    types.decimal(14, 2): {types.decimal(5, 2): Decimal("1.50"), INTEGER: Decimal("1.00")},
    types.decimal(45, 2): {
        types.decimal(5, 2): "1.50",
        types.decimal(14, 2): "1.50",
        INTEGER: "1.00",
        LONG: "1.00",
    },
    types.decimal(60, 9): {
        types.decimal(5, 2): "1.500000000",
        types.decimal(14, 2): "1.500000000",
        types.decimal(45, 2): "1.500000000",
        INTEGER: "1.000000000",
        LONG: "1.000000000",
    },
    DOUBLE: {INTEGER: 1.0, FLOAT: 1.5},
    LONG: {INTEGER: 1},
    types.STRING: {types.NUMBER: "1.5", types.varchar(5): "text", types.varchar(10): "text"},
    types.varchar(5): {types.STRING: "text", types.varchar(10): "text"},
    types.varchar(10): {types.STRING: "text", types.varchar(5): "text"},
    types.array(LONG): {types.array(INTEGER): "[1]"},
    types.array(types.decimal(14, 2)): {types.array(INTEGER): '["1.00"]'},
    types.array(types.STRING): {types.array(types.NUMBER): '["1.5"]'},
}
"""Of each type of a column, the other types whose values it has, and what they are in it."""


def test_every_unified_type_is_among_the_pairs() -> None:
    assert {one.kind for one in VALUES} == {*UnifiedKind}


@pytest.mark.clause("ST-262", "ST-253")
@pytest.mark.parametrize("column", [one for one in VALUES if one != types.UNSUPPORTED], ids=str)
def test_a_value_of_another_type_is_exact_or_reported(column: UnifiedType) -> None:
    """Never NULL in silence, and never in another meaning, whatever both types are in Delta."""
    columns = EventTableColumns().widened("t", {"v": column})
    for given, value in VALUES.items():
        if given == column:
            continue
        payload = pa.table({"v": pa.array([value, None], payload_type(given))})
        (found,), rejected = columns.rows(payload, {"v": given}, (), np.zeros(2, bool))
        if given in FITS.get(column, {}):
            assert (found.to_pylist(), rejected) == ([FITS[column][given], None], {}), given
            continue
        reason = f"column v is {column} in the table, and {given} in the event"
        # NULL is NULL in every type, but where all values are.
        assert rejected == dict.fromkeys([0, 1] if given == types.UNSUPPORTED else [0], reason)


@pytest.mark.clause("ST-262", "ST-108")
@pytest.mark.parametrize("given", VALUES, ids=str)
def test_a_deletion_needs_no_value_that_fits(given: UnifiedType) -> None:
    payload = pa.table({"v": pa.array([VALUES[given]], payload_type(given))})
    for column in VALUES:
        columns = EventTableColumns().widened("t", {"v": column})
        _found, rejected = columns.rows(payload, {"v": given}, (), np.ones(1, bool))
        assert not rejected, column


@pytest.mark.clause("ST-262", "ST-254")
@pytest.mark.parametrize(
    ("before", "value", "after", "other"),
    [
        ({"type": "string", "logicalType": "number"}, "1.5", "long", 1),
        ({"type": "long", "logicalType": "time-interval-micros"}, 5, "long", 6),
        ("long", 5, {"type": "null", "logicalType": "unsupported"}, None),
    ],
    ids=["a number", "a duration", "a type that is no longer known"],
)
def test_a_type_that_changes_in_a_later_file_is_reported(
    tmp_path: Path, before: Any, value: Any, after: Any, other: Any
) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.avro").write_bytes(avro([event(1, {"id": 1, "v": value})], v=before))
    bucket.cycle()
    bucket.put("b.avro").write_bytes(avro([event(2, {"id": 2, "v": other})], v=after))
    bucket.put("c.avro").write_bytes(avro([event(3, {"id": 3, "v": value})], v=before))
    bucket.cycle()
    assert [row["id"] for row in bucket.plain()] == [1, 3]
    (dead,) = bucket.consumer()._journal.dead
    (letter,) = dead.letters
    assert "in the table, and" in letter.reason
    # What only dead letters have is not taken for the type when the state is computed anew.
    bucket.consumer().rebuild(bucket.done[0][0])
    bucket.consumer().replay()
    assert [row["id"] for row in bucket.plain()] == [1, 3]
