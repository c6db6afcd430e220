"""Parquet files that are whole and mean harm: columns, names and nesting of every kind."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirrorlake.errors import (
    BadFile,
    BadValue,
    FileTooLarge,
    MisspeltMarker,
    TableError,
    UnknownMarker,
    UnsupportedColumn,
)
from mirrorlake.landing.parquet import reader as parquet
from mirrorlake.model.change import MARKER_COLUMN
from tests.landing.files import FILE, encoded, inspected, read


def named(*names: str) -> bytes:
    return encoded(pa.Table.from_arrays([pa.array([1])] * len(names), names=list(names)))


@pytest.mark.parametrize(
    "name",
    [
        "\0",
        "a\0b",
        "\n",
        "\x1b[31m",
        "'; drop table t; --",
        "../../x",
        "n" * 100_000,
        "\u202e",
        "%s",
    ],
)
def test_a_column_may_have_any_name(name: str) -> None:
    found = read(named("id", name))
    assert found.data.column_names == ["id", name]


def test_a_file_may_have_very_many_columns() -> None:
    content = named(*(f"c{n}" for n in range(5_000)))
    assert len(inspected(content).schema) == 5_000


@pytest.mark.clause("LZ-156")
def test_names_that_differ_in_case_are_found_among_very_many_columns() -> None:
    with pytest.raises(UnsupportedColumn, match="c4999 and C4999"):
        inspected(named(*(f"c{n}" for n in range(5_000)), "C4999"))


@pytest.mark.clause("LZ-086")
@pytest.mark.parametrize("name", ["__ROWMARKER__", "__rowmarKer__"])
def test_a_misspelt_marker_is_detected(name: str) -> None:
    with pytest.raises(MisspeltMarker):
        inspected(named("id", name, MARKER_COLUMN))


@pytest.mark.clause("LZ-155")
def test_a_deeply_nested_column_is_refused() -> None:
    for depth, error in ((50, UnsupportedColumn), (200, BadFile)):
        value: pa.Array = pa.array([1])
        for _ in range(depth):
            value = pa.StructArray.from_arrays([value], ["x"])
        with pytest.raises(error):
            inspected(encoded(pa.table({"n": value})))


def test_a_footer_with_too_many_rows_is_an_error() -> None:
    """Both numbers are of one length, so that the footer stays where it is."""
    content = encoded({"id": [1] * 100}, compression="none")
    promised = content.replace(b"\x16\xc8\x01", b"\x16\xca\x01")  # 100 becomes 101, in zigzag
    assert promised != content
    with pytest.raises(BadFile, match="100 rows, but its footer says 101"):
        read(promised)


def test_a_file_that_ends_before_its_listed_size_is_an_error() -> None:
    content = encoded({"id": [1]})
    handle = io.BytesIO(content[:-1])
    with pytest.raises(TableError):
        parquet.inspect(handle, len(content), table="t", file=FILE)


def test_a_column_beyond_the_offsets_of_arrow_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """What joining more than 2 GiB of text raises, without the 2 GiB."""

    def overflow(_column: object) -> pa.Array:
        raise pa.ArrowInvalid("offset overflow while concatenating arrays")

    monkeypatch.setattr(parquet, "contiguous", overflow)
    with pytest.raises(FileTooLarge, match="more than 2 GiB") as caught:
        read(encoded({"note": ["a"]}))
    assert caught.value.column == "note"


def test_an_encrypted_file_is_an_error() -> None:
    content = encoded({"id": [1]})
    with pytest.raises(TableError):
        inspected(content[:-4] + b"PARE")


def test_the_files_of_a_data_set_are_not_rows() -> None:
    """A summary file, as some writers leave beside their data: columns, and not one row group."""
    buffer = io.BytesIO()
    pq.write_metadata(pa.schema([("id", pa.int64())]), buffer)
    assert inspected(buffer.getvalue()).rows == 0
    assert read(buffer.getvalue()).data.num_rows == 0


def test_a_text_that_is_not_utf_8_is_an_error_of_its_column() -> None:
    plain = {"compression": "none", "use_dictionary": False, "write_page_checksum": False}
    content = encoded({"id": [1], "note": ["abcd"]}, **plain)
    with pytest.raises(BadValue, match="Invalid UTF8") as caught:
        read(content.replace(b"abcd", b"ab\xffd"))
    assert caught.value.column == "note"


def test_a_marker_that_is_not_utf_8_is_shortened_in_the_error() -> None:
    marker = "x" * 5_000
    columns = {"id": [1], MARKER_COLUMN: [marker]}
    plain = {"use_dictionary": False, "write_statistics": False, "write_page_checksum": False}
    content = encoded(columns, compression="none", **plain)
    with pytest.raises(UnknownMarker) as caught:
        read(content.replace(b"xxxx", b"\xffxxx"))
    assert (caught.value.value or "").startswith("\\xffxxx")
    assert len(str(caught.value)) < 2_000
