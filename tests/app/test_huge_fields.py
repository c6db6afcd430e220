"""A field of gigabytes: its table says so, nothing hangs, memory stays, other tables go on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirrorlake.errors import TableError
from mirrorlake.landing.parquet import bounded
from mirrorlake.landing.text import records
from tests.app.zones import Zone

GIB = 1 << 30
MIB = 1 << 20

APPLY = """
import json, re, sys
from pathlib import Path
from tests.app.zones import Zone

report = Zone(Path(sys.argv[1])).apply()
peak = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())
errors = {error.table: [error.code, str(error)] for error in report.errors}
print(json.dumps({"errors": errors, "mebibytes": int(peak[1]) >> 10}))
"""
"""In a process of its own, which tells its peak."""


def landed(root: Path, size: int) -> Zone:
    """Texts and a Parquet file with a field of so many bytes, and a table without any."""
    zone = Zone(root)
    for name in ("text", "late", "parquet", "good"):
        zone.table(name, "id")
    zone.land("good", 1, {"id": [1], "v": ["x"]})
    _text(zone.folder("text") / f"{1:020d}.csv", 1, size)
    _text(zone.folder("late") / f"{1:020d}.csv", 2_000_000, size)
    _parquet(zone.folder("parquet") / f"{1:020d}.parquet", size)
    return zone


def _text(path: Path, rows: int, size: int) -> None:
    """Rows, and one more in which a quoted field is so large."""
    with path.open("wb") as file:
        file.write(b"id,v\n" + b"1,x\n" * rows + b'2,"')
        for _piece in range(size // MIB):
            file.write(b"x" * MIB)
        file.write(b'"\n3,x\n')


def _parquet(path: Path, size: int) -> None:
    column = pa.array([b"a", bytes(size), b"b"], pa.large_binary())
    table = pa.table({"id": pa.array([1, 2, 3]), "v": column})
    pq.write_table(table, path, compression="zstd", use_dictionary=False, write_statistics=False)


def check(zone: Zone, errors: dict[str, list[str]]) -> None:
    assert set(errors) == {"s.text", "s.late", "s.parquet"}
    assert errors["s.text"][0] == errors["s.late"][0] == "bad_file"
    assert "a row is longer than" in errors["s.text"][1]
    assert "row 2000001" in errors["s.late"][1].replace(",", "")
    assert errors["s.parquet"][0] == "file_too_large"
    assert "column v take" in errors["s.parquet"][1]
    assert zone.rows("good") == [(1, "x")]


def test_a_large_field_stops_its_table_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "ROW_LIMIT", MIB)
    monkeypatch.setattr(bounded, "PAGE_BYTES", MIB)
    zone = landed(tmp_path / "root", 4 * MIB)
    errors = [error for error in zone.apply().errors if isinstance(error, TableError)]
    check(zone, {error.table or "": [error.code, str(error)] for error in errors})


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_a_field_of_two_gigabytes_takes_less_than_one_of_memory(tmp_path: Path) -> None:
    """Writes 4 GB, and takes about 8 GB of memory to make the Parquet file."""
    zone = landed(tmp_path / "root", 2 * GIB - MIB)
    tree = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", APPLY, str(zone.root)],
        env={**os.environ, "PYTHONPATH": tree},
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    check(zone, found["errors"])
    assert found["mebibytes"] < 1_024
