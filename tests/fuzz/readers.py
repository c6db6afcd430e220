"""A landing zone with one table, as the engine takes its files and as the linter looks at them.

Both run in another process (see `apart`): what they take and return is plain.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from mirrorlake.errors import TableError
from mirrorlake.landing import text as delimited
from mirrorlake.landing.parquet import reader as parquet
from mirrorlake.landing.parquet.reader import Inspected, Rows
from mirrorlake.landing.scan import Landed, Scanner, TableScan
from mirrorlake.lint import Reading, lint
from mirrorlake.lint.target import Target
from mirrorlake.mirror.row_checks import RowChecks, check_rows, check_size
from mirrorlake.mirror.schema_evolution import key_columns
from mirrorlake.model.change import Marker
from mirrorlake.storage.store import Store
from tests.doubles.clock import SteppedClock
from tests.doubles.memory_store import MemoryStore

ZONE = "Files/LandingZone"
METADATA, PARTNER = "_metadata.json", "_partnerEvents.json"
KEYED = b'{"keyColumns": ["id"]}'
DEMANDS = RowChecks(file_bytes=64 << 20)
_LONGEST = 4_000
"""Characters of an error that somebody still reads."""

Files = Mapping[str, bytes]
"""What lies in the folder of the table `t`, and `_partnerEvents.json` above it."""


def applied(files: Files, threads: int = 1) -> dict[str, str]:
    """What becomes of each data file in the engine: `rows`, or the code of its error; of a table
    that cannot be read at all only the code of its `_metadata.json`."""
    store = _zone(files)
    scanner = Scanner(store, partitions=True)
    json.dumps(scanner.partner().facts()).encode()
    outcomes: dict[str, str] = {}
    for scan in scanner.scan():
        if scan.error:
            outcomes[METADATA] = outcome_of(scan.error, METADATA)
            continue
        for file in scan.files:
            outcomes[file.base] = _outcome(scan, file, scanner, store, threads)
    return outcomes


def linted(files: Files) -> int:
    """How many errors the linter finds."""
    target = Target(_zone(files), Path("/"), (ZONE,))
    result = lint(target, reading=Reading(everything=True))
    assert not result.unreadable
    for finding in result.findings:
        assert finding.found.isprintable()
        json.dumps(finding.facts(), ensure_ascii=False).encode()
    return result.report.errors


def both(files: Files, threads: int = 1) -> tuple[dict[str, str], int]:
    """What the engine makes of the files, and how many errors the linter finds."""
    return applied(files, threads), linted(files)


def _zone(files: Files) -> Store:
    store = MemoryStore(SteppedClock())
    for name, content in files.items():
        folder = ZONE if name == PARTNER else f"{ZONE}/t"
        store.create(f"{folder}/{name}", content)
    return store


def _outcome(scan: TableScan, file: Landed, scanner: Scanner, store: Store, threads: int) -> str:
    """As the plan and the task do it: looked at, and read where it is not too large."""
    table, key = str(scan.table), scan.metadata.key_columns if scan.metadata else ()
    named = {"table": table, "file": str(file.name)}
    try:
        found = scanner.inspect(scan.table, file)
        check_size(found, DEMANDS, **named)
        for rows in _read(store, file, found, key, named, threads):
            assert len(rows.marker) == rows.data.num_rows
            rows.data.validate(full=True)
            # As the columns of the table are spelled, which are those of its first file.
            own = key_columns(table, key, found.schema, named["file"]) if rows.data.num_rows else ()
            check_rows(rows, key=own, required=(), row_checks=DEMANDS, **named)
    except TableError as error:
        return outcome_of(error, str(file.name))
    return "rows"


def _read(
    store: Store,
    file: Landed,
    found: Inspected,
    key: tuple[str, ...],
    named: Mapping[str, str],
    threads: int,
) -> Iterator[Rows]:
    most = DEMANDS.file_bytes
    with store.open(file.path) as handle:
        given = (handle, file.size, found.schema, Marker.INSERT)
        if file.text is None:
            yield parquet.read(*given, most=most, **named)
        elif threads:
            threaded = {"threads": threads, "most": most}
            yield delimited.read(*given, file.text, key=key, **threaded, **named)
        else:
            yield from delimited.read_blocks(*given, file.text, key=key, about=1_000, **named)


def outcome_of(error: TableError, file: str) -> str:
    """The code of an error that says what is wrong, where, and what a person can do."""
    text = str(error)
    assert error.what, "nothing is said"
    assert error.hint, f"no hint: {text}"
    assert error.file == file, f"no file: {text}"
    assert error.table == "t", f"no table: {text}"
    assert len(text) < _LONGEST, f"{len(text)} characters: {text[:_LONGEST]}"
    json.dumps(error.facts(), ensure_ascii=False).encode()
    return error.code
