"""What `_metadata.json` says of delimited text, as publishers write it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.errors import BadMetadata
from mirrorlake.landing import metadata
from mirrorlake.landing.metadata import Metadata
from mirrorlake.landing.text.format import (
    COLUMN_SEPARATORS,
    ESCAPES,
    QUOTES,
    ROW_SEPARATORS,
    TYPES,
    DeclaredColumn,
    TextFormat,
)
from mirrorlake.model import types

F = r"""{ "KeyColumns": [ "id" ],
  "SchemaDefinition": { "Columns": [
      { "Name": "id", "DataType": "Int32" },
      { "Name": "name", "DataType": "String", "IsNullable": true },
      { "Name": "age", "DataType": "Int32", "IsNullable": true },
      { "Name": "seqNum", "DataType": "Int64", "IsNullable": false } ] },
  "FileFormat": "DelimitedText", "FileExtension": "tsv",
  "FileFormatTypeProperties": { "FirstRowAsHeader": true, "RowSeparator": "\r\n",
      "ColumnSeparator": ",", "QuoteCharacter": "'",
      "EscapeCharacter": "\", "NullValue": "N/A", "Encoding": "UTF-8" } }"""


def read(record: str | dict[str, Any]) -> Metadata:
    content = record if isinstance(record, str) else json.dumps(record)
    return metadata.decode(content.encode(), table="t", file="_metadata.json")


def form(**members: Any) -> TextFormat:
    found = read(members).text
    assert found is not None
    return found


def properties(**members: Any) -> TextFormat:
    return form(FileFormatTypeProperties=members)


def fault(**members: Any) -> BadMetadata:
    with pytest.raises(BadMetadata) as caught:
        read(members)
    return caught.value


def columns(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"SchemaDefinition": {"Columns": list(entries)}}


class TestForm:
    @pytest.mark.clause("LZ-320", "LZ-332", "LZ-171", "LZ-172", "LZ-168")
    def test_the_example_of_the_specification(self) -> None:
        found = read(F)
        assert found.key_columns == ("id",)
        assert found.text == TextFormat(
            columns=(
                DeclaredColumn("id", "Int32"),
                DeclaredColumn("name", "String", True),
                DeclaredColumn("age", "Int32", True),
                DeclaredColumn("seqNum", "Int64", False),
            ),
            extension="tsv",
            column_separator=",",
            quote="'",
            escape="\\",
            null="N/A",
            encoding="UTF-8",
        )

    @pytest.mark.clause("LZ-162", "LZ-163", "LZ-164", "LZ-165", "LZ-167", "LZ-169")
    def test_the_defaults(self) -> None:
        assert form(FileFormat="CSV") == TextFormat(
            columns=None,
            extension="csv",
            row_separator="\r\n",
            column_separator=",",
            quote='"',
            escape="\\",
            null=None,
            encoding="UTF-8",
        )
        assert form(RowSeparator="\r\n") == form(FileFormat="CSV")  # CSV where no format is told

    def test_without_members_there_is_no_format(self) -> None:
        assert read({"keyColumns": ["id"]}).text is None

    @pytest.mark.clause("LZ-162", "LZ-163", "LZ-164", "LZ-165", "LZ-166")
    def test_each_character_of_the_specification(self) -> None:
        for separator in ("\r\n", "\n", "\r"):
            assert properties(RowSeparator=separator).row_separator == separator
        for separator in (",", ";", "|", "\t"):
            assert properties(ColumnSeparator=separator).column_separator == separator
        for quote in ('"', "'", ""):
            assert properties(QuoteCharacter=quote).quote == quote
        for escape in ("\\", "/", '"', ""):
            assert properties(EscapeCharacter=escape).escape == escape
        for null in ("", "N/A", "null"):
            assert properties(NullValue=null).null == null

    @pytest.mark.clause("LZ-167")
    @pytest.mark.parametrize("name", ["ascii", "utf-16", "windows-1252", "UTF-8", "Shift_JIS"])
    def test_encodings(self, name: str) -> None:
        assert properties(Encoding=name).encoding == name

    @pytest.mark.clause("LZ-050", "LZ-171", "LZ-329")
    def test_members_are_found_in_any_case(self) -> None:
        found = form(
            schemadefinition={"COLUMNS": [{"name": "a", "DATATYPE": "int16", "isnullable": False}]},
            fileFormat="delimitedtext",
            fileExtension="TSV",
            fileFormatTypeProperties={
                "firstRowAsHeader": True,
                "rowSeparator": "\n",
                "columnSeparator": ";",
                "quoteCharacter": "'",
                "escapeCharacter": "/",
                "nullValue": "-",
                "encoding": "ascii",
            },
        )
        column = DeclaredColumn("a", "Int16", False)
        assert found == TextFormat((column,), "tsv", True, "\n", ";", "'", "/", "-", "ascii")

    @pytest.mark.clause("LZ-191", "LZ-335")
    def test_members_at_the_top_are_read_and_inner_ones_take_precedence(self) -> None:
        found = form(
            FirstRowAsHeader=True,
            columnSeparator=";",
            NullValue="top",
            FileFormatTypeProperties={"NullValue": "inside"},
        )
        assert (found.column_separator, found.null) == (";", "inside")

    @pytest.mark.clause("LZ-191")
    @pytest.mark.parametrize(
        ("member", "field", "value", "other"),
        [
            ("RowSeparator", "row_separator", "\n", "\r"),
            ("ColumnSeparator", "column_separator", ";", "|"),
            ("QuoteCharacter", "quote", "'", ""),
            ("EscapeCharacter", "escape", "/", ""),
            ("NullValue", "null", "-", ""),
            ("Encoding", "encoding", "ascii", "utf-16"),
        ],
    )
    def test_each_property_may_be_at_the_top(
        self, member: str, field: str, value: str, other: str
    ) -> None:
        assert form(**{member: value}) == replace(TextFormat(), **{field: value})
        both = form(**{member: other, "FileFormatTypeProperties": {member: value}})
        assert both == replace(TextFormat(), **{field: value})

    @pytest.mark.clause("LZ-191", "LZ-161")
    def test_the_header_property_may_be_at_the_top(self) -> None:
        assert form(FirstRowAsHeader=False, FileFormatTypeProperties={"FirstRowAsHeader": True})
        inside = {"FirstRowAsHeader": False}
        assert "expected true" in fault(FirstRowAsHeader=True, FileFormatTypeProperties=inside).what

    @pytest.mark.clause("LZ-189")
    @pytest.mark.parametrize("kind", ["CSV", "csv", "DelimitedText", "DELIMITEDTEXT"])
    @pytest.mark.parametrize("extension", ["csv", ".csv", ".CSV", "Csv"])
    def test_extension_and_format_of_csv(self, kind: str, extension: str) -> None:
        assert form(FileFormat=kind, FileExtension=extension).extension == "csv"

    @pytest.mark.clause("LZ-190")
    def test_the_separator_does_not_follow_the_extension(self) -> None:
        assert form(FileFormat="DelimitedText", FileExtension="tsv").column_separator == ","

    @pytest.mark.clause("LZ-033")
    def test_key_detection_default_and_format_are_in_one_record(self) -> None:
        found = read(
            {
                "keyColumns": ["id"],
                "fileDetectionStrategy": "LastUpdateTimeFileDetection",
                "isUpsertDefaultRowMarker": True,
                "FileFormat": "CSV",
            }
        )
        assert found == Metadata(("id",), metadata.BY_TIME, True, "CSV", text=TextFormat())


class TestColumns:
    @pytest.mark.clause(
        *("LZ-175", "LZ-176", "LZ-177", "LZ-178", "LZ-179", "LZ-180", "LZ-181"),
        *("LZ-183", "LZ-184", "LZ-185", "LZ-186", "LZ-188"),
    )
    @pytest.mark.parametrize("change", [str, str.upper, str.lower])
    @pytest.mark.parametrize(
        ("name", "delta"),
        [
            ("Double", types.DOUBLE),
            ("Single", types.FLOAT),
            ("Int16", types.SHORT),
            ("Int32", types.INTEGER),
            ("Int64", types.LONG),
            ("DateTime", types.TIMESTAMP),
            ("IDate", types.DATE),
            ("ITime", types.STRING),
            ("String", types.STRING),
            ("Boolean", types.BOOLEAN),
            ("ByteArray", types.BINARY),
        ],
    )
    def test_each_type_in_any_case(self, name: str, delta: types.DataType, change: Any) -> None:
        (column,) = form(**columns({"Name": "a", "DataType": change(name)})).columns or ()
        assert (column.type, column.data_type) == (name, delta)

    @pytest.mark.clause("LZ-187")
    def test_a_decimal_has_precision_and_scale(self) -> None:
        entry = {"Name": "a", "DataType": "decimal", "Precision": 12, "Scale": 3}
        (column,) = form(**columns(entry)).columns or ()
        assert column.data_type == types.decimal(12, 3)
        assert "Precision" in fault(**columns({"Name": "a", "DataType": "Decimal"})).what

    @pytest.mark.clause("LZ-188")
    def test_any_other_type_is_refused(self) -> None:
        error = fault(**columns({"Name": "id", "DataType": "Guid"}))
        assert "SchemaDefinition.Columns[0].DataType is 'Guid'" in error.what
        assert "column id" in error.what

    def test_an_empty_list_of_columns_declares_nothing(self) -> None:
        assert form(SchemaDefinition={"Columns": []}, FileFormat="csv").columns is None


class TestRefusals:
    @pytest.mark.clause("LZ-161", "LZ-198")
    @pytest.mark.parametrize("value", [False, "false"])
    def test_there_is_always_a_header(self, value: object) -> None:
        assert "expected true" in fault(FirstRowAsHeader=value).what

    @pytest.mark.clause("LZ-170")
    def test_another_format_than_csv_names_its_extension(self) -> None:
        assert "FileExtension is nothing" in fault(FileFormat="DelimitedText").what

    @pytest.mark.clause("LZ-210")
    @pytest.mark.parametrize("kind", ["JSON", "xlsx", "Excel"])
    def test_other_formats_are_refused(self, kind: str) -> None:
        assert "expected CSV or DelimitedText" in fault(FileFormat=kind).what

    @pytest.mark.parametrize(
        ("member", "value"),
        [
            ("RowSeparator", "\n\n"),
            ("ColumnSeparator", "::"),
            ("ColumnSeparator", 5),
            ("QuoteCharacter", "`"),
            ("EscapeCharacter", "^"),
            ("NullValue", 0),
            ("Encoding", "klingon"),
            ("Encoding", "base64"),
            ("Encoding", "undefined"),
            ("Encoding", "punycode"),
            ("Encoding", "idna"),
            ("Encoding", "a\0b"),
            ("FirstRowAsHeader", "yes"),
        ],
    )
    def test_a_wrong_property_is_named_with_its_value(self, member: str, value: object) -> None:
        what = fault(FileFormatTypeProperties={member: value}).what
        assert what.startswith(f"FileFormatTypeProperties.{member} is ")
        assert "expected" in what
        assert "line 1, column" in what

    @pytest.mark.parametrize(
        "members",
        [
            {"FileFormat": "JSON"},
            {"FileExtension": "../x"},
            {"FileExtension": ""},
            {"FileFormatTypeProperties": []},
            {"SchemaDefinition": []},
            {"SchemaDefinition": {"Columns": {}}},
            columns("id"),  # type: ignore[arg-type]
            columns({"DataType": "String"}),
            columns({"Name": "", "DataType": "String"}),
            columns({"Name": "a"}),
            columns({"Name": "a", "DataType": "String", "IsNullable": 1}),
            columns({"Name": "a", "DataType": "String"}, {"Name": "A", "DataType": "String"}),
            columns({"Name": "a", "DataType": "String"}, {"Name": "a", "DataType": "Int16"}),
            columns({"Name": "a", "DataType": "Decimal", "Precision": 39}),
            columns({"Name": "a", "DataType": "Decimal", "Precision": 5, "Scale": 6}),
        ],
    )
    def test_a_wrong_member_is_refused(self, members: dict[str, Any]) -> None:
        assert fault(**members).code == "bad_metadata"


class TestPublishers:
    @pytest.mark.clause("LZ-333")
    def test_bc2adls(self) -> None:
        found = read(
            {
                "keyColumns": ["systemId-2000000000", "$Company"],
                "fileDetectionStrategy": "SequentialFileName",
                "SchemaDefinition": {
                    "Columns": [
                        {"Name": "systemId-2000000000", "DataType": "String", "IsNullable": False},
                        {"Name": "Amount-13", "DataType": "Double", "IsNullable": True},
                        {"Name": "$Company", "DataType": "String", "IsNullable": False},
                    ]
                },
                "fileFormat": "csv",
            }
        )
        assert found.unknown == ()
        assert found.text is not None
        assert found.text.extension == "csv"
        assert [column.name for column in found.text.columns or ()] == [
            "systemId-2000000000",
            "Amount-13",
            "$Company",
        ]

    @pytest.mark.clause("LZ-334")
    def test_cluedin(self) -> None:
        found = read(
            {
                "keyColumns": ["Id"],
                "fileFormat": "csv",
                "fileExtension": ".csv",
                "fileFormatTypeProperties": {
                    "firstRowAsHeader": True,
                    "rowSeparator": "\r\n",
                    "columnSeparator": ",",
                    "quoteCharacter": '"',
                    "escapeCharacter": '"',
                    "nullValue": "",
                    "encoding": "UTF-8",
                },
            }
        )
        assert found.text == TextFormat(escape='"', null="")

    @pytest.mark.clause("LZ-335")
    def test_other_observed_metadata(self) -> None:
        found = read(
            {
                "keyColumns": ["id"],
                "FirstRowAsHeader": True,
                "FileFormat": "CSV",
                "isPartitionEnabled": "true",
                "protocolVersion": 1,
                "isUpsertDefaultRowMarker": False,
            }
        )
        assert found.text == TextFormat()
        assert (found.partitioned, found.upsert_default) == (True, False)
        assert found.unknown == ("protocolVersion",)


names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
declared = st.builds(
    DeclaredColumn, names, st.sampled_from(sorted(TYPES)), st.none() | st.booleans()
) | st.builds(
    DeclaredColumn,
    names,
    st.just("Decimal"),
    st.none() | st.booleans(),
    st.integers(10, 38),
    st.integers(0, 10),
)
forms = st.builds(
    TextFormat,
    columns=st.none()
    | st.lists(declared, min_size=1, max_size=4, unique_by=lambda c: c.name.casefold()).map(tuple),
    extension=st.sampled_from(["csv", "tsv", "psv", "txt"]),
    row_separator=st.sampled_from(ROW_SEPARATORS),
    column_separator=st.sampled_from(COLUMN_SEPARATORS),
    quote=st.sampled_from(QUOTES),
    escape=st.sampled_from(ESCAPES),
    null=st.none() | names,
    encoding=st.sampled_from(["UTF-8", "utf-16", "windows-1252"]),
)


class TestWriting:
    @pytest.mark.clause("LZ-053")
    @given(forms)
    def test_what_we_write_is_read_back(self, found: TextFormat) -> None:
        content = metadata.encode(Metadata(("id",), text=found))
        read_back = metadata.decode(content, table="t", file="f")
        assert (read_back.text, read_back.notes, read_back.unknown) == (found, (), ())
