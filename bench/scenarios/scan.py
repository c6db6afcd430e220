"""A look at a landing zone of a thousand tables, of which ten have a new file.

What each cycle of the mirror begins with: every folder is listed, and what cannot have changed is
not read again. Nothing is compared; the limit is a second on a local file system, and on objects a
request for each thousand keys. The S3 is a simple one on this machine, which takes nearly all of
the seconds for itself: its requests are what counts.
"""

from __future__ import annotations

import itertools
import math
import statistics
from pathlib import Path

from tests.objects import s3_server

from bench.result import Result
from bench.rounds import Plan, timed
from mirrorlake import root
from mirrorlake.landing import layout
from mirrorlake.landing.scan import Scanner
from mirrorlake.storage.local import LocalStore
from mirrorlake.storage.tree import PAGE
from mirrorlake.storage.urls import open_store

TABLES = 1_000
FILES = 5
BUSY = 10
LIMIT = 1.0
"""Seconds."""

LOOKS = 5
"""Looks in each round; one alone is too short to trust."""


def run(plan: Plan) -> list[Result]:
    return [_folders(plan), _objects(plan)]


def _folders(plan: Plan) -> Result:
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
    more = {"tables": len(folders)}
    return Result("scan", median, over=over, equal=seen == expected, more=more)


def _objects(plan: Plan) -> Result:
    with s3_server() as server:
        url, tables = server.new_bucket(), plan.sized(TABLES)
        folders = [
            f"{url}/{root.LANDING}/s{number % 10}.schema/t{number}" for number in range(tables)
        ]
        for folder in folders:
            server.put(f"{folder}/{layout.METADATA}", b'{"keyColumns": ["id"]}')
            server.fill(folder, FILES)
            server.fill(f"{folder}/{layout.CLEANUP}", FILES)
        scanner = Scanner(open_store(url, server.options))
        scanner.scan()
        seconds, asked, seen = [], [], []
        for number in range(plan.rounds):
            for folder in folders[:BUSY]:
                server.put(f"{folder}/{FILES + 1 + number:020d}.parquet", b"PAR1")
            server.requests.clear()
            with timed() as watch:
                scans = scanner.scan()
            seconds.append(watch.seconds)
            asked.append(sum(request.startswith("LIST") for request in server.requests))
            seen.append(sum(len(scan.files) for scan in scans))
    busy = min(BUSY, tables)
    expected = [FILES * tables + busy * (number + 1) for number in range(plan.rounds)]
    most = math.ceil(tables * (2 * FILES + 1) / PAGE) + 1
    median = statistics.median(asked)
    over = f"a look takes {median:g} requests, the limit is {most}" if median > most else ""
    return Result(
        "scan on objects",
        None,
        over=over,
        equal=seen == expected,
        more={"tables": tables, "requests": median, "server_seconds": statistics.median(seconds)},
    )


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
