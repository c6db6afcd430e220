"""Texts in every encoding."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.errors import BadFile
from mirrorlake.landing.text.compression import ByteReader
from mirrorlake.landing.text.encodings import Undecodable, Utf8
from mirrorlake.landing.text.format import TextFormat
from tests.landing.text.texts import fault, rows


class Pieces:
    """A reader over bytes."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def read(self, size: int) -> bytes:
        part, self._content = self._content[:size], self._content[size:]
        return part


def decoded(content: bytes, encoding: str, block: int = 7) -> str:
    reader: ByteReader = Pieces(content)
    text = Utf8(reader, encoding)
    parts, is_end = [], False
    while not is_end:
        part, is_end = text.read(block)
        parts.append(part)
    return b"".join(parts).decode()


def undecodable(content: bytes, encoding: str, block: int) -> Undecodable:
    with pytest.raises(Undecodable) as caught:
        decoded(content, encoding, block)
    return caught.value


class TestEncodings:
    @pytest.mark.clause("LZ-167")
    @pytest.mark.parametrize(
        ("encoding", "word"),
        [
            ("UTF-8", "größe 日本"),
            ("utf-8-sig", "größe 日本"),
            ("ascii", "size"),
            ("utf-16", "größe 日本 😀"),
            ("utf-16-le", "größe 日本"),
            ("UTF-16BE", "größe 日本"),
            ("utf-32", "größe 日本"),
            ("windows-1252", "größe € “x”"),
            ("iso-8859-15", "größe €"),
            ("cp850", "größe"),
            ("Shift_JIS", "日本"),
            ("gb18030", "größe 日本 😀"),
            ("iso2022_jp", "日本"),
            ("koi8-r", "размер"),
        ],
    )
    def test_rows_in_each_encoding(self, encoding: str, word: str) -> None:
        text = f'id,{word}\r\n1,"{word}, x"\r\n2,\r\n'
        form = TextFormat(encoding=encoding)
        assert rows(text.encode(encoding), form) == [("1", f"{word}, x"), ("2", None)]

    @pytest.mark.clause("LZ-167")
    @pytest.mark.parametrize(
        ("mark", "written"),
        [
            (b"", "utf-16-le"),
            (b"", "utf-16-be"),
            (b"\xff\xfe", "utf-16-le"),
            (b"\xfe\xff", "utf-16-be"),
        ],
    )
    def test_utf_16_with_and_without_a_mark(self, mark: bytes, written: str) -> None:
        text = "a,ä\r\n1,日\r\n2,\r\n3,\u0d0a\r\n"
        content = mark + text.encode(written)
        assert rows(content, TextFormat(encoding="utf-16")) == [
            ("1", "日"),
            ("2", None),
            ("3", "\u0d0a"),
        ]

    @pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-32-be"])
    def test_a_byte_order_mark_is_not_part_of_the_header(self, encoding: str) -> None:
        assert decoded("\ufeffa\ufeff".encode(encoding), encoding) == "a\ufeff"

    @given(
        st.text(st.characters(codec="utf-8"), min_size=1),
        st.sampled_from(["utf-8", "utf-16-le", "utf-16-be", "utf-32", "gb18030", "utf-7"]),
        st.integers(1, 9),
    )
    def test_blocks_may_end_within_a_character(self, text: str, encoding: str, block: int) -> None:
        text = "a" + text
        assert decoded(text.encode(encoding), encoding, block) == text


class TestFaults:
    @pytest.mark.clause("LZ-167", "LZ-270")
    @pytest.mark.parametrize(
        ("content", "encoding", "byte", "row"),
        [
            (b"a,b\n1,2\n3,\xe4\n", "UTF-8", 10, 2),
            (b"a,b\n1,\xe4\n", "ascii", 6, 1),
            (b"a,b\n1,\x81\n", "windows-1252", 6, 1),
            (b"a,\xff\n", "UTF-8", 2, 0),
            (b"a,b\n1,\xe2\x82", "UTF-8", 6, 1),
            ("a,b\n1,x".encode("utf-16-le") + b"\x00\xd8x\x00", "utf-16", 14, 1),
        ],
    )
    def test_a_byte_that_cannot_be_decoded_is_named(
        self, content: bytes, encoding: str, byte: int, row: int
    ) -> None:
        error = fault(content, TextFormat(encoding=encoding))
        assert isinstance(error, BadFile)
        assert f"byte {byte} of its text is not {encoding}" in error.what
        assert error.row == row

    @given(st.integers(0, 40), st.integers(1, 9))
    def test_the_byte_does_not_depend_on_blocks(self, before: int, block: int) -> None:
        content = ("ä" * before).encode() + b"\xff" + b"xyz"
        assert undecodable(content, "utf-8", block).byte == 2 * before
        wide = ("a" + "ä" * before).encode("utf-16-le") + b"\x00\xdcxx"
        assert undecodable(wide, "utf-16-le", block).byte == 2 * before + 2
