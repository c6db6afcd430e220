"""The events that the specification prints, as we write them (section 22)."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mirrorlake.events import types
from mirrorlake.events.encode.json_lines import json_lines
from mirrorlake.events.envelope import EventSource, ReadMethod
from mirrorlake.events.rows import EventObject, EventRows
from mirrorlake.events.types import EventColumn

SPEC = Path(__file__).parents[2] / "docs/spec/streams.md"
PAYLOAD = ("THIS_IS_MY_PK", "FIELD1", "FIELD2")
NOT_PRINTED = ("schema_key", "sort_keys")


def printed() -> list[dict[str, Any]]:
    """The three events as repaired lines: T0, T1, T2."""
    section = SPEC.read_text().partition("## 22.")[2].partition("## 23.")[0]
    (block,) = re.findall(r"```json\n(.*?)```", section, re.DOTALL)
    return [json.loads(line) for line in block.splitlines()]


def millis(text: str) -> int:
    moment = datetime.fromisoformat(text.removesuffix("Z")).replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def written(event: dict[str, Any]) -> bytes:
    columns = tuple(EventColumn(name, types.STRING) for name in PAYLOAD)
    described = EventObject(event["stream_name"], event["object"], EventSource.ORACLE, columns)
    changed = millis(event["source_timestamp"])
    facts = event["source_metadata"]
    rows = EventRows(
        ReadMethod.parse(event["read_method"]),
        pa.array([event["uuid"]]),
        millis(event["read_timestamp"]),
        np.array([changed]),
        {**facts, "primary_keys": ["THIS_IS_MY_PK"]},
        [changed, facts["scn"], facts["rs_id"], facts["ssn"]],
        [pa.array([event["payload"][name]], pa.string()) for name in PAYLOAD],
    )
    return b"".join(json_lines(described, rows))


@pytest.mark.parametrize(
    ("number", "change_type", "is_deleted", "field"),
    [
        pytest.param(0, "INSERT", False, "foo", marks=pytest.mark.clause("ST-096", "ST-358")),
        pytest.param(1, "UPDATE", False, None, marks=pytest.mark.clause("ST-097", "ST-359")),
        pytest.param(2, "DELETE", True, None, marks=pytest.mark.clause("ST-098", "ST-360")),
    ],
)
def test_a_printed_event_is_written_as_it_is_printed(
    number: int, change_type: str, is_deleted: bool, field: str | None
) -> None:
    event = printed()[number]
    line = written(event)
    found = json.loads(line)
    for name in NOT_PRINTED:
        del found[name]
    assert found["source_metadata"].pop("primary_keys") == ["THIS_IS_MY_PK"]
    # A time without a zone is UTC (ST-363); ours says so.
    event["source_timestamp"] += ".000Z"
    assert found == event
    assert list(found["source_metadata"]) == list(event["source_metadata"])
    assert found["source_metadata"]["change_type"] == change_type
    assert found["source_metadata"]["is_deleted"] is is_deleted
    assert found["payload"] == {"THIS_IS_MY_PK": "1231535353", "FIELD1": field, "FIELD2": "TLV"}
    literal = json.dumps(event["source_metadata"], separators=(",", ":"))[:-1].encode()
    assert literal in line
