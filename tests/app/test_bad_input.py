"""Bad input: each fault stops its own table with its own error, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirrorlake.spark.session.spark_session import Spark
from tests.app.zones import MARKER, Zone

pytestmark = pytest.mark.spark

GOOD = {"id": [1], "v": ["a"]}


@pytest.fixture(scope="module")
def zone(tmp_path_factory: pytest.TempPathFactory, spark: Spark) -> Zone:
    """One zone with a table for each fault, and one without; file 1 is good everywhere."""
    zone = Zone(tmp_path_factory.mktemp("bad") / "root", spark)
    for name in ("good", "no_key", "marker", "zero", "cut", "text", "gap", "type", "struct"):
        zone.table(name, "missing" if name == "no_key" else "id")
        zone.land(name, 1, GOOD)
    zone.land("good", 2, {"id": [2], "v": ["b"], MARKER: [0]})
    zone.land("marker", 2, {"id": [2, 3], "v": ["b", "c"], MARKER: [0, 7]})
    (zone.folder("zero") / f"{2:020d}.parquet").write_bytes(b"")
    whole = zone.land("cut", 2, GOOD)
    whole.write_bytes(whole.read_bytes()[:-20])
    (zone.folder("text") / f"{2:020d}.parquet").write_text("id,v\n1,a\n" * 100)
    zone.land("gap", 3, GOOD)
    zone.land("type", 2, {"id": ["2"], "v": ["b"], MARKER: [0]})
    structs = pa.array([{"x": 1}])
    pq.write_table(pa.table({"id": [2], "v": structs}), zone.folder("struct") / f"{2:020d}.parquet")
    zone.report = zone.apply()  # type: ignore[attr-defined]
    return zone


@pytest.mark.parametrize(
    ("table", "code", "file", "told"),
    [
        pytest.param("no_key", "key_column_missing", 1, "missing",
                     marks=pytest.mark.clause("LZ-046")),
        pytest.param("marker", "unknown_marker", 2, "marker 7",
                     marks=pytest.mark.clause("LZ-085", "LZ-270")),
        pytest.param("zero", "bad_file", 2, "0 bytes", marks=pytest.mark.clause("LZ-276")),
        pytest.param("cut", "bad_file", 2, "not a complete Parquet file",
                     marks=pytest.mark.clause("LZ-276")),
        pytest.param("text", "bad_file", 2, "not a complete Parquet file"),
        pytest.param("gap", "missing_file", None, "file 2 is missing, 3 is waiting",
                     marks=pytest.mark.clause("LZ-117")),
        pytest.param("type", "SchemaMergeFailure", 2, "existing type: 'long'",
                     marks=pytest.mark.clause("LZ-221", "LZ-224")),
        pytest.param("struct", "unsupported_column", 2, "JSON string",
                     marks=pytest.mark.clause("LZ-155")),
    ],
)  # fmt: skip
def test_a_fault_stops_its_table_with_its_error(
    zone: Zone, table: str, code: str, file: int | None, told: str
) -> None:
    errors = {error.table: error for error in zone.report.errors}  # type: ignore[attr-defined]
    error = errors[f"s.{table}"]
    assert error.code == code
    assert error.file == (None if file is None else f"{file:020d}.parquet")
    assert told in str(error)


@pytest.mark.full
@pytest.mark.clause("LZ-267")
@pytest.mark.parametrize("table", ["good", "marker", "zero", "cut", "text", "gap", "type"])
def test_what_stood_before_the_fault_is_applied(zone: Zone, table: str) -> None:
    assert zone.rows(table)[0] == (1, "a")


@pytest.mark.full
@pytest.mark.clause("LZ-267")
def test_the_table_without_a_fault_goes_on(zone: Zone) -> None:
    assert zone.rows("good") == [(1, "a"), (2, "b")]


@pytest.mark.clause("LZ-270")
def test_a_bad_marker_is_named_with_row_column_and_value(zone: Zone) -> None:
    errors = {error.table: error for error in zone.report.errors}  # type: ignore[attr-defined]
    error = errors["s.marker"]
    assert (error.row, error.column, error.value) == (2, MARKER, "7")


@pytest.mark.full
@pytest.mark.clause("LZ-268", "LZ-269")
def test_a_repaired_file_is_applied(tmp_path: Path, spark: Spark) -> None:
    zone = Zone(tmp_path / "root", spark)
    zone.table("t", "id")
    zone.land("t", 1, GOOD)
    zone.land("t", 2, {"id": [2], "v": ["b"], MARKER: [9]})
    loop = zone.loop()
    loop.open()
    assert [error.code for error in loop.once().errors] == ["unknown_marker"]
    zone.land("t", 2, {"id": [2], "v": ["b"], MARKER: [0]})
    assert not loop.once().errors
    loop.close()
    assert zone.rows("t") == [(1, "a"), (2, "b")]
