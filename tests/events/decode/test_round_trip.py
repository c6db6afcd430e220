"""What we write is what we read, value by value, in both formats."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import assume, given, settings

from mirrorlake.events import types
from mirrorlake.events.decode.json.events import schema_columns
from mirrorlake.events.encode.container import container
from mirrorlake.events.encode.json_lines import json_lines
from mirrorlake.events.envelope import EventSource
from mirrorlake.events.reading import read_events
from mirrorlake.events.types import EventColumn, UnifiedKind
from tests.events.values import KINDS, Drawn, columns, described, rows
from tests.profiles import tries


def comparable(values: pa.Array, kind: UnifiedKind) -> pa.Array:
    """NaN equals NaN; JSON is told without blanks, or as it stands, where its null is that of the
    database."""
    if kind in {UnifiedKind.DOUBLE, UnifiedKind.FLOAT}:
        return values.cast(pa.string())
    if kind is UnifiedKind.JSON:
        return pa.array([repr(json.loads(v or "null")) for v in values.to_pylist()], pa.string())
    return values


@pytest.mark.clause("ST-015", "ST-112", "ST-134", "ST-135", "ST-157")
@pytest.mark.parametrize("form", ["avro", "deflate", "json", "json with its schema file"])
@settings(max_examples=tries(80))
@given(drawn=columns(KINDS))
def test_every_value_comes_back(form: str, drawn: list[Drawn]) -> None:
    # JSON has no offset for a moment that no calendar has.
    assume("json" not in form or "'timestamp': 92233720368" not in str(drawn).replace("-", ""))
    event_object, written = described(drawn), rows(drawn)
    known = {one.column.name: one.column.type for one in drawn}
    if form.startswith("json"):
        content = b"".join(json_lines(event_object, written))
    else:
        content = b"".join(container(event_object, written, deflate=form == "deflate"))
    given = schema_columns(json.dumps(event_object.schema).encode())
    by_schema = form == "json with its schema file"
    (found,) = read_events(
        io.BytesIO(content),
        columns=given if by_schema else None,
        known=None if by_schema else lambda _head: known,
    )
    assert not found.rejected
    assert found.head.column("uuid").combine_chunks().equals(written.uuid)
    assert found.head.column("is_deleted").to_pylist() == written.metadata["is_deleted"].to_pylist()
    for one, values in zip(drawn, written.payload, strict=True):
        kind = one.column.type.kind
        read = pc.cast(found.payload.column(one.column.name).combine_chunks(), values.type)
        assert comparable(read, kind).equals(comparable(values, kind)), one


@pytest.mark.clause("ST-122", "ST-135")
@pytest.mark.parametrize("form", ["avro", "json"])
def test_a_text_of_json_stays_a_text_whatever_it_contains(form: str) -> None:
    values = [json.dumps(text) for text in ('{"a": 1}', "[1]", "null", "1", "")] + ["{}", None]
    # Lines of JSON have one null, for that of JSON and that of the database.
    values += ["null"] if form == "avro" else []
    drawn = [Drawn(EventColumn("c0", types.JSON), values)]
    event_object, written = described(drawn, EventSource.POSTGRESQL), rows(drawn)
    metadata = {"schema": "shop", "tx_id": None, "lsn": None, **written.metadata}
    written = replace(written, metadata=metadata)
    write = container if form == "avro" else json_lines
    content = b"".join(write(event_object, written))
    columns = schema_columns(json.dumps(event_object.schema).encode())
    (found,) = read_events(io.BytesIO(content), columns=columns)
    assert found.payload.column("c0").to_pylist() == values


ODD_JSON = [
    '{"a":1,"a":2}',
    '{"a":{"b":1.10,"b":[{"c":1,"c":{}}]},"a":1}',
    '"\\ud800"',
    '{"\\udfff":"\u00e9\\udc00\\ud800","k":"\\\\ud800"}',
    '["\\u0000",1e400]',
]
"""Values of PostgreSQL's `json` that few other programs accept."""


@pytest.mark.clause("ST-122", "ST-135")
@pytest.mark.parametrize("form", ["avro", "json"])
@pytest.mark.parametrize("count", [1, 100])
@pytest.mark.parametrize("is_array", [False, True])
def test_every_value_of_json_of_postgresql_comes_back(
    form: str, count: int, *, is_array: bool
) -> None:
    """count: as few as are read one by one, or enough to be read at once."""
    values: list[Any] = ODD_JSON * count
    if is_array:
        values = [{"dimensions": [2], "elements": [one, "{}"]} for one in values]
    kind = types.array(types.JSON) if is_array else types.JSON
    drawn = [Drawn(EventColumn("c0", kind), values)]
    event_object, written = described(drawn, EventSource.POSTGRESQL), rows(drawn)
    metadata = {"schema": "shop", "tx_id": None, "lsn": None, **written.metadata}
    written = replace(written, metadata=metadata)
    write = container if form == "avro" else json_lines
    content = b"".join(write(event_object, written))
    columns = schema_columns(json.dumps(event_object.schema).encode())
    found = [*read_events(io.BytesIO(content), columns=columns)]
    assert not any(one.rejected for one in found)
    assert [v for one in found for v in one.payload.column("c0").to_pylist()] == values
