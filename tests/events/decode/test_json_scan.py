"""Lines that are read many at once have the events that they have one by one."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from mirrorlake.events.decode.errors import UnreadableEvents
from mirrorlake.events.decode.json import events
from mirrorlake.events.decode.json import lines as lines_of_json
from mirrorlake.events.decode.json.lines import Digits, JsonLine, RepeatedNames
from tests.events.decode.files import event

NAMES = ["id", "note", "", 'a "quoted" name', "größe", "payload", "\\", "n\x00", "lsn"]
NUMBERS = ["0", "-0", "1", "-17", "1.10", "1e400", "0.1E-7", "123456789012345678901", "-5e+3"]
NO_JSON = [
    "01",
    "1.",
    ".5",
    "+1",
    "NaN",
    "-Infinity",
    "nul",
    "True",
    "\\u0031",
    "1 2",
    '"',
    "{",
    "]",
]
TEXTS = [
    "",
    "x",
    "null",
    "2026-01-01",
    "2026-01-01T00:00:00Z",
    "\x7f",
    "\x7f5",
    "a\\",
    '"',
    "\ud800",
]
MEMBERS = ["source_metadata", "payload", "sort_keys", "uuid", "x"]
MUTATIONS = [
    b"",
    b"\n",
    b'"',
    b"\\",
    b"}",
    b"{",
    b"}{",
    b",",
    b"[",
    b"null",
    b"5",
    b"\xff",
    b"\x00",
]

texts = st.sampled_from(TEXTS) | st.text(max_size=5)
plain = (
    st.none()
    | st.booleans()
    | texts.filter(lambda text: text.isprintable())
    | st.sampled_from([Digits(one) for one in NUMBERS])
)
scalars = plain | texts | st.sampled_from([Digits(one) for one in NO_JSON])
members = st.lists(st.tuples(st.sampled_from(["a", "b"]), scalars), max_size=3)
values = st.one_of(
    *[scalars] * 9,
    st.lists(scalars, max_size=2),
    st.dictionaries(texts, scalars),
    members.map(RepeatedNames),
)
blanks = st.sampled_from(["", "", "", " ", "\t ", "\r"])


def written(value: Any, blank: str) -> str:
    match value:
        case Digits():
            return str(value)
        case dict() | RepeatedNames():
            pairs = value.items() if isinstance(value, dict) else value
            members = (
                f"{json.dumps(name)}{blank}:{blank}{written(one, blank)}" for name, one in pairs
            )
            return f"{{{blank}{f',{blank}'.join(members)}}}"
        case list():
            return f"[{','.join(written(one, blank) for one in value)}]"
        case str() if len(value) % 2 and value.isprintable():
            return json.dumps(value, ensure_ascii=False)
        case _:
            return json.dumps(value)


@st.composite
def whole_lines(draw: st.DrawFn) -> bytes:
    """Lines with mostly the same names and plain values."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=1, max_size=4))
    kind = draw(st.sampled_from([st.text('xyz\\"é', max_size=3), plain, values]))
    blank = draw(blanks)
    found = []
    for number in range(draw(st.integers(1, 6))):
        payload = draw(
            st.fixed_dictionaries({}, optional=dict.fromkeys(names[1:], kind))
            if draw(st.integers(0, 2)) == 0
            else st.fixed_dictionaries(dict.fromkeys(names, kind))
        )
        keys = draw(st.sampled_from([["id"], [], None]))
        table = draw(st.sampled_from(["fruit", "fruit", "others", None]))
        one = event(number, payload, primary_keys=keys, table=table)
        found.append(written(one, blank).encode("utf-8", "surrogatepass"))
    newline = draw(st.sampled_from([b"\n", b"\n", b"\r\n", b"\n \n"]))
    return newline.join(found) + draw(st.sampled_from([b"", b"\n"]))


@st.composite
def broken_lines(draw: st.DrawFn) -> bytes:
    """Lines in which something is none of an event, or not JSON."""
    text = draw(whole_lines())
    if draw(st.booleans()):
        one = event(7, {"id": draw(values)}, primary_keys=draw(values))
        one[draw(st.sampled_from(MEMBERS))] = draw(values)
        text += b"\n" + written(one, "").encode("utf-8", "surrogatepass")
    if draw(st.booleans()):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.sampled_from(MUTATIONS)) + text[at + draw(st.integers(0, 2)) :]
    return text


def batches(content: bytes) -> Iterator[Any]:
    try:
        for one in events.json_events(io.BytesIO(content)):
            yield from (one.row.tolist(), one.head, one.columns, one.payload, one.empty.tolist())
            yield from (dict(one.rejected), {name: at.tolist() for name, at in one.unfit.items()})
    except UnreadableEvents as error:
        yield str(error)


def assert_same(content: bytes, together: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(events, "_MOST_TOGETHER", together)
        patch.setattr(events, "_FEWEST_TO_SCAN", 1)
        at_once = [*batches(content)]
        patch.setattr(events, "_FEWEST_TO_SCAN", len(content) + 2)
        one_by_one = [*batches(content)]
    assert len(at_once) == len(one_by_one)
    for one, other in zip(at_once, one_by_one, strict=True):
        assert one.equals(other) if hasattr(one, "equals") else one == other


@given(whole_lines() | broken_lines(), st.sampled_from([1, 2, 20_000]))
def test_many_lines_at_once_have_the_events_that_they_have_one_by_one(
    content: bytes, together: int
) -> None:
    assert_same(content, together)


@pytest.mark.parametrize(
    "content",
    [
        b'{"payload": {"a": \\"b"}}\n{"payload": {"a": 1}}',
        b'{"payload": {"a": 1}}{"payload": {"a": 2}}\n{"payload":\n{"a": 3}}',
        b'{"payload": {"a": null}}\n{"payload": {}}\n{"payload": null}\n{}',
        b'{"payload": {"a": 1, "a": 2}}',
        b'{"payload": {"a": {"b": 1, "b": 2}}}\n{"payload": {"a": [{"b": [], "b": "\\ud800"}]}}',
        b'{"source_metadata": {"table": {"b": 1, "b": 2}}, "payload": {"a": 1}}\n' * 3,
        b'{"payload": {"a": {}}}\n{"payload": {"a": "\\ud800"}}\n{"payload": {"a": 1}}',
        b'{"source_metadata": {"primary_keys": ["a"]}, "payload": {"a": {"b": 1, "b": 2}}}\n{}',
        b'{"x": {"b": 1, "b": 2}, "payload": {"a": 1}}\n{"payload": {"a": 2}, "payload": {}}',
        b'{"payload": {"\\u007fa": 1}}\n{"payload": {a: 7}}',
        b'{"payload": {"\\u007fa": 1, "a": 2}}\n{"payload": {"a": 1}}\n{"payload": {a: 7}}',
        b'{"source_metadata": {"uuid": "u"}, "payload": {"a": 1}}\n' * 3,
        b'{"source_metadata": {"primary_keys": ["a"]}, "payload": {"a\\"primary_keys": null}}\n'
        * 3,
    ],
)
@pytest.mark.parametrize("together", [1, 2, 9])
def test_odd_lines_have_the_events_that_they_have_one_by_one(content: bytes, together: int) -> None:
    assert_same(content, together)


@pytest.mark.parametrize("member", ["primary_key", "binlog_file", "log_position", "is_deleted"])
@pytest.mark.parametrize("value", [["id"], [1], "x", None])
@pytest.mark.parametrize("together", [2, 3])
def test_one_odd_event_changes_no_later_ones(member: str, value: Any, together: int) -> None:
    """Neither another name of a field, nor an array where others have none."""
    odd = event(0)
    odd["source_metadata"] = {
        name: one for name, one in odd["source_metadata"].items() if name != "primary_keys"
    } | {member: value}
    same = [event(n, log_position=None) for n in range(1, 6)]
    for one in same:
        del one["source_metadata"]["log_position"]
    content = "\n".join(written(one, "") for one in [odd, *same, odd, *same]).encode()
    assert_same(content, together)


def test_the_columns_of_several_objects_are_not_too_many_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mirrorlake.events.decode.json.parsed_events.MOST_TYPES", 20)
    both = [event(0, {f"{table}{n}": "x" for n in range(15)}, table=table) for table in ("a", "b")]
    content = "\n".join(written(one, "") for one in both).encode()
    found = [*events.json_events(io.BytesIO(content))]
    assert [len(one.columns) for one in found] == [15, 15]


def test_ordinary_events_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first line of each part is parsed by itself."""
    payloads = [{"id": Digits(str(n)), "note": None, "tags": {"a": ["\\"]}} for n in range(200)]
    content = "\n".join(written(event(0, payload), "") for payload in payloads).encode()
    parsed: list[bytes] = []

    def one_by_one(line: bytes, size: int) -> JsonLine:
        parsed.append(line)
        return lines_of_json.parsed(line, size)

    monkeypatch.setattr(events, "parsed", one_by_one)
    assert [len(one) for one in events.json_events(io.BytesIO(content))] == [200]
    assert len(parsed) == 1
