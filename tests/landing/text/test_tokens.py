"""Fields of a text, against a reader that goes one character at a time."""

from __future__ import annotations

import io

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mirrorlake.errors import BadFile
from mirrorlake.landing.text.format import (
    COLUMN_SEPARATORS,
    ESCAPES,
    QUOTES,
    ROW_SEPARATORS,
    TextFormat,
)
from mirrorlake.landing.text.origin import Origin
from mirrorlake.landing.text.records import TextRecords
from tests.landing.text import reference
from tests.landing.text.reference import Field
from tests.profiles import tries

forms = st.builds(
    TextFormat,
    row_separator=st.sampled_from(ROW_SEPARATORS),
    column_separator=st.sampled_from(COLUMN_SEPARATORS),
    quote=st.sampled_from(QUOTES),
    escape=st.sampled_from(ESCAPES),
)
characters = "".join(['"', "'", "\\", "/", ",", ";", "\t", "|", "\r", "\n", "a", "é", " "])
arbitrary = st.text(st.sampled_from(characters), min_size=1, max_size=30)


@st.composite
def well_formed(draw: st.DrawFn, form: TextFormat) -> str:
    """A text whose rows have one width, with fields quoted at random."""
    width = draw(st.integers(1, 3))
    rows = draw(st.lists(st.lists(arbitrary, min_size=width, max_size=width), max_size=5))

    def field(content: str) -> str:
        plain = not set(content) & {form.column_separator, "\r", "\n"}
        if not form.quote:
            return content if plain else "a"
        if plain and not content.startswith(form.quote) and draw(st.booleans()):
            return content
        if form.escape and form.escape != form.quote and draw(st.booleans()):
            content = content.replace(form.escape, form.escape * 2)
            return form.quote + content.replace(form.quote, form.escape + form.quote) + form.quote
        if form.escape and form.escape != form.quote:
            content = content.replace(form.escape, form.escape * 2)
        return form.quote + content.replace(form.quote, form.quote * 2) + form.quote

    lines = [form.column_separator.join("abc"[:width])]
    lines += [form.column_separator.join(field(content) for content in row) for row in rows]
    return form.row_separator.join(lines) + draw(st.sampled_from(["", form.row_separator]))


texts = forms.flatmap(lambda form: st.tuples(st.just(form), arbitrary | well_formed(form)))


def found(text: str, form: TextFormat, block: int) -> list[list[Field]] | int | None:
    """All rows, the header first; the row at which the text goes wrong, if it does."""
    content = text.encode()
    try:
        records = TextRecords(io.BytesIO(content), len(content), form, Origin("t", "f"), block)
        rows = []
        for one in records.blocks():
            columns = [
                [
                    Field(value, quoted)
                    for value, quoted in zip(
                        one.column(i).to_pylist(), one.quoted(i).tolist(), strict=True
                    )
                ]
                for i in range(one.width)
            ]
            rows += [list(row) for row in zip(*columns, strict=True)]
    except BadFile as error:
        return error.row
    return [[Field(name) for name in records.header], *rows]


def expected(text: str, form: TextFormat) -> list[list[Field]] | int:
    try:
        head, *rest = reference.rows(text, form)
    except reference.Wrong as wrong:
        return wrong.row
    return [[Field(field.content) for field in head], *rest]


CASES = [
    ('a,b\n1,"x,y"\n', TextFormat()),
    ('a\n"x""y"\n""\n""""\n', TextFormat()),
    ('a,b\nx"y,"1"\nx"",",b"\n', TextFormat()),
    ('a\n"\\"\\\\"\n', TextFormat()),
    ("a\n'/'//'\n", TextFormat(quote="'", escape="/")),
    ('a\n"1\r\n2"\r\n3', TextFormat()),
    ('a,b\n"{""x"":1,""y"":[1,""z""]}",",""' + '"\nq"",",1"\n', TextFormat()),
    ("a\r1\n\r2", TextFormat(row_separator="\r")),
    ('a\n\\"x\\"\n', TextFormat(quote="")),
    ('a\n"x"y\n', TextFormat()),
    ('a\n"x', TextFormat()),
    ("a\n1,2\n", TextFormat()),
]


class TestFields:
    @pytest.mark.clause("LZ-199", "LZ-200", "LZ-201", "LZ-202")
    @settings(max_examples=tries(400))
    @given(texts, st.integers(1, 40))
    def test_fields_are_those_of_the_plain_reader(
        self, drawn: tuple[TextFormat, str], block: int
    ) -> None:
        form, text = drawn
        assert found(text, form, block) == expected(text, form)

    @pytest.mark.parametrize(("text", "form"), CASES)
    @pytest.mark.parametrize("block", [1, 3, 1 << 20])
    def test_known_cases(self, text: str, form: TextFormat, block: int) -> None:
        assert found(text, form, block) == expected(text, form)

    @settings(max_examples=tries(200))
    @given(st.text(st.sampled_from('",\na\\'), min_size=1, max_size=60))
    @example('a,b\n,"",","\n')
    def test_quotes_anywhere(self, text: str) -> None:
        form = TextFormat()
        assert found("a,b\n" + text, form, 1 << 20) == expected("a,b\n" + text, form)
