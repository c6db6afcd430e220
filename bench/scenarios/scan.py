"""A look at a landing zone of a thousand tables, of which ten have a new file.

What each cycle of the mirror begins with: every folder is listed, and what cannot have changed is
not read again. Nothing is compared; the limit is a second on a local file system.
"""

from __future__ import annotations

import itertools
import statistics
from pathlib import Path

from bench.result import Result
from bench.rounds import Plan, timed
from mirrorlake.landing.scan import Scanner
from mirrorlake.storage.local import LocalStore

TABLES = 1_000
FILES = 5
BUSY = 10
LIMIT = 1.0
"""Seconds."""

LOOKS = 5
"""Looks in each round; one alone is too short to trust."""


def run(plan: Plan) -> list[Result]:
    folders = _filled(plan.folder / "Files/LandingZone", plan.sized(TABLES))
    scanner = Scanner(LocalStore(plan.folder))
    scanner.scan()
    seconds, seen = [], []
    for number in range(plan.rounds * LOOKS):
        for folder in itertools.islice(itertools.cycle(folders), number, number + BUSY):
            _land(folder)
        with timed() as watch:
            scans = scanner.scan()
        seconds.append(watch.seconds)
        seen.append(sum(len(scan.files) for scan in scans))
    median = statistics.median(seconds)
    expected = [FILES * len(folders) + BUSY * (number + 1) for number in range(len(seen))]
    over = f"a look takes {median:.2f} s, the limit is {LIMIT:g} s" if median > LIMIT else ""
    return [
        Result("scan", median, over=over, equal=seen == expected, more={"tables": len(folders)})
    ]


def _filled(zone: Path, tables: int) -> list[Path]:
    folders = [zone / f"s{number % 10}.schema" / f"t{number}" for number in range(tables)]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "_metadata.json").write_text('{"keyColumns": ["id"]}')
        for _ in range(FILES):
            _land(folder)
    return folders


def _land(folder: Path) -> None:
    """One more file. A scan reads names; what is in a file is for later."""
    number = sum(1 for _ in folder.glob("*.parquet")) + 1
    (folder / f"{number:020d}.parquet").write_bytes(b"PAR1")
