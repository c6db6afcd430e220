"""Landing zones on disk for the linter: a clean one, to which a test does one thing."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from mirrorlake.lint import Profile, Reading, Result, Version, lint, of_path
from mirrorlake.model.change import MARKER_COLUMN
from tests.landing.files import encoded

COLUMNS = [
    {"Name": "id", "DataType": "Int32", "IsNullable": False},
    {"Name": "name", "DataType": "String", "IsNullable": True},
]
TEXT = {
    "keyColumns": ["id"],
    "SchemaDefinition": {"Columns": COLUMNS},
    "FileFormat": "CSV",
    "FileExtension": "csv",
    "FileFormatTypeProperties": {"FirstRowAsHeader": True, "RowSeparator": "\r\n"},
}
"""Metadata of a table of text files."""

V1, V2 = Profile(Version.V1), Profile(Version.V2)
STRICT = Profile(Version.V2, strict=True)

PARTNER = {
    "partnerName": "contoso",
    "sourceInfo": {"sourceType": "SQL", "sourceVersion": "2019", "additionalInformation": {}},
}
ROWS = {"id": [1, 2, 3], "name": ["a", "b", "c"], "city": ["x", "y", "z"]}
CHANGES = {"id": [1, 2, 4], "name": ["A", None, "d"], "city": ["x", None, "w"]}
MARKERS = [1, 2, 0]


class Zone:
    """A root with a landing zone. Paths are below the landing zone."""

    def __init__(self, root: Path, location: str = "Files/LandingZone") -> None:
        self.root = root
        self.path = root / location
        self.path.mkdir(parents=True)

    def put(self, path: str, content: bytes | str = b"") -> Path:
        file = self.path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    def describe(self, table: str, **members: Any) -> Path:
        return self.put(f"{table}/_metadata.json", json.dumps(members))

    def land(self, table: str, number: int, columns: Any, **options: Any) -> Path:
        return self.put(f"{table}/{number:020d}.parquet", encoded(columns, **options))

    def change(self, table: str, number: int, columns: Any, markers: Any = MARKERS) -> Path:
        return self.land(table, number, marked(columns, markers))

    def write(self, table: str, number: int, *lines: str, extension: str = "csv") -> Path:
        content = "".join(f"{line}\r\n" for line in lines)
        return self.put(f"{table}/{number:020d}.{extension}", content)

    def lint(self, profile: Profile = V2, reading: Reading | None = None) -> Result:
        return lint(of_path(self.root), profile, reading or Reading())


def marked(columns: Mapping[str, Any], markers: Any = MARKERS, *, first: bool = False) -> pa.Table:
    """The columns with the marker, last as on the v2 page or first as on the v1 page."""
    column = markers if isinstance(markers, pa.Array) else pa.array(markers, pa.int8())
    table = pa.table(dict(columns))
    return table.add_column(0 if first else table.num_columns, MARKER_COLUMN, column)


def clean(root: Path) -> Zone:
    """A zone as the v2 page asks for it."""
    zone = Zone(root)
    zone.put("_partnerEvents.json", json.dumps(PARTNER))
    zone.describe("orders", keyColumns=["id"])
    zone.land("orders", 1, ROWS)
    zone.change("orders", 2, CHANGES)
    zone.describe("Sales.schema/lines", keyColumns=["id"])
    zone.land("Sales.schema/lines", 1, ROWS)
    zone.describe("notes", **TEXT)
    zone.write("notes", 1, "id,name,__rowMarker__", "1,Anna,0", '2,"Berg, B.",0')
    zone.write("notes", 2, "id,name,__rowMarker__", "1,Ann,1", "2,,2")
    return zone


def clean_v1(root: Path) -> Zone:
    """A zone as the v1 page asks for it."""
    zone = Zone(root, "LandingZone")
    zone.describe("orders", keyColumns=["id"])
    zone.land("orders", 1, marked(ROWS, [0, 0, 0], first=True))
    zone.land("orders", 2, marked(CHANGES, first=True))
    return zone


def keys(result: Result) -> set[str]:
    """The rules that were broken."""
    return {finding.rule.key for finding in result.findings}


def tree(root: Path) -> dict[str, tuple[Any, ...]]:
    """All below a folder, with what a change would change."""
    found = {}
    for folder, folders, files in os.walk(root):
        for name in [".", *folders, *files]:
            location = Path(folder) / name
            facts = location.lstat()
            content = location.read_bytes() if location.is_file() else b""
            found[str(location)] = (facts.st_mtime_ns, facts.st_mode, facts.st_ino, content)
    return found
