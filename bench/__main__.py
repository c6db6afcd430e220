"""`python -m bench`: compare, print, and write `build/bench.json`."""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench import history
from bench.result import Result, show, write
from bench.rounds import Plan, say
from mirrorlake.cli import logs

SCENARIOS: Mapping[str, str] = {
    "load": "initial load, PostgreSQL to Delta, against dlt and against COPY",
    "capture": "slot to landed files, against Debezium's engine and against the raw drain",
    "apply": "60,000, 1,000 and a million changes to 5 million rows, against MERGE and delta-rs",
    "history": "type 2 history, 100,000 changes to 5 million rows, against a two-step MERGE",
    "feed": "the change feed: read, of a long log, and followed; against delta-rs and Spark",
    "cycle": "50 tables x 200 changes in one cycle, against plain Delta MERGE in 4 threads",
    "scale": "the same changes to 50 million rows and to 5 million",
    "landed": "landed files of 5 million rows to Delta, against Spark's write of plain Parquet",
    "fold": "2 million changes to the last row of each key, against Spark's own window",
    "checksums": "a data file written, read and searched with checksums of its pages, and without",
    "cluster": "1,000,000 changes to 5 million rows, two workers of one core against one",
    "events": "columns to event files of Avro and of JSON, against fastavro and orjson",
    "event_tables": "a million events to 5 million rows, against Spark; late events; old files",
    "text": "1 GB of delimited text to typed columns, against Spark's own reader",
    "files": "a batch of 1,000 keys on a table of 100,000 files: time and memory",
    "scan": "a look at 1,000 table folders of which 10 have new files",
    "freshness": "commit to readable, while ten tables are changed; CPU and memory of it",
    "backfill": "a backfill of 5 million rows while 1,000 changes a second flow, against the load",
    "many": "1,000 tables with 20 active per second, alone and beside a busy one",
    "soak": "small batches for a minute, and what could grow with them",
    "serve": "answers of the API and the page with 100 streams of 100 tables; ten idle streams",
    "start": "commands that end soon: nothing to do, and one small file",
    "serve_throughput": "a mirror in a service whose page and metrics are read, against `run`",
    "memory": "peak of the capture process for 10 million rows in one transaction",
}
OUTPUT = Path("build/bench.json")


def main() -> int:
    """Exit code 1 when contents differ, and with --strict when a target is missed."""
    options = _options()
    if options.list:
        for name, about in SCENARIOS.items():
            print(f"{name:<10} {about}")
        return 0
    logs.configure(quiet=True)
    results = run([options.only] if options.only else list(SCENARIOS), options)
    write(results, options.output)
    if options.keep:
        history.keep(results, options.rounds, options.keep)
    show(results, options.rounds, options.scale)
    print(f"\nWritten to {options.output}")
    differ = any(result.equal is False for result in results)
    missed = any(result.misses for result in results)
    return int(differ or (missed and options.strict))


def run(names: Sequence[str], options: argparse.Namespace) -> list[Result]:
    results: list[Result] = []
    for name in names:
        say(f"{name}: {SCENARIOS[name]}")
        scenario = importlib.import_module(f"bench.scenarios.{name}")
        with tempfile.TemporaryDirectory(prefix=f"mirrorlake-bench-{name}-") as folder:
            results += scenario.run(Plan(options.rounds, options.scale, Path(folder)))
    return results


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--only", choices=SCENARIOS, help="one comparison instead of all")
    parser.add_argument("--rounds", type=_positive, default=3, help="rounds that count (3)")
    parser.add_argument("--scale", type=float, default=1.0, help="a factor on all sizes (1.0)")
    parser.add_argument("--strict", action="store_true", help="exit code 1 for a missed target")
    parser.add_argument("--output", type=Path, default=OUTPUT, help=f"where to write ({OUTPUT})")
    parser.add_argument(
        "--keep", metavar="MACHINE", help="append to bench/history.jsonl, as found on this machine"
    )
    parser.add_argument("--list", action="store_true", help="say what there is, and stop")
    found = parser.parse_args()
    if found.keep and found.scale != 1.0:
        parser.error("--keep is for results of the full size")
    return found


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
