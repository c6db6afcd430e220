"""Event files of ours as Spark's own readers and Avro's own tools read them."""

from __future__ import annotations

import json
import subprocess
import sys
from decimal import Decimal
from typing import Any

import pytest

from mirrorlake.events import types
from mirrorlake.events.encode.container import container
from mirrorlake.events.encode.json_lines import json_lines
from mirrorlake.events.types import EventColumn, UnifiedType
from mirrorlake.spark.session import jars
from tests.events.values import Drawn, decoded, described, rows

pytestmark = [pytest.mark.full, pytest.mark.spark]

MOMENT = 1767323045678901
VALUES: dict[str, tuple[UnifiedType, Any]] = {
    "boolean": (types.BOOLEAN, True),
    "bytes": (types.BYTES, b"\x00\xff"),
    "date": (types.DATE, 20455),
    "datetime": (types.DATETIME, MOMENT),
    "decimal": (types.decimal(10, 2), Decimal("-456.12")),
    "double": (types.DOUBLE, 0.1),
    "float": (types.FLOAT, 1.5),
    "integer": (types.INTEGER, -(2**31)),
    "interval": (types.INTERVAL, {"months": -14, "hours": 68, "micros": -306_700_000}),
    "json": (types.JSON, '{"a": [1, 2.50]}'),
    "long": (types.LONG, 2**63 - 1),
    "number": (types.NUMBER, "18446744073709551615"),
    "string": (types.STRING, 'a "b"\n\u20ac\U0001f600'),
    "time": (types.TIME, 29_730_000_000),
    "time_interval": (types.TIME_INTERVAL, -1),
    "timestamp": (types.TIMESTAMP, MOMENT),
    "zoned": (types.TIMESTAMP_WITH_TIME_ZONE, {"timestamp": MOMENT, "offset": 7_200_000}),
    "clock": (types.TIME_WITH_TIME_ZONE, {"time": 29_730_000_000, "offset": -12_600_000}),
    "place": (types.GEOMETRY, {"value": b"\x01", "srid": 4326, "type": "POINT"}),
    "varchar": (types.varchar(9), "text"),
    "grid": (types.array(types.INTEGER), {"dimensions": [2, 2], "elements": [1, 2, None, 4]}),
}
DRAWN = [
    Drawn(EventColumn(name, kind), [value, None, value]) for name, (kind, value) in VALUES.items()
]
ZONED = "2026-01-02T03:04:05.678901Z"
AS_TOLD: dict[str, Any] = {
    "boolean": True,
    "bytes": "AP8=",
    "date": "2026-01-02",
    "decimal": -456.12,
    "double": 0.1,
    "float": 1.5,
    "integer": -(2**31),
    "json": '{"a": [1, 2.50]}',
    "long": 2**63 - 1,
    "number": "18446744073709551615",
    "string": 'a "b"\n\u20ac\U0001f600',
    "time_interval": -1,
    "timestamp": ZONED,
    "zoned": {"timestamp": ZONED, "offset": 7_200_000},
    "interval": {"months": -14, "hours": 68, "micros": -306_700_000},
    "varchar": "text",
}
"""What Spark's Avro reader tells as JSON, of the values whose type Spark has."""
SAME_IN_JSON = ["boolean", "bytes", "date", "decimal", "double", "integer", "long", "number"]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("events")
    avro, lines = folder / "a.avro", folder / "a.jsonl"
    avro.write_bytes(b"".join(container(described(DRAWN), rows(DRAWN))))
    lines.write_bytes(b"".join(json_lines(described(DRAWN), rows(DRAWN))))
    program = [sys.executable, "-m", "tests.spark.event_reading", str(avro), str(lines), *VALUES]
    done = subprocess.run(program, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return facts | {"path": avro}


@pytest.mark.parametrize("form", ["avro", "json"])
def test_spark_reads_the_events(found: dict[str, Any], form: str) -> None:
    told = found[form]
    assert [one["uuid"] for one in told] == rows(DRAWN).uuid.to_pylist()
    assert [one["source_timestamp"] for one in told] == rows(DRAWN).source_timestamp.tolist()
    assert [one["log_position"] for one in told] == [4, 5, 6]
    names = AS_TOLD if form == "avro" else SAME_IN_JSON
    for name in names:
        first, null, last = (json.loads(one[name]) for one in told)
        assert first == last == {name: AS_TOLD[name]}, name
        assert null == {}
    if form == "avro":
        (grid,) = json.loads(told[0]["grid"]).values()
        rows_of = [
            [one.get("elementValue") for one in row["nestedArray"]] for row in grid["nestedArray"]
        ]
        assert rows_of == [[1, 2], [None, 4]]


def test_the_tools_of_avro_read_what_fastavro_reads(found: dict[str, Any]) -> None:
    command = [jars.java(), "-jar", found["tools"], "tojson"]
    done = subprocess.run([*command, found["path"]], capture_output=True, timeout=120, check=False)
    told = [json.loads(line) for line in done.stdout.decode().splitlines()]
    content = found["path"].read_bytes()
    events = decoded(content)
    assert [one["uuid"] for one in told] == [one["uuid"] for one in events]
    for one, event in zip(told, events, strict=True):
        assert list(one["payload"]) == list(event["payload"])
        for name in ("integer", "long", "string", "number", "time", "timestamp", "boolean"):
            value = one["payload"][name]
            assert (value and next(iter(value.values()))) == event["payload"][name], name
