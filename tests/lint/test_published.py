"""What official pages print and real publishers write gives no error."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from mirrorlake.lint import Profile
from mirrorlake.model.change import MARKER_COLUMN
from tests.lint.zones import (
    CHANGES,
    COLUMNS,
    ROWS,
    STRICT,
    TEXT,
    V1,
    V2,
    Zone,
    clean,
    keys,
    marked,
)

A = ["E0001", "E0002", "E0003", "E0001"], ["Redmond", "Redmond", "Redmond", "Bellevue"]
B = ["E0001", "E0001", "E0002"], ["Bellevue", None, "Bellevue"]
EXAMPLES = [(A, [0, 0, 0, 1]), (B, [0, 2, 0])]

F = rb"""{ "KeyColumns": [ "id" ],
  "SchemaDefinition": { "Columns": [
      { "Name": "id", "DataType": "Int32" },
      { "Name": "name", "DataType": "String", "IsNullable": true },
      { "Name": "age", "DataType": "Int32", "IsNullable": true },
      { "Name": "seqNum", "DataType": "Int64", "IsNullable": false } ] },
  "FileFormat": "DelimitedText", "FileExtension": "tsv",
  "FileFormatTypeProperties": { "FirstRowAsHeader": true, "RowSeparator": "\r\n",
      "ColumnSeparator": ",", "QuoteCharacter": "'",
      "EscapeCharacter": "\", "NullValue": "N/A", "Encoding": "UTF-8" } }"""


@pytest.fixture
def zone(tmp_path: Path) -> Zone:
    return clean(tmp_path)


@pytest.mark.parametrize("profile", [V1, V2], ids=["v1", "v2"])
@pytest.mark.parametrize("kind", [pa.int8(), pa.int64(), pa.string()], ids=str)
@pytest.mark.parametrize(("columns", "markers"), EXAMPLES, ids=["A", "B"])
def test_the_row_examples(
    tmp_path: Path, profile: Profile, kind: pa.DataType, columns: tuple, markers: list[int]
) -> None:
    zone = Zone(tmp_path)
    zone.put("_partnerEvents.json", json.dumps(_EXAMPLE_D))
    zone.describe("t", keyColumns=["EmployeeID"])
    named = dict(zip(("EmployeeID", "EmployeeLocation"), columns, strict=True))
    column = pa.array(markers).cast(kind)
    zone.land("t", 1, marked(named, column, first=profile is V1))
    assert keys(zone.lint(profile)) == set()


_EXAMPLE_D = {
    "partnerName": "testPartner",
    "sourceInfo": {
        "sourceType": "SQL",
        "sourceVersion": "2019",
        "additionalInformation": {"testKey": "testValue"},
    },
}


@pytest.mark.clause("LZ-032")
def test_a_composite_key(zone: Zone) -> None:
    zone.describe("t", keyColumns=["C1", "C2"])
    zone.land("t", 1, {"C1": [1, 1, 2], "C2": [1, 2, 1]})
    assert keys(zone.lint()) == set()


@pytest.mark.clause("LZ-063")
def test_the_partner_events_of_the_page(zone: Zone) -> None:
    zone.put("_partnerEvents.json", json.dumps(_EXAMPLE_D))
    assert keys(zone.lint()) == set()


def test_the_unquoted_strategy_of_the_page(zone: Zone) -> None:
    zone.put(
        "t/_metadata.json",
        '{ "keyColumns" : ["id"], "fileDetectionStrategy": LastUpdateTimeFileDetection, '
        '"isUpsertDefaultRowMarker": true }',
    )
    zone.land("t", 7, ROWS)
    assert keys(zone.lint()) == {"LZ-053/metadata-not-strict"}


def test_the_tab_separated_example_of_the_page(zone: Zone) -> None:
    zone.put("t/_metadata.json", F)
    rows = "1,'O\\'Neill, A.',N/A,5,0", "2,N/A,7,6,0", "1,,,,2"
    zone.write("t", 1, "id,name,age,seqNum,__rowMarker__", *rows, extension="tsv")
    result = zone.lint()
    assert keys(result) == {
        "LZ-053/member-spelling",
        "LZ-053/metadata-not-strict",
        "LZ-190/separator-of-extension",
    }
    assert not result.report.errors


def test_a_publisher_without_format_members(zone: Zone) -> None:
    """As in LZ-333: no FileExtension, the format in lower case, the marker not declared."""
    zone.describe(
        "t",
        keyColumns=["id", "name"],
        fileDetectionStrategy="LastUpdateTimeFileDetection",
        SchemaDefinition={"Columns": COLUMNS},
        fileFormat="csv",
    )
    zone.put("t/3f2c-01.csv", 'id,name,__rowMarker__\r\n1,"A \\"b\\"",4\r\n')
    result = zone.lint()
    assert keys(result) == {"LZ-160/extension-not-declared"}
    assert result.is_good


def test_a_publisher_without_a_schema(zone: Zone) -> None:
    """As in LZ-334: lower camel case, a quote as escape, an empty null text."""
    zone.describe(
        "t",
        keyColumns=["id"],
        fileFormat="DelimitedText",
        fileExtension="csv",
        fileFormatTypeProperties={
            "firstRowAsHeader": True,
            "rowSeparator": "\n",
            "columnSeparator": ",",
            "quoteCharacter": '"',
            "escapeCharacter": '"',
            "nullValue": "",
            "encoding": "UTF-8",
        },
    )
    zone.put(f"t/{1:020d}.csv", 'id,name,__rowMarker__\n1,"A ""b""",0\n')
    assert keys(zone.lint()) == {"LZ-192/schema-absent"}


def test_the_marker_may_be_declared(zone: Zone) -> None:
    marker = {"Name": MARKER_COLUMN, "DataType": "Int32", "IsNullable": False}
    zone.describe("notes", **TEXT | {"SchemaDefinition": {"Columns": [*COLUMNS, marker]}})
    for profile in (V2, STRICT):
        assert keys(zone.lint(profile)) == set()


def test_files_without_rows_are_valid(zone: Zone) -> None:
    columns = pa.table(ROWS).slice(0, 0)
    zone.land("orders", 3, marked(dict(zip(ROWS, columns.columns, strict=True)), []))
    zone.write("notes", 3, "id,name,__rowMarker__")
    assert keys(zone.lint()) == set()


def test_state_files_of_publishers_are_unchanged(zone: Zone) -> None:
    """As in LZ-340."""
    for name in ("_state.pkl", "_schema.json", "_log/a.txt", "_Temp/_temp_1.parquet"):
        zone.put(f"orders/{name}", b"x")
    zone.put("_scratchPad/orders/00000000000000000001.parquet", b"PA")
    assert keys(zone.lint()) == set()


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "zstd"])
def test_the_codecs_of_the_pages(zone: Zone, codec: str) -> None:
    zone.land("orders", 3, marked(CHANGES), compression=codec)
    assert keys(zone.lint(STRICT)) == set()


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_compressed_text_under_the_declared_extension(zone: Zone, codec: str) -> None:
    text = b"id,name,__rowMarker__\r\n7,Eva,0\r\n"
    content = bytes(pa.compress(text, codec=codec, asbytes=True))
    zone.put(f"notes/{3:020d}.csv", content)
    assert keys(zone.lint(STRICT)) == set()


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "windows-1252", "ascii", "UTF-8"])
def test_text_in_many_encodings(zone: Zone, encoding: str) -> None:
    properties = TEXT["FileFormatTypeProperties"] | {"Encoding": encoding}
    zone.describe("t", **TEXT | {"FileFormatTypeProperties": properties})
    name = "Eva" if encoding == "ascii" else "Jürgen"
    text = f"id,name,__rowMarker__\r\n7,{name},0\r\n"
    zone.put(f"t/{1:020d}.csv", text.encode(encoding))
    assert keys(zone.lint(STRICT)) == set()


def test_column_names_with_strange_characters(zone: Zone) -> None:
    strange = {f"a{c}b": ["x"] for c in " ,;{}()\n\t="}
    zone.describe("t", keyColumns=["a b"])
    zone.land("t", 1, strange)
    assert keys(zone.lint()) == set()


@pytest.mark.parametrize("whole_rows", [True, False])
def test_deletions_of_whole_rows_need_no_key(tmp_path: Path, whole_rows: bool) -> None:
    zone = Zone(tmp_path)
    zone.put("_partnerEvents.json", json.dumps(_EXAMPLE_D))
    ours = {"format": "1", "generation": "g", "table": "t", "source": {}, "whole_rows": whole_rows}
    zone.describe("t", keyColumns=[], mirrorlake=ours)
    zone.land("t", 1, marked({"a": [1, 1, 1]}, pa.array([0, 0, 2], pa.int8())))
    found = {key for key in keys(zone.lint(V2)) if key.startswith("LZ-043")}
    assert found == (set() if whole_rows else {"LZ-043/change-without-key"})
