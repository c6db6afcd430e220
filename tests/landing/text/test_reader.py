"""Landed texts as rows of the table: headers, NULL, markers, schemas, and what goes wrong."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.errors import (
    BadFile,
    FileTooLarge,
    MisspeltMarker,
    TableError,
    UnknownMarker,
    UnsupportedColumn,
)
from mirrorlake.landing import text as delimited
from mirrorlake.landing.text import reader
from mirrorlake.landing.text.format import TextFormat
from mirrorlake.model import types
from mirrorlake.model.change import Marker
from mirrorlake.model.table import Column, Schema
from tests.landing.text.texts import FILE, TABLE, column, declared, fault, inspected, read, rows

MARKER = "__rowMarker__"


def names(text: str, form: TextFormat | None = None) -> list[tuple[str, str]]:
    return [(c.name, str(c.type)) for c in inspected(text, form).schema]


def markers(text: str, form: TextFormat | None = None) -> list[int]:
    return read(text, form).marker.to_pylist()


class TestHeader:
    @pytest.mark.clause("LZ-192")
    def test_without_a_schema_every_column_is_a_nullable_text(self) -> None:
        assert names("a,b\n1,\n") == [("a", "string"), ("b", "string")]
        assert rows("a,b\n1,\n") == [("1", None)]

    @pytest.mark.clause("LZ-198")
    def test_columns_are_matched_by_name(self) -> None:
        form = declared(column("b", "Int32"), column("a"))
        assert rows("a,b\nx,1\n", form) == [(1, "x")]
        assert rows("A,B\nx,1\n", form) == [(1, "x")]

    @pytest.mark.clause("LZ-142")
    @pytest.mark.parametrize("text", ["a,b\n", "a,b", "a,b\r\n"])
    def test_a_header_alone_is_an_empty_load(self, text: str) -> None:
        found = inspected(text)
        assert (found.rows, found.schema.names) == (0, ["a", "b"])
        assert (rows(text), read(text).marker.type) == ([], "int8")

    @pytest.mark.clause("LZ-198", "LZ-276")
    @pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf"])
    def test_a_file_without_a_header_is_refused(self, content: bytes) -> None:
        error = fault(content)
        assert isinstance(error, BadFile)
        assert "No data rows available" in error.what

    @pytest.mark.clause("LZ-198")
    @pytest.mark.parametrize("text", ["1,x\n2,y\n", f"1,x,{MARKER}\n2,y,0\n"])
    def test_a_first_row_without_a_declared_column_is_not_a_header(self, text: str) -> None:
        """Read as one, its rows would be NULL in every column."""
        nullable = [column("a", "Int32", nullable=True), column("b", nullable=True)]
        error = fault(text, declared(*nullable), key=("a",))
        assert isinstance(error, BadFile)
        assert (error.row, "header seems to be missing" in error.what) == (0, True)

    @pytest.mark.clause("LZ-199", "LZ-156")
    @pytest.mark.parametrize("text", ["a,b,a\n1,2,3\n", "a,A\n1,2\n"])
    def test_a_repeated_name_is_refused(self, text: str) -> None:
        error = fault(text)
        assert isinstance(error, UnsupportedColumn)
        assert (error.row, "header" in error.what) == (0, True)

    def test_a_column_without_a_name_is_refused_unless_it_is_ignored(self) -> None:
        assert "column 2 of the header" in fault("a,\n1,2\n").what
        assert rows("a,\n1,2\n", declared(column("a"))) == [("1",)]

    def test_a_marker_alone_is_refused(self) -> None:
        assert isinstance(fault(f"{MARKER}\n0\n"), UnsupportedColumn)

    def test_names_may_be_quoted(self) -> None:
        assert names('"a ""x""","b\nc"\n1,2\n') == [('a "x"', "string"), ("b\nc", "string")]


class TestRows:
    @pytest.mark.clause("LZ-199")
    @pytest.mark.parametrize(
        ("text", "row", "found"),
        [("a,b\n1,2\n3\n", 2, 1), ("a,b\n1,2,3\n", 1, 3), ("a,b\n1,2\n\n3,4\n", 2, 1)],
    )
    def test_a_row_of_another_width_is_named(self, text: str, row: int, found: int) -> None:
        error = fault(text)
        assert error.row == row
        assert f"it has {found} fields, but the header has 2" in error.what
        assert f"on line {row + 1}" in error.what

    @pytest.mark.clause("LZ-200", "LZ-336")
    @pytest.mark.parametrize("text", ["a,b\n1,2\n3,4", "a,b\r\n1,2\n3,4\r\n", "a,b\n1,2\n3,4\n"])
    def test_a_bare_line_feed_and_a_missing_last_line_end_are_accepted(self, text: str) -> None:
        assert rows(text) == [("1", "2"), ("3", "4")]

    @pytest.mark.clause("LZ-162")
    def test_each_row_separator(self) -> None:
        assert rows("a\r1\r2\r", TextFormat(row_separator="\r")) == [("1",), ("2",)]
        assert rows("a\n1\r\n2\n", TextFormat(row_separator="\n")) == [("1\r",), ("2",)]

    @pytest.mark.clause("LZ-163", "LZ-190")
    @pytest.mark.parametrize("extension", ["csv", "tsv", "psv"])
    @pytest.mark.parametrize("separator", [",", ";", "|", "\t"])
    def test_each_column_separator(self, separator: str, extension: str) -> None:
        others = "".join({",", ";", "|", "\t"} - {separator})
        text = f"a{separator}b\n1{separator}x{others}y\n"
        form = TextFormat(column_separator=separator, extension=extension)
        assert rows(text, form) == [("1", f"x{others}y")]

    @pytest.mark.clause("LZ-164", "LZ-165", "LZ-201", "LZ-202")
    @pytest.mark.parametrize(
        ("field", "quote", "escape", "expected"),
        [
            ('"x,""y"""', '"', "", 'x,"y"'),
            ('"x,""y"""', '"', "\\", 'x,"y"'),
            ('"x,\\"y\\\\"', '"', "\\", 'x,"y\\'),
            ("'x,/'y//'", "'", "/", "x,'y/"),
            ('"C:\\dir"', '"', "\\", "C:\\dir"),
            ('"x\\"', '"', "", "x\\"),
            ('"x\\"', "", "\\", '"x\\"'),
            ("x\\y", '"', "\\", "x\\y"),
            ("'x\"'y\"\"'", "'", '"', "x'y\""),
            ('5" pipe', '"', "\\", '5" pipe'),
            ('"two\r\nlines"', '"', "\\", "two\r\nlines"),
        ],
    )
    def test_quotes_and_escapes(self, field: str, quote: str, escape: str, expected: str) -> None:
        form = TextFormat(quote=quote, escape=escape)
        assert rows(f"a\n{field}\n", form) == [(expected,)]

    @pytest.mark.parametrize("text", ['a\n"x"y\n', 'a\n""x""\n', 'a\n1\n"x\n2\n'])
    def test_quotes_that_do_not_match_are_refused(self, text: str) -> None:
        error = fault(text)
        assert isinstance(error, BadFile)
        assert error.row in {1, 2}

    def test_a_row_without_end_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("mirrorlake.landing.text.records.ROW_LIMIT", 1_000)
        monkeypatch.setattr("mirrorlake.landing.text.reader.COUNTED", 100)
        error = fault('a\n1\n"' + "x" * 10_000)
        assert "longer than 1,000 bytes" in error.what
        assert error.row == 2

    @given(st.lists(st.integers(0, 999), min_size=1, max_size=50), st.integers(1, 64))
    def test_rows_keep_their_order_whatever_a_block_holds(
        self, numbers: list[int], block: int
    ) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("mirrorlake.landing.text.records.BLOCK", block)
            patch.setattr(reader.TextRecords.__init__, "__defaults__", (block,))
            text = "a,b\n" + "".join(f'{n},"x\n{n}"\n' for n in numbers)
            found = rows(text, declared(column("a", "Int32"), column("b")))
        assert found == [(n, f"x\n{n}") for n in numbers]


class TestStrict:
    @pytest.mark.clause("LZ-200")
    @pytest.mark.parametrize(
        ("text", "row"), [("a\r\n1\n2\r\n", 1), ("a\r\n1\r\n2", 2), ("a\n1\r\n", 0)]
    )
    def test_other_line_ends_than_declared_are_refused(self, text: str, row: int) -> None:
        error = fault(text, TextFormat(strict=True))
        assert error.row == row
        assert "LZ-200" in error.what

    @pytest.mark.clause("LZ-200")
    @pytest.mark.parametrize("end", ["\r\n", "\n", "\r"])
    def test_declared_line_ends_are_read(self, end: str) -> None:
        form = TextFormat(strict=True, row_separator=end)
        assert rows(f'a{end}1{end}"2\n"{end}', form) == [("1",), ("2\n",)]

    @pytest.mark.clause("LZ-206")
    def test_columns_without_nullability_are_not_nullable(self) -> None:
        form = declared(column("id"), column("a"), column("b", nullable=True), strict=True)
        assert rows("id,a,b\r\n1,2,\r\n", form) == [("1", "2", None)]
        assert fault("id,a,b\r\n1,,\r\n", form).column == "a"


class TestThreads:
    """Several threads give the rows, and the first fault, that one gives."""

    @pytest.fixture(autouse=True)
    def small_blocks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reader.TextRecords.__init__, "__defaults__", (16,))

    def read(self, text: str, form: TextFormat, threads: int) -> list:
        content = text.encode()
        found = delimited.read(
            io.BytesIO(content),
            len(content),
            inspected(content, form).schema,
            Marker.INSERT,
            form,
            table=TABLE,
            file=FILE,
            threads=threads,
        )
        return found.data["a"].to_pylist()

    @pytest.mark.parametrize("threads", [1, 2, 4])
    def test_rows_keep_their_order(self, threads: int) -> None:
        text = "a\n" + "".join(f"{n}\n" for n in range(500))
        form = declared(column("a", "Int32"))
        assert self.read(text, form, threads) == list(range(500))

    @pytest.mark.parametrize("threads", [1, 2, 4])
    @pytest.mark.parametrize("tail", ["", "x\n", "1,2\n", '"'])
    def test_the_first_error_is_reported(
        self, threads: int, tail: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        form = declared(column("a", "Int32"))
        text = "a\n" + "1\n" * 50 + "bad\n" + "1\n" * 50
        monkeypatch.setattr(reader, "COUNTED", 4)  # the rest is not looked at before
        with pytest.raises(TableError) as caught:
            self.read(text + tail, form, threads)
        assert (caught.value.row, caught.value.value) == (51, "bad")


class TestNull:
    @pytest.mark.clause("LZ-203")
    @pytest.mark.parametrize("null", [None, ""])
    def test_without_a_text_for_it_an_empty_field_is_null(self, null: str | None) -> None:
        form = declared(column("a"), column("b", "Int32"), column("c", "DateTime"), null=null)
        assert rows('a,b,c\n,,\n"","",""\n', form) == [(None, None, None), ("", None, None)]

    @pytest.mark.clause("LZ-203")
    def test_without_a_schema_a_quoted_empty_field_is_a_text(self) -> None:
        assert rows('a,b\n"",\n,""\n') == [("", None), (None, "")]

    @pytest.mark.clause("LZ-204", "LZ-166")
    def test_with_a_text_for_it_quotes_do_not_matter(self) -> None:
        form = declared(column("a"), column("b", "Int32"), column("c", "IDate"), null="N/A")
        assert rows('a,b,c\nN/A,"N/A",N/A\n"N/A",,""\n"",1,\n,1,\n', form) == [
            (None, None, None),
            (None, None, None),
            ("", 1, None),
            ("", 1, None),
        ]

    def test_the_text_for_null_is_compared_completely(self) -> None:
        assert rows("a\nN/A \nn/a\n", TextFormat(null="N/A")) == [("N/A ",), ("n/a",)]

    @pytest.mark.clause("LZ-205")
    @pytest.mark.parametrize("kind", ["String", "Int32", "DateTime", "ByteArray"])
    def test_null_in_a_required_column_is_refused(self, kind: str) -> None:
        form = declared(column("id"), column("a", kind, nullable=False))
        error = fault("id,a\n1,\n", form)
        assert (error.row, error.column, error.value, error.code) == (1, "a", None, "bad_value")
        assert "LZ-205" in error.what

    @pytest.mark.clause("LZ-103", "LZ-205")
    def test_a_delete_may_have_only_the_key(self) -> None:
        form = declared(column("id", "Int32"), column("a", "Int32", nullable=False))
        assert rows(f"id,a,{MARKER}\n1,,2\n", form, key=("id",)) == [(1, None)]
        assert fault(f"id,a,{MARKER}\n,,2\n", form, key=("id",)).column == "id"
        assert fault(f"id,a,{MARKER}\n1,,1\n", form, key=("id",)).column == "a"

    @pytest.mark.clause("LZ-206")
    def test_columns_without_nullability_are_nullable_except_the_key(self) -> None:
        form = declared(column("id"), column("a"))
        assert rows("id,a\n1,\n", form, key=("id",)) == [("1", None)]
        assert fault("id,a\n,1\n", form, key=("id",)).column == "id"
        nullable = declared(column("id", nullable=True), column("a"))
        assert rows("id,a\n,1\n", nullable, key=("id",)) == [(None, "1")]


class TestMarkers:
    @pytest.mark.clause("LZ-197")
    @pytest.mark.parametrize("listed", [[], [column(MARKER, "Int32")], [column(MARKER)]])
    def test_the_marker_may_be_listed_or_not(self, listed: list) -> None:
        form = declared(column("id", "Int32"), *listed)
        text = f"id,{MARKER}\n1,0\n2,4\n"
        found = inspected(text, form)
        assert (found.schema.names, found.has_marker, found.ignored) == (["id"], True, ())
        assert (rows(text, form), markers(text, form)) == ([(1,), (2,)], [0, 4])

    @pytest.mark.clause("LZ-074", "LZ-084")
    @pytest.mark.parametrize("text", [f"{MARKER},a\n0,x\n2,y\n", f'a,{MARKER}\nx,"0"\ny,"2"\n'])
    def test_the_marker_may_be_anywhere(self, text: str) -> None:
        assert (rows(text), markers(text)) == ([("x",), ("y",)], [0, 2])

    def test_without_a_marker_every_row_has_the_default(self) -> None:
        assert read("a\n1\n2\n", default=Marker.UPSERT).marker.to_pylist() == [4, 4]

    @pytest.mark.clause("LZ-085")
    @pytest.mark.parametrize("value", ["", "3", "1.0", "x", " 1", "01"])
    def test_any_other_marker_is_refused(self, value: str) -> None:
        error = fault(f"a,{MARKER}\n1,0\n1,{value}\n")
        assert isinstance(error, UnknownMarker)
        assert (error.row, error.column, error.value) == (2, MARKER, value)

    @pytest.mark.clause("LZ-086")
    def test_a_misspelt_marker_is_refused(self) -> None:
        assert isinstance(fault("a,__rowmarker__\n1,0\n"), MisspeltMarker)


class TestSchemas:
    @pytest.mark.clause("LZ-168", "LZ-174", "LZ-193")
    def test_an_undeclared_column_is_ignored_and_reported(self) -> None:
        text, form = "a,seq,b\n1,2,3\n", declared(column("a"), column("b"))
        assert (rows(text, form), inspected(text, form).ignored) == ([("1", "3")], ("seq",))

    @pytest.mark.clause("LZ-195")
    def test_a_declared_column_that_the_file_lacks_is_null(self) -> None:
        form = declared(column("a"), column("b", "Int32"))
        assert rows("a\n1\n", form) == [("1", None)]

    @pytest.mark.clause("LZ-195", "LZ-205")
    def test_a_declared_required_column_must_exist(self) -> None:
        form = declared(column("a"), column("b", "Int32", nullable=False))
        error = fault("a\n1\n", form)
        assert (error.column, error.row) == ("b", 1)
        assert "the file does not have the column" in error.what
        assert rows(f"a,{MARKER}\n1,2\n", form, key=("a",)) == [("1", None)]
        assert fault(f"a,{MARKER}\n1,2\n2,0\n", form, key=("a",)).row == 2

    @pytest.mark.clause("LZ-194", "LZ-212")
    def test_without_a_schema_a_new_column_is_a_text(self) -> None:
        assert names("a,new\n1,2\n")[-1] == ("new", "string")

    @pytest.mark.clause("LZ-196")
    def test_a_column_that_is_declared_later_is_in_the_schema(self) -> None:
        form = declared(column("a"), column("later", "Int64"))
        assert names("a\n1\n", form) == [("a", "string"), ("later", "long")]

    def test_undeclared_columns_of_the_table_are_null(self) -> None:
        schema = Schema.of([Column("old", types.LONG), Column("a", types.STRING)])
        content = b"old,a\n1,x\n"
        found = delimited.read(
            io.BytesIO(content),
            len(content),
            schema,
            Marker.INSERT,
            declared(column("a")),
            table=TABLE,
            file=FILE,
        )
        assert found.data.to_pylist() == [{"old": None, "a": "x"}]


class TestInspection:
    def test_a_small_text_is_counted(self) -> None:
        found = inspected('a\n1\n"2\n3"\n')
        assert (found.rows, found.size, found.is_exact) == (2, 8, True)

    def test_a_large_text_is_estimated(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reader, "COUNTED", 1_000)
        found = inspected("a,b\n" + "12345,67\n" * 10_000)
        assert not found.is_exact
        assert 9_000 <= found.rows <= 11_000
        assert 80_000 <= found.size <= 100_000


class TestPublishers:
    @pytest.mark.clause("LZ-320")
    def test_the_text_of_the_example_with_its_settings(self) -> None:
        form = declared(
            column("id", "Int32"),
            column("name", nullable=True),
            column("age", "Int32", nullable=True),
            column("seqNum", "Int64", nullable=False),
            extension="tsv",
            quote="'",
            null="N/A",
        )
        text = "id,name,age,seqNum\r\n1,'O\\'Hara, J',N/A,7\r\n2,N/A,33,8\r\n"
        assert rows(text, form, key=("id",)) == [(1, "O'Hara, J", None, 7), (2, None, 33, 8)]

    @pytest.mark.clause("LZ-334")
    def test_doubled_quotes_and_empty_null(self) -> None:
        form = TextFormat(escape='"', null="")
        text = 'Id,Name\r\n"1","say ""hi"", \\"\r\n"2",\r\n'
        assert rows(text, form) == [("1", 'say "hi", \\'), ("2", None)]

    @pytest.mark.clause("LZ-345")
    def test_texts_of_bc2adls(self) -> None:
        form = declared(
            column("systemId-2000000000", nullable=False),
            column("Description-3", nullable=True),
            column("Amount-13", "Double", nullable=True),
            column("Open-36", "Boolean", nullable=True),
            column("Posted-4", "DateTime", nullable=True),
            column("Time-5", "ITime", nullable=True),
        )
        text = (
            f"systemId-2000000000,Description-3,Amount-13,Open-36,Posted-4,Time-5,{MARKER}\r\n"
            '"{6B2A}","a \\\\ \\"b\\"",12.5,true,2025-06-17T12:30:00.000Z,14:30:00,4\r\n'
            '"{6B2B}","",-1,false,,,4\r\n'
            '"{6B2C}",,,,,,2\r\n'
        )
        found = read(text, form, key=("systemId-2000000000",))
        assert found.marker.to_pylist() == [4, 4, 2]
        dates = found.data["Posted-4"].cast("string").to_pylist()
        assert dates == ["2025-06-17 12:30:00.000000Z", None, None]
        assert [tuple(r.values()) for r in found.data.drop(["Posted-4"]).to_pylist()] == [
            ("{6B2A}", 'a \\ "b"', 12.5, True, "14:30:00"),
            ("{6B2B}", "", -1.0, False, None),
            ("{6B2C}", None, None, None, None),
        ]

    @pytest.mark.clause("LZ-344")
    def test_the_files_of_a_real_table(self) -> None:
        form = declared(column("zona"), column("id", "Int32"), column("valor", "Double"))
        key = ("zona", "id")
        assert rows("zona,id,valor\nN,1,2.5\n", form, key) == [("N", 1, 2.5)]
        deleted = read(f"zona,id,valor,{MARKER}\nN,1,,2\n", form, key)
        assert (deleted.data.to_pylist(), deleted.marker.to_pylist()) == (
            [{"zona": "N", "id": 1, "valor": None}],
            [2],
        )
        text = "zona,id,valor,seqNum\nS,2,1.0,9\n"
        assert (rows(text, form, key), inspected(text, form).ignored) == (
            [("S", 2, 1.0)],
            ("seqNum",),
        )


class TestMemory:
    def test_rows_that_take_too_much_memory_are_refused(self) -> None:
        content = b"a\n" + b"x" * 1_000 + b"\n" + b"1\n" * 1_000
        schema = inspected(content).schema

        def read_with(most: int) -> int:
            named = {"table": TABLE, "file": FILE, "most": most}
            handle, size = io.BytesIO(content), len(content)
            form = TextFormat()
            return delimited.read(handle, size, schema, Marker.INSERT, form, **named).data.num_rows

        assert read_with(20_000) == 1_001
        with pytest.raises(FileTooLarge, match="more than 1,000 bytes in memory"):
            read_with(1_000)

    def test_blocks_together_are_the_text_whatever_its_size(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(reader.TextRecords.__init__, "__defaults__", (100,))
        content = b"a\n" + b"".join(b"%d\n" % n for n in range(5_000))
        schema, form = inspected(content).schema, TextFormat()
        handle, size = io.BytesIO(content), len(content)
        named = {"table": TABLE, "file": FILE, "about": 1_000}
        found = delimited.read_blocks(handle, size, schema, Marker.INSERT, form, **named)
        some = [block.data["a"].to_pylist() for block in found]
        assert max(map(len, some)) < 500
        assert [int(n) for block in some for n in block] == list(range(5_000))
