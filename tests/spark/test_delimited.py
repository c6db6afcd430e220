"""Delimited text through the whole engine, and each trap of Spark's own reader on the way."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from mirrorlake.apply import input_splits
from mirrorlake.spark.session.spark_session import Spark
from tests.app.zones import MARKER, Zone

pytestmark = pytest.mark.spark

TYPED = {
    "keyColumns": ["id"],
    "SchemaDefinition": {
        "Columns": [
            {"Name": "id", "DataType": "Int32"},
            {"Name": "name", "DataType": "String"},
            {"Name": "price", "DataType": "Double"},
            {"Name": "at", "DataType": "DateTime"},
            {"Name": "day", "DataType": "IDate"},
            {"Name": "flag", "DataType": "Boolean"},
            {"Name": "body", "DataType": "ByteArray"},
        ]
    },
    "FileFormat": "DelimitedText",
    "FileExtension": "tsv",
    "FileFormatTypeProperties": {
        "FirstRowAsHeader": True,
        "ColumnSeparator": "\t",
        "Encoding": "windows-1252",
    },
}


class Texts(Zone):
    """A zone whose tables are texts."""

    def describe(self, name: str, record: dict[str, Any]) -> None:
        self.folder(name).mkdir(parents=True, exist_ok=True)
        (self.folder(name) / "_metadata.json").write_text(json.dumps(record))

    def write(self, name: str, number: int, content: str | bytes, extension: str = "csv") -> None:
        self.folder(name).mkdir(parents=True, exist_ok=True)
        body = content.encode() if isinstance(content, str) else content
        (self.folder(name) / f"{number:020d}.{extension}").write_bytes(body)


def columns(**types: str) -> dict[str, Any]:
    entries = [{"Name": name, "DataType": kind} for name, kind in types.items()]
    return {"keyColumns": ["id"], "SchemaDefinition": {"Columns": entries}}


@pytest.fixture(scope="module")
def zone(tmp_path_factory: pytest.TempPathFactory, spark: Spark) -> Texts:
    """One zone, applied twice: what is there at first, and what comes later."""
    zone = Texts(tmp_path_factory.mktemp("texts") / "root", spark)
    _first(zone)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(input_splits, "MIN_BYTES", 1_000)
        zone.first = zone.apply()  # type: ignore[attr-defined]
    _later(zone)
    zone.later = zone.apply()  # type: ignore[attr-defined]
    return zone


def _first(zone: Texts) -> None:
    zone.describe("golden", {"keyColumns": ["EmployeeID"]})
    for number, row in enumerate(["0,E0001,Redmond", "0,E0002,Redmond", "1,E0001,Bellevue"], 1):
        zone.write("golden", number, f"{MARKER},EmployeeID,EmployeeLocation\n{row}\n")
    zone.describe("typed", TYPED)
    typed = (
        "flag\tid\tname\tprice\tat\tday\tbody\r\n"
        'TRUE\t1\t"Größe\r\n€"\t1.5\t2025-06-17T14:30:00+02:00\t2025-06-17\t0xff00\r\n'
        '0\t2\t""\t\t\t\tQUI=\r\n'
    )
    zone.write("typed", 1, gzip.compress(typed.encode("windows-1252")), "tsv.gz")
    zone.describe("bad", columns(id="Int32", v="Int32"))
    zone.write("bad", 1, "id,v\n1,1\n")
    zone.write("bad", 2, f"id,v,{MARKER}\n1,2,1\n2,zwei,0\n")
    zone.write("unsaid", 1, "id,v\n1,a\n")
    zone.describe("grows", columns(id="Int32", v="String"))
    zone.write("grows", 1, "id,v\n1,a\n")
    zone.describe("retyped", columns(id="Int32", v="Int32"))
    zone.write("retyped", 1, "id,v\n1,1\n")
    zone.describe("wide", {"keyColumns": ["id"]})
    zone.write("wide", 1, "id\n1\n")
    _large(zone)
    zone.describe("empty", columns(id="Int32", v="String"))
    zone.write("empty", 1, "id,v\n")


def _large(zone: Texts) -> None:
    """Texts of several parts, one with wrong values."""
    rows = "".join(f'{n},"two\nlines, {n}"\n' for n in range(300))
    zone.describe("large", columns(id="Int32", v="String"))
    zone.write("large", 1, "id,v\n" + rows)
    zone.describe("wrong", columns(id="Int32", v="String"))
    zone.write("wrong", 1, "id,v\n" + rows + "bad,x\n" + rows + "worse,x\n" + rows)


def _later(zone: Texts) -> None:
    zone.describe("unsaid", {"keyColumns": ["id"]})
    zone.describe("grows", columns(id="Int32", v="String", w="Int64"))
    zone.write("grows", 2, f"id,v,w,{MARKER}\n1,b,7,1\n2,,,0\n")
    zone.describe("retyped", columns(id="Int32", v="Int64"))
    zone.write("retyped", 2, "id,v\n2,2\n")
    zone.write("wide", 2, "id,v\n2,x\n")
    raw = pa.compress(b"id,v\n3,y\n" * 50, codec="snappy", asbytes=True)
    zone.write("wide", 3, raw)


def errors(zone: Texts, run: str) -> dict[str, Any]:
    return {error.table: error for error in getattr(zone, run).errors}


@pytest.mark.full
@pytest.mark.clause("LZ-314", "LZ-316")
def test_the_golden_example_as_text(zone: Texts) -> None:
    assert zone.rows("golden") == [("E0001", "Bellevue"), ("E0002", "Redmond")]


@pytest.mark.full
@pytest.mark.clause("LZ-167", "LZ-173", "LZ-209", "LZ-203")
def test_typed_columns_in_an_encoding_that_spark_does_not_know(zone: Texts) -> None:
    moment = datetime(2025, 6, 17, 12, 30, tzinfo=UTC)
    (one, two) = zone.rows("typed")
    at = one[3].astimezone(UTC)
    assert (one[:3], at, one[4:]) == (
        (1, "Größe\r\n€", 1.5),
        moment,
        (date(2025, 6, 17), True, bytearray(b"\xff\x00")),
    )
    assert two == (2, "", None, None, None, False, bytearray(b"AB"))


@pytest.mark.clause("LZ-208", "LZ-267", "LZ-270")
def test_a_bad_value_stops_its_table_with_row_column_and_value(zone: Texts) -> None:
    error = errors(zone, "first")["s.bad"]
    assert (error.code, error.row, error.column, error.value) == ("bad_value", 2, "v", "zwei")
    assert error.file == f"{2:020d}.csv"


def data_files(zone: Texts, name: str) -> int:
    return len(list((Path(zone.root) / "Tables/s" / name).glob("*.parquet")))


class TestLarge:
    @pytest.mark.full
    def test_a_text_is_read_in_parts_by_several_tasks(self, zone: Texts) -> None:
        assert sorted(zone.rows("large")) == [(n, f"two\nlines, {n}") for n in range(300)]
        assert data_files(zone, "large") > 1

    def test_the_first_wrong_value_has_its_row_and_line(self, zone: Texts) -> None:
        error = errors(zone, "first")["s.wrong"]
        assert (error.row, error.column, error.value) == (301, "id", "bad")
        assert "on line 602" in error.what


@pytest.mark.full
@pytest.mark.clause("LZ-042")
def test_a_text_is_read_as_soon_as_it_is_described(zone: Texts) -> None:
    assert "s.unsaid" not in errors(zone, "first")
    assert zone.rows("unsaid") == [("1", "a")]


@pytest.mark.full
@pytest.mark.clause("LZ-196", "LZ-325")
def test_a_column_that_is_declared_later_is_added(zone: Texts) -> None:
    assert zone.rows("grows") == [(1, "b", 7), (2, None, None)]


@pytest.mark.full
@pytest.mark.clause("LZ-196", "LZ-221", "LZ-325")
def test_a_column_that_is_declared_otherwise_stops_the_table(zone: Texts) -> None:
    assert errors(zone, "later")["s.retyped"].code == "SchemaMergeFailure"
    assert zone.rows("retyped") == [(1, 1)]


@pytest.mark.full
@pytest.mark.clause("LZ-194", "LZ-212", "LZ-325")
def test_a_new_column_of_a_text_is_added(zone: Texts) -> None:
    assert zone.rows("wide") == [("1", None), ("2", "x")]


def test_a_raw_snappy_file_is_an_error_and_not_an_empty_one(zone: Texts) -> None:
    assert "raw Snappy" in errors(zone, "later")["s.wide"].what


@pytest.mark.full
@pytest.mark.clause("LZ-142")
def test_a_header_alone_makes_the_table(zone: Texts) -> None:
    assert zone.rows("empty") == []
    assert (Path(zone.root) / "Tables/s/empty/_delta_log").is_dir()
