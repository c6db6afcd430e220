"""The events that the specification prints, as we write them (section 22): byte by byte, but for
what other clauses settle differently.

- The fields at the top stand in the order of ST-013.
- A time has milliseconds and its zone (ST-026).
- The example lacks `schema_key`, a hash of ours, `sort_keys` (ST-363), and `primary_keys`, which we
  write (ST-063).
- T1 is an UPDATE as printed, where our own would be an UPDATE-INSERT (ST-100), and `object` has a
  dot (ST-037): the test gives both to the writer. It gives `uuid` as well, the digits of another
  system.
"""

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
from mirrorlake.events.encode.container import container
from mirrorlake.events.encode.json_lines import json_lines
from mirrorlake.events.envelope import EventSource, ReadMethod
from mirrorlake.events.rows import EventObject, EventRows
from mirrorlake.events.types import EventColumn
from tests.events.values import decoded

SPEC = Path(__file__).parents[2] / "docs/spec/streams.md"
PAYLOAD = ("THIS_IS_MY_PK", "FIELD1", "FIELD2")


def section() -> str:
    return SPEC.read_text().partition("## 22.")[2].partition("## 23.")[0]


def lines() -> list[str]:
    """The three events as repaired lines: T0, T1, T2."""
    return section().partition("```json\n")[2].partition("```")[0].splitlines()


def exactly_printed() -> list[list[str]]:
    """The lines of each of the three events as they were published, which are no JSON."""
    block = section().partition("```text\n")[2].partition("```")[0]
    return [event.splitlines() for event in re.findall(r"^\{\n(.*?)^\}\n", block, re.DOTALL | re.M)]


def millis(text: str) -> int:
    moment = datetime.fromisoformat(text.removesuffix("Z")).replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def given(event: dict[str, Any]) -> tuple[EventObject, EventRows]:
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
    return described, rows


def written(event: dict[str, Any]) -> str:
    return b"".join(json_lines(*given(event))).decode()


def part(line: str, name: str) -> str:
    """A field at the top of a line as it stands there, with its name."""
    value = r'("[^"]*"|\[[^]]*\]|\{[^}]*\})'
    (found,) = re.findall(rf'"{name}":{value}', line)
    return f'"{name}":{found}'


def expected(line: str, number: int) -> str:
    """What we write for a printed line: its own bytes, in the order and with the additions that
    this module names."""
    event = json.loads(line)
    key = given(event)[0].schema_key
    positions = [
        '[1573092939000,15869116216871,"0x0073c9.000a4e4c.01d0",67]',
        '[1573093059000,15869150473224,"0x006cf4.00056b26.0010",0]',
        '[1573093179000,158691504732555,"0x006cf4.00056b26.0011",0]',
    ]
    fields = [
        part(line, "uuid"),
        part(line, "read_timestamp"),
        part(line, "source_timestamp")[:-1] + '.000Z"',
        part(line, "object"),
        part(line, "read_method"),
        part(line, "stream_name"),
        f'"schema_key":"{key}"',
        f'"sort_keys":{positions[number]}',
        part(line, "source_metadata")[:-1] + ',"primary_keys":["THIS_IS_MY_PK"]}',
        part(line, "payload"),
    ]
    return "{" + ",".join(fields) + "}\n"


@pytest.mark.parametrize(
    ("number", "change_type", "is_deleted", "field"),
    [
        pytest.param(0, "INSERT", False, "foo", marks=pytest.mark.clause("ST-096", "ST-358")),
        pytest.param(1, "UPDATE", False, None, marks=pytest.mark.clause("ST-097", "ST-359")),
        pytest.param(2, "DELETE", True, None, marks=pytest.mark.clause("ST-098", "ST-360")),
    ],
)
@pytest.mark.clause("ST-013", "ST-026", "ST-063", "ST-099")
def test_a_printed_event_is_written_as_it_is_printed(
    number: int, change_type: str, is_deleted: bool, field: str | None
) -> None:
    line = lines()[number]
    found = written(json.loads(line))
    assert found == expected(line, number)
    event = json.loads(found)
    assert event["source_metadata"]["change_type"] == change_type
    assert event["source_metadata"]["is_deleted"] is is_deleted
    assert event["payload"] == {"THIS_IS_MY_PK": "1231535353", "FIELD1": field, "FIELD2": "TLV"}


@pytest.mark.parametrize("number", range(3))
@pytest.mark.clause("ST-362")
def test_every_field_of_an_event_is_written_as_it_was_published(number: int) -> None:
    """Without blanks, with the commas and values that the publication lacks (ST-362)."""
    found = written(json.loads(lines()[number])).replace(".000Z", "")
    inside = ""
    for line in exactly_printed()[number]:
        name, value = re.fullmatch(r'\s*(?:"(\w+)":\s*)?(.*?),?', line).groups()  # type: ignore[union-attr]
        if value == "}":
            inside = ""
        elif value == "{":
            inside = name
        else:
            whole = part(found, inside) if inside else found
            assert f'"{name}":{value or "null"}' in whole, line
    names = re.findall(r'"(\w+)":', "\n".join(exactly_printed()[number]))
    at = names.index("source_metadata")
    ours = re.findall(r'"(\w+)":', found[found.index('"source_metadata"') :])
    assert [name for name in ours if name != "primary_keys"] == names[at:]


@pytest.mark.parametrize("number", range(3))
@pytest.mark.clause("ST-013", "ST-026")
def test_a_printed_event_is_the_same_in_avro_with_times_as_numbers(number: int) -> None:
    event = json.loads(lines()[number])
    (found,) = decoded(b"".join(container(*given(event))))
    as_text = json.loads(written(event))
    for name in ("read_timestamp", "source_timestamp"):
        as_text[name] = millis(as_text[name])
    for name in ("log_file", "database"):  # in Avro strings, never null (ST-052, ST-056)
        as_text["source_metadata"][name] = as_text["source_metadata"][name] or ""
    assert json.dumps(found) == json.dumps(as_text)
