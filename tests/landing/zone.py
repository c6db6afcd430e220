"""A landing zone in memory, for tests: files in, scans out."""

from __future__ import annotations

import json

from mirrorlake.landing.scan import Scanner, TableScan
from mirrorlake.model.landed import FileName
from tests.doubles.memory_store import MemoryStore

ZONE = "Files/LandingZone"
KEYED = b'{"keyColumns": ["id"]}'


def put(store: MemoryStore, *names: str, table: str = "t", content: bytes = b"x") -> None:
    for name in names:
        store.replace(f"{ZONE}/{table}/{name}", content)


def name(number: int, extension: str = "parquet") -> str:
    return str(FileName(number, extension))


def only(scanner: Scanner) -> TableScan:
    (found,) = scanner.scan()
    return found


def numbers(scan: TableScan) -> list[int]:
    return [file.number for file in scan.files]


def ours(table: str, schema: str = "") -> bytes:
    source = {"schema": schema}
    member = {"format": "1", "generation": "g", "table": table, "source": source}
    return json.dumps({"keyColumns": ["id"], "mirrorlake": member}).encode()
