"""A text in parts is the text: the same rows, and of several faults the same one."""

from __future__ import annotations

import gzip
import io
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mirrorlake.errors import TableError
from mirrorlake.landing import text as delimited
from mirrorlake.landing.text import reader, records, survey
from mirrorlake.landing.text import splits as parts
from mirrorlake.landing.text.encodings import is_bytewise
from mirrorlake.landing.text.format import TextFormat
from mirrorlake.landing.text.records import TextRecords
from mirrorlake.landing.text.splits import TextPart
from mirrorlake.model import types
from mirrorlake.model.change import Marker
from mirrorlake.model.table import Column, Schema
from tests.landing.text.test_tokens import forms, well_formed
from tests.landing.text.texts import FILE, TABLE, column, declared
from tests.profiles import tries

TYPED = Schema.of([Column("a", types.INTEGER), Column("b", types.STRING)])
TEXTS = Schema.of([Column("a", types.STRING), Column("b", types.STRING)])
COLUMNS = (column("a", "Int32"), column("b", nullable=False))
ODD = [b"\xff", b"\x81", b"\xc3", "é".encode(), b"\xef\xbb\xbf"]
WIDE = ["utf-16", "utf-16-le", "utf-32", "utf-7", "shift_jis", "gb18030", "big5", "iso2022_jp"]
WIDE += ["hz", "cp037", "cp500", "punycode", "idna", "unicode_escape"]
WORDS = ["1", "2", "x", "", '"', '""', "'", "\\", "/", "\r", "\n", "\r\n", " ", "a"]


@st.composite
def contents(draw: st.DrawFn) -> tuple[TextFormat, bytes]:
    """A form, and bytes that may be a text of it: well formed, nearly so, or not at all."""
    form = draw(forms)
    form = replace(
        form,
        columns=draw(st.sampled_from([None, COLUMNS])),
        encoding=draw(st.sampled_from(["UTF-8", "utf-8-sig", "windows-1252", "ascii"])),
        strict=draw(st.booleans()),
    )
    words = [*WORDS, form.column_separator, form.row_separator, form.quote * 3, form.escape * 2]
    loose = st.lists(st.sampled_from(words), max_size=40).map("".join)
    head = f"a{form.column_separator}b{form.row_separator}"
    text = draw(well_formed(form) | loose.map(lambda rest: head + rest) | loose)
    content = text.encode(form.encoding, errors="replace")
    if draw(st.booleans()):
        index = draw(st.integers(0, len(content)))
        content = content[:index] + draw(st.sampled_from(ODD)) + content[index:]
    return form, content


def cut(content: bytes, form: TextFormat, part: int, stretch: int) -> list[TextPart]:
    """The parts of a text, however small they are."""
    handle = io.BytesIO(content)
    looked = [
        parts.survey_range(handle, len(content), form, index, stretch=stretch)
        for index in parts.survey_ranges(len(content), part)
    ]
    return parts.joined(looked, len(content))


def outcome(
    content: bytes, form: TextFormat, some: list[TextPart | None], about: int = 1 << 20
) -> Any:
    """The rows of the parts one after another, or what is said of the first fault."""
    found: list[Any] = []
    try:
        for part in some:
            blocks = delimited.read_blocks(
                io.BytesIO(content),
                len(content),
                TYPED if form.columns else TEXTS,
                Marker.INSERT,
                form,
                table=TABLE,
                file=FILE,
                part=part,
                about=about,
            )
            for block in blocks:
                found += zip(block.data.to_pylist(), block.marker.to_pylist(), strict=True)
    except TableError as error:
        return type(error), str(error), error.row, error.column, error.value
    return found


class TestAnyText:
    @pytest.mark.clause("LZ-199", "LZ-200", "LZ-201", "LZ-202")
    @settings(max_examples=tries(300))
    @pytest.mark.fuzz
    @given(contents(), st.integers(1, 30), st.integers(1, 12), st.integers(3, 40))
    @example((TextFormat(), b'a,b\n1,"x\n2,y\n"\n3,"z"'), 6, 5, 40)
    @example((TextFormat(), b'\xef\xbb\xbf"a",b\n1,"\n"\n2,"\n"\n'), 4, 4, 40)
    def test_the_parts_together_are_the_text(
        self, drawn: tuple[TextFormat, bytes], part: int, stretch: int, block: int
    ) -> None:
        form, content = drawn
        expected = outcome(content, form, [None])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(records, "BLOCK", block)
            patch.setattr(TextRecords.__init__, "__defaults__", (block,))
            assert outcome(content, form, list(cut(content, form, part, stretch)), 1) == expected

    @settings(max_examples=tries(60))
    @given(contents(), st.integers(1, 20), st.integers(2, 4))
    def test_several_threads_read_the_same_as_one(
        self, drawn: tuple[TextFormat, bytes], part: int, threads: int
    ) -> None:
        form, content = drawn
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reader, "THREAD_PART", part)
            assert whole(content, form, threads) == whole(content, form, 1)


def whole(content: bytes, form: TextFormat, threads: int) -> Any:
    """The rows of a text by as many threads, or what is said of its first fault."""
    schema = TYPED if form.columns else TEXTS
    try:
        rows = delimited.read(
            io.BytesIO(content),
            len(content),
            schema,
            Marker.INSERT,
            form,
            table=TABLE,
            file=FILE,
            threads=threads,
        )
    except TableError as error:
        return type(error), str(error), error.row, error.column, error.value
    return rows.data.to_pylist(), rows.marker.to_pylist(), rows.names


class TestCuts:
    def test_a_text_is_not_split_at_a_quoted_line_end(self) -> None:
        content = b'a,b\n1,"\n\n\n\n\n\n\n\n\n\n\n\n"\n2,x\n'
        assert cut(content, TextFormat(), 4, 4) == [
            TextPart(0, 21),
            TextPart(21, len(content), row=1, line=15),
        ]

    def test_every_row_may_begin_a_part(self) -> None:
        content = b"a\n" + b"1\n" * 20
        found = cut(content, TextFormat(), 2, 2)
        assert [part.begin for part in found[1:]] == list(range(4, len(content), 2))
        assert [part.row for part in found[1:]] == list(range(1, 20))

    def test_a_text_is_not_split_after_text_behind_a_closing_quote(self) -> None:
        content = b"a\n" + b"1\n" * 10 + b'"x"y\n' + b"1\n" * 10
        assert max(part.begin for part in cut(content, TextFormat(), 2, 2)) <= 22

    def test_a_long_run_of_quotes_where_a_part_would_begin_leaves_one(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        content = b'a\n"' + b'""' * 500 + b'"\n1\n2\n'
        monkeypatch.setattr(survey, "EDGE", 16)
        assert cut(content, TextFormat(), 100, 100) == [TextPart(0, len(content))]
        monkeypatch.setattr(survey, "EDGE", 2_000)
        assert len(cut(content, TextFormat(), 100, 100)) == 2

    def test_a_compressed_text_is_one_part(self) -> None:
        text = b"a\n" + b"".join(b"%d\n" % n for n in range(5_000))
        assert len(cut(text, TextFormat(), 1_000, 1_000)) > 5
        packed = gzip.compress(text)
        assert cut(packed, TextFormat(), 1_000, 1_000) == [TextPart(0, len(packed))]

    @pytest.mark.parametrize(
        "encoding",
        [
            "UTF-8",
            "utf-8-sig",
            "ascii",
            "windows-1252",
            "iso-8859-15",
            "cp437",
            "koi8-r",
            "mac-roman",
        ],
    )
    def test_encodings_whose_bytes_determine_row_ends(self, encoding: str) -> None:
        assert is_bytewise(encoding)

    @pytest.mark.parametrize(
        "encoding",
        WIDE,
    )
    def test_wide_and_stateful_encodings_are_read_from_their_beginning(self, encoding: str) -> None:
        """A byte that looks like a separator or a quote may be a part of a character there."""
        assert not is_bytewise(encoding)
        form = TextFormat(encoding=encoding)
        with ThreadPoolExecutor(1) as pool:
            some = parts.cut(io.BytesIO(b"a\n1\n"), 4, form, 1, pool, threading.Lock())
        assert some == [TextPart(0, 4)]

    def test_an_invalid_value_in_a_part_has_its_row_and_line(self) -> None:
        form = declared(*COLUMNS)
        content = b'a,b\n1,"x\ny"\n' * 1 + b'1,"x\ny"\n' * 50 + b'bad,"x"\n' + b"1,1\n" * 50
        some = cut(content, form, 40, 16)
        assert len(some) > 5
        error = outcome(content, form, list(some))
        assert error == outcome(content, form, [None])
        assert (error[2], error[3], error[4]) == (52, "a", "bad")
        assert "on line 104" in error[1]

    def test_the_first_invalid_row_is_reported_whichever_column_it_is_in(self) -> None:
        form = declared(column("a", "Int32"), column("b", "Int32"))
        text = b"a,b\n" + b"1,1\n" * 5 + b"1,bad\n" + b"1,1\n" * 5 + b"bad,1\n1\n"
        assert whole(text, form, 1)[2:4] == (6, "b")

    def test_a_row_that_is_too_long_is_detected_wherever_a_block_ends(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(records, "ROW_LIMIT", 50)
        for block in (7, 64, 1 << 20):
            monkeypatch.setattr(TextRecords.__init__, "__defaults__", (block,))
            for length, is_good in ((50, True), (51, False)):
                row = b"1," + b"x" * (length - 2)
                found = whole(b"a,b\n" + row + b"\n2,y\n", TextFormat(row_separator="\n"), 1)
                assert isinstance(found[0], list) is is_good, (block, length)

    @pytest.mark.parametrize("threads", [1, 2])
    def test_a_compressed_text_is_read_by_several_threads_too(
        self, threads: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(reader, "THREAD_PART", 100)
        text = b"a,b\n" + b"".join(b"%d,x\n" % n for n in range(5_000))
        assert whole(gzip.compress(text), TextFormat(), threads) == whole(text, TextFormat(), 1)
