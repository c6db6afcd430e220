"""JSON read leniently: what is tolerated, what is not, and where."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.landing import lenient_json
from mirrorlake.landing.lenient_json import NotJson

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)


def parsed(text: str | bytes) -> Any:
    return lenient_json.parse(text.encode() if isinstance(text, str) else text).value


def notes(text: str | bytes) -> list[tuple[int, int, str]]:
    found = lenient_json.parse(text.encode() if isinstance(text, str) else text).notes
    return [(note.line, note.column, note.what) for note in found]


def fault(text: str | bytes) -> NotJson:
    with pytest.raises(NotJson) as caught:
        lenient_json.parse(text.encode() if isinstance(text, str) else text)
    return caught.value


class TestTolerances:
    @pytest.mark.clause("LZ-052", "LZ-331")
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ('{ "keyColumns": ["C1", "C2"], }', {"keyColumns": ["C1", "C2"]}),
            ("[1, 2 , ]", [1, 2]),
            ('{"a": [[1,],],}', {"a": [[1]]}),
        ],
    )
    def test_a_comma_is_allowed_before_a_closing_bracket(self, text: str, value: object) -> None:
        assert parsed(text) == value

    @pytest.mark.clause("LZ-052", "LZ-330")
    def test_a_word_is_allowed_without_quotes(self) -> None:
        assert parsed('{"a": LastUpdate_2, "b": [True]}') == {"a": "LastUpdate_2", "b": ["True"]}

    @pytest.mark.clause("LZ-052", "LZ-332")
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ('{"e": "\\", "n": "N/A"}', {"e": "\\", "n": "N/A"}),
            ('{"e": "\\" }', {"e": "\\"}),
            ('["\\"]', ["\\"]),
            (r'["C:\dir"]', ["C:\\dir"]),
            (r'["\u12"]', ["\\u12"]),
        ],
    )
    def test_a_single_backslash_is_allowed(self, text: str, value: object) -> None:
        assert parsed(text) == value

    @pytest.mark.clause("LZ-052")
    def test_a_byte_order_mark_is_allowed(self) -> None:
        assert parsed(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ('{"a":\n [1,]}', [(2, 4, "a comma before the closing bracket")]),
            ('{"a":\n\n word}', [(3, 2, "word is not in quotes")]),
            ('{"a": "\\"}', [(1, 8, "a single backslash")]),
            (b"\xef\xbb\xbf{}", [(1, 1, "a byte order mark")]),
            ('{"a": [1, 2]}', []),
        ],
    )
    def test_each_tolerance_is_noted_with_its_location(
        self, text: str | bytes, expected: list
    ) -> None:
        assert notes(text) == expected

    def test_a_note_names_its_clause(self) -> None:
        (note,) = lenient_json.parse(b"[1,]").notes
        assert note.clause == "LZ-052"

    @pytest.mark.parametrize("text", [r'["\"", 1,]', r'["a\"b", 1,]', r'["a\", b", 1,]'])
    def test_an_escaped_quote_stays_one_beside_a_tolerance(self, text: str) -> None:
        assert parsed(text) == json.loads(text.replace(",]", "]"))

    def test_a_pair_of_surrogates_is_one_character_beside_a_tolerance(self) -> None:
        assert parsed(r'["\ud83d\ude00",]') == ["\U0001f600"]


class TestRefusals:
    @pytest.mark.parametrize(
        "text",
        [
            "",
            " ",
            "{",
            "[1 2]",
            "[,]",
            "[1,,]",
            "{,}",
            "{a: 1}",
            "{'a': 1}",
            "['a']",
            "[1] 2",
            "[01]",
            "[.5]",
            "[+1]",
            "[1.]",
            "[-Infinity]",
            '["a\nb"]',
            '["a',
            "// a\n{}",
            '{"a" 1}',
            '{"a":}',
            "[0x10]",
        ],
    )
    def test_nothing_else_is_tolerated(self, text: str) -> None:
        fault(text)

    @pytest.mark.parametrize(
        ("text", "location"),
        [
            ('{"a":\n  ["id"}', (2, 8)),
            ("[1,\n2,\n\n  x y]", (4, 5)),
            (b'{"a":\n "\xff"}', (2, 3)),
            ("", (1, 1)),
        ],
    )
    def test_the_location_of_an_error_is_reported(self, text: str | bytes, location: tuple) -> None:
        error = fault(text)
        assert (error.line, error.column) == location
        assert f"line {location[0]}, column {location[1]}" in str(error)

    @pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "9" * 5_000])
    def test_an_incomplete_document_is_refused(self, text: str) -> None:
        fault(text)


class TestLocations:
    def test_a_value_is_located_by_its_path(self) -> None:
        text = b'{"a": 1,\n "b": [{"c": 2},\n {"c": word}]}'
        assert lenient_json.locate(text, ("b", 1, "c")) == (3, 8)
        assert lenient_json.locate(text, ("b", 2)) is None

    def test_invalid_json_has_no_locations(self) -> None:
        assert lenient_json.locate(b'{"a": ', ("a",)) is None


class TestProperties:
    @given(values, st.booleans(), st.sampled_from([None, 2]))
    def test_valid_json_is_read_unchanged(
        self, value: object, ascii_only: bool, indent: int | None
    ) -> None:
        text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
        assert lenient_json.parse(text.encode()) == lenient_json.Parsed(value)

    @given(st.lists(values, min_size=1, max_size=3))
    def test_a_tolerance_changes_no_other_value(self, items: list) -> None:
        text = json.dumps(items).removesuffix("]") + ",]"
        assert parsed(text) == items

    @pytest.mark.fuzz
    @given(st.binary(max_size=40))
    def test_any_bytes_give_a_value_or_an_error_with_its_location(self, content: bytes) -> None:
        with contextlib.suppress(NotJson):
            lenient_json.parse(content)

    @pytest.mark.fuzz
    @given(values, st.integers(0), st.sampled_from(['"', "\\", ",", "}", "[", "\0", "é", "x", ""]))
    def test_damaged_json_gives_a_value_or_an_error_with_its_location(
        self, value: object, at: int, damage: str
    ) -> None:
        text = json.dumps({"a": value})
        location = at % len(text)
        with contextlib.suppress(NotJson):
            parsed(text[:location] + damage + text[location + 1 :])
