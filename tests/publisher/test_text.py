"""Delimited text: what is written means what was given, in every form that can be declared."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.errors import BadValue, UsageError
from mirrorlake.landing import text as delimited
from mirrorlake.landing.metadata import Metadata
from mirrorlake.model.change import Marker
from mirrorlake.publisher import Publisher, TextFormat
from tests.publisher.mirrored_zone import Zone
from tests.publisher.text_reader import rows_of, unpacked

ROW: dict[str, Any] = {
    "id": 1,
    "flag": True,
    "small": 2**15 - 1,
    "real": 0.5,
    "price": Decimal("1.10"),
    "name": 'a "b" \\ c,\r\nd',
    "blob": b"\0\xff",
    "day": date(2025, 6, 17),
    "at": datetime(2025, 6, 17, 14, 30, 0, 1, tzinfo=UTC),
}
TYPES = {"small": "short", "real": "float"}
WINDOWS = "windows-1252"


def published(
    rows: Any, form: TextFormat, codec: str = "none", **options: Any
) -> list[dict[str, Any]]:
    """The rows as they read back from what was published of them: by a reader of the tests, and by
    that of the mirror alike (LZ-327)."""
    zone = Zone()
    with zone.publisher(codec=codec) as publisher:
        publisher.load("t", rows, key=(), text=form, **options)
    found = rows_of(zone.text("t"), zone.metadata("t"))
    assert {row.pop("__rowMarker__") for row in found} <= {"0"}
    assert repr(mirrored(zone.text("t"), zone.described("t"))) == repr(found)
    return found


def mirrored(content: bytes, described: Metadata) -> list[dict[str, Any]]:
    """The rows of a text as the mirror reads them."""
    assert described.text is not None
    size, named = len(content), {"table": "t", "file": "1.csv"}
    schema = delimited.inspect(io.BytesIO(content), size, described.text, **named).schema
    rows = delimited.read(io.BytesIO(content), size, schema, Marker.UPSERT, described.text, **named)
    assert set(rows.marker.to_pylist()) <= {int(Marker.INSERT)}
    return [{name: _plain(value) for name, value in row.items()} for row in rows.data.to_pylist()]


def _plain(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) else value


@pytest.mark.clause("LZ-144", "LZ-159", "LZ-160", "LZ-161", "LZ-168")
@pytest.mark.clause("LZ-170", "LZ-171", "LZ-172", "LZ-174", "LZ-187")
def test_a_text_table_is_declared(zone: Zone, publisher: Publisher) -> None:
    publisher.load("t", [ROW], key="id", text=TextFormat(null="N/A"), types=TYPES)
    record = zone.metadata("t")
    assert record["SchemaDefinition"]["Columns"] == [
        {"Name": name, "DataType": kind, "IsNullable": True}
        for name, kind in [
            ("id", "Int64"),
            ("flag", "Boolean"),
            ("small", "Int16"),
            ("real", "Single"),
            ("price", "String"),  # Decimal is not listed (LZ-187)
            ("name", "String"),
            ("blob", "ByteArray"),
            ("day", "IDate"),
            ("at", "DateTime"),
        ]
    ]
    assert zone.text("t").splitlines()[0].decode() == ",".join([*ROW, "__rowMarker__"])
    assert record["keyColumns"] == ["id"]
    publisher.load("typed", [ROW], key="id")
    assert not {"SchemaDefinition", "FileFormat"} & zone.metadata("typed").keys()
    assert (record["FileFormat"], record["FileExtension"]) == ("CSV", "csv")
    assert record["FileFormatTypeProperties"] == {
        "FirstRowAsHeader": True,
        "RowSeparator": "\r\n",
        "ColumnSeparator": ",",
        "QuoteCharacter": '"',
        "EscapeCharacter": "\\",
        "NullValue": "N/A",
        "Encoding": "UTF-8",
    }


@pytest.mark.clause("LZ-169", "LZ-170")
@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (TextFormat(), "CSV"),
        (TextFormat(extension="tsv", column_separator="\t"), "DelimitedText"),
        (TextFormat(extension="psv", column_separator="|"), "DelimitedText"),
        (TextFormat(column_separator=";"), "DelimitedText"),
    ],
)
def test_what_is_not_csv_is_delimited_text(
    zone: Zone, publisher: Publisher, form: TextFormat, expected: str
) -> None:
    publisher.load("t", [ROW], key="id", text=form)
    record = zone.metadata("t")
    assert (record["FileFormat"], record["FileExtension"]) == (expected, form.extension)
    assert zone.names("t") == [f"00000000000000000001.{form.extension}"]


@pytest.mark.clause("LZ-175", "LZ-176", "LZ-177", "LZ-178", "LZ-179")
@pytest.mark.clause("LZ-180", "LZ-181", "LZ-184", "LZ-185", "LZ-186")
def test_every_type_has_its_text() -> None:
    rows = published([ROW], TextFormat(), types={**TYPES, "id": "integer"})
    assert rows == [ROW | {"price": "1.10"}]


@pytest.mark.clause("LZ-162", "LZ-163", "LZ-164", "LZ-165", "LZ-166")
@pytest.mark.parametrize("row", ["\r\n", "\n", "\r"])
@pytest.mark.parametrize("column", [",", ";", "|", "\t"])
@pytest.mark.parametrize("quote", ['"', "'"])
@pytest.mark.parametrize("escape", ["\\", "/", '"', ""])
@pytest.mark.parametrize("null", [None, "N/A", "null"])
def test_every_form_reads_back(
    row: str, column: str, quote: str, escape: str, null: str | None
) -> None:
    form = TextFormat(
        row_separator=row,
        column_separator=column,
        quote=quote,
        escape=escape,
        null=null,
        extension="txt",
    )
    texts = ["", "a", "\\", "/", '"', "'", "\\\"'/", ",;|\t\r\n", None, '""', "''", "\\\\", "NULL"]
    given = [{"id": n, "v": text, "n": None} for n, text in enumerate(texts)]
    assert published(given, form, types={"n": "long"}) == given


FORMS = st.builds(
    TextFormat,
    row_separator=st.sampled_from(["\r\n", "\n", "\r"]),
    column_separator=st.sampled_from([",", ";", "|", "\t"]),
    quote=st.sampled_from(['"', "'"]),
    escape=st.sampled_from(["\\", "/", '"', ""]),
    null=st.sampled_from([None, "", "N/A"]),
    encoding=st.sampled_from(["UTF-8", "utf-16", "utf-16-le", "utf-32"]),
)
AWKWARD = st.characters(exclude_categories=["Cs"]) | st.sampled_from("\\/'\",;|\t\r\n")
VALUES = st.fixed_dictionaries(
    {
        "n": st.none() | st.integers(-(2**63), 2**63 - 1),
        "x": st.none() | st.floats(),
        "t": st.none() | st.text(AWKWARD),
        "b": st.none() | st.binary(max_size=4),
        "d": st.none() | st.dates(),
        "z": st.none() | st.datetimes(timezones=st.just(UTC)).map(lambda at: at.replace(fold=0)),
        "o": st.none() | st.booleans(),
    }
)  # fmt: skip
KINDS = {"n": "long", "x": "double", "t": "string", "b": "binary", "d": "date", "z": "timestamp",
         "o": "boolean"}  # fmt: skip


@pytest.mark.clause("LZ-162", "LZ-163", "LZ-164", "LZ-165", "LZ-166", "LZ-167", "LZ-173")
@pytest.mark.clause("LZ-327")
@given(st.lists(VALUES, max_size=5), FORMS, st.sampled_from(["none", "gzip", "zstd"]))
def test_random_tables_read_back(rows: list[dict[str, Any]], form: TextFormat, codec: str) -> None:
    if any(row["t"] == form.null for row in rows if form.null):
        return
    columns = {name: pa.array([row[name] for row in rows]) for name in KINDS}
    found = published(pa.table(columns), form, codec, types=KINDS)
    assert repr(found) == repr([{name: row[name] for name in KINDS} for row in rows])


@pytest.mark.clause("LZ-167")
@pytest.mark.parametrize("encoding", ["ascii", "utf-16", WINDOWS, "UTF-8", "iso8859-15"])
def test_text_is_in_the_encoding_that_is_declared(zone: Zone, encoding: str) -> None:
    name = "Juergen" if encoding == "ascii" else "Jürgen €"
    with zone.publisher() as publisher:
        publisher.load("t", [{"v": name}], key=(), text=TextFormat(encoding=encoding))
    assert zone.text("t").decode(encoding).startswith(f'v,__rowMarker__\r\n"{name}",0')
    assert zone.metadata("t")["FileFormatTypeProperties"]["Encoding"] == encoding


def test_a_character_that_the_encoding_lacks_is_named(zone: Zone, publisher: Publisher) -> None:
    rows = [{"v": "a"}, {"v": "b\r\n"}, {"v": "\u4e2d"}]
    with pytest.raises(BadValue) as caught:
        publisher.load("t", rows, key=(), text=TextFormat(encoding=WINDOWS))
    assert (caught.value.row, caught.value.value) == (3, "\u4e2d")
    assert zone.names("t") == []


@pytest.mark.clause("LZ-173")
@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_text_is_compressed_under_the_declared_extension(zone: Zone, codec: str) -> None:
    with zone.publisher(codec=codec) as publisher:
        publisher.load("t", [{"v": "x" * 999}], key=(), text=TextFormat())
    assert zone.names("t") == ["00000000000000000001.csv"]
    assert len(zone.text("t")) < 200
    assert unpacked(zone.text("t")).endswith(b'x",0\r\n')


@pytest.mark.parametrize(
    ("form", "value"),
    [
        (TextFormat(null="N/A"), "N/A"),
        (TextFormat(quote=""), "a,b"),
        (TextFormat(quote=""), "a\nb"),
        (TextFormat(quote=""), ""),
    ],
)
def test_a_text_that_the_form_cannot_hold_is_refused(
    zone: Zone, publisher: Publisher, form: TextFormat, value: str
) -> None:
    with pytest.raises(BadValue) as caught:
        publisher.load("t", [{"v": "fine"}, {"v": value}], key=(), text=form)
    assert (caught.value.row, caught.value.column) == (2, "v")
    assert zone.names("t") == []


@pytest.mark.clause("LZ-164")
@pytest.mark.parametrize("form", [TextFormat(quote=""), TextFormat(quote="", escape="", null="-")])
def test_without_quotes_plain_text_is_bare(form: TextFormat) -> None:
    assert published([{"v": "a b"}, {"v": None}], form) == [{"v": "a b"}, {"v": None}]


@pytest.mark.parametrize(
    "form",
    [
        TextFormat(row_separator="\t"),
        TextFormat(column_separator="::"),
        TextFormat(quote="`"),
        TextFormat(escape="^"),
        TextFormat(header=False),
        TextFormat(extension="parquet"),
        TextFormat(extension="../x"),
        TextFormat(null="a,b"),
        TextFormat(encoding="klingon"),
        TextFormat(encoding="base64"),
    ],
)
def test_a_form_that_nobody_reads_is_refused(
    zone: Zone, publisher: Publisher, form: TextFormat
) -> None:
    with pytest.raises(UsageError):
        publisher.load("t", [{"v": "a"}], key=(), text=form)
    assert zone.names("t") == []


def test_awkward_column_names_are_quoted() -> None:
    row = {'a,"b"': 1, "c\\d": "x"}
    assert published([row], TextFormat()) == [row]
