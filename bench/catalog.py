"""What each line of the report is about: what is done, and what had run before it, uncounted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """what: is timed, with its full size; warm: what has run before; rounds: with how many they are
    where it is not the usual number, after one uncounted round; times: how many rounds it has for
    each usual one; note: what the reader of the figures has to know of what, and is not kept."""

    what: str
    warm: str
    rounds: str = "{rounds} after 1"
    times: int = 1
    note: str = ""

    def rounds_of(self, rounds: int) -> str:
        return self.rounds.format(rounds=rounds * self.times)


MERGE = "Delta MERGE on Spark"
MERGE_OWN_LAYOUT = f"{MERGE}, its own layout"
DELTA_RS = "delta-rs MERGE"
"""Peers of several lines."""

_INTO = "into 5,000,000 rows"
_SEEN = "Spark; the files; 1,000 other changes to the same table"
_SPARK = "Spark"
ONCE = "1"

CATALOG: Mapping[str, Entry] = {
    "apply-1k": Entry(f"1,000 changes {_INTO}", _SEEN),
    "apply": Entry(f"60,000 changes {_INTO}", _SEEN),
    "apply-1m": Entry(f"1,000,000 changes {_INTO}", _SEEN),
    "apply-first": Entry(
        f"1,000 changes {_INTO}, the first batch on the table", "Spark; the files"
    ),
    "apply-uuid": Entry(f"60,000 changes {_INTO}, with UUIDs as the key", _SEEN),
    "apply-texts": Entry(f"60,000 changes {_INTO}, with two texts as the key", _SEEN),
    "cycle": Entry(
        "200 changes in each of 50 tables of 20,000 rows",
        "Spark; the files; 200 other changes to each",
    ),
    "files": Entry(
        "1,000 changes to a table of 100,000 files and 1,000,000 rows",
        "Spark; the log is read",
        note="all rows are in one file; statistics in the log exclude the other 99,999, which do "
        "not exist",
    ),
    "history": Entry(
        "100,000 changes into a type 2 history of 5,000,000 current rows",
        "Spark; the files; 1,000 other changes to the same history",
    ),
    "feed": Entry(
        "the feed of 500 versions of 1,000 changes, read as Arrow",
        "Spark; the files; our row cache has the rows",
    ),
    "feed-first": Entry("the same with an empty row cache", "Spark; the files"),
    "feed-log": Entry(
        "the last 10 versions of a table with 100,000 versions, opened anew", "the same"
    ),
    "feed-tail": Entry(
        "from the file of a commit to the rows in a consumer's hand, p99 of 200 commits",
        "20 commits",
        ONCE,
    ),
    "load": Entry("5,000,000 rows, from PostgreSQL to a Delta table", "Spark; PostgreSQL"),
    "landed": Entry("5,000,000 landed rows to a Delta table", _SPARK),
    "capture": Entry(
        "1,000,000 changes, from the slot to landed files", "PostgreSQL; the JVM of Debezium"
    ),
    "events-avro": Entry("150,000 rows to event files of Avro, CPU seconds", "the libraries"),
    "events-json": Entry("150,000 rows to event files of JSON, CPU seconds", "the libraries"),
    "event-tables": Entry(
        f"1,000,000 events in ten files of Avro {_INTO}",
        "Spark; the files; 100,000 other events of the same table",
    ),
    "event-tables-late": Entry(
        f"1,000 late events {_INTO}", "Spark; the files; 1,000 others on both sides"
    ),
    "event-tables-bucket": Entry(
        "a cycle with one new event file in a bucket of 1,000,000 old ones", "one cycle"
    ),
    "text": Entry("1 GB of delimited text into typed columns, one file", _SPARK),
    "text-8": Entry("1 GB of delimited text into typed columns, eight files", _SPARK),
    "fold": Entry("2,000,000 changes to the last row of each of 600,000 keys", _SPARK),
    "checksums-write": Entry(
        "a data file of 625,000 rows written with checksums of its pages, CPU seconds", "the code"
    ),
    "checksums-read": Entry("the same file read and verified, CPU seconds", "the file"),
    "checksums-search": Entry(
        "1,000 keys searched in the same file with DuckDB, its pages verified before, CPU seconds",
        "the file",
    ),
    "checksums-sql": Entry(
        "`mirrorlake sql` on two columns of the same file, their pages verified before, CPU "
        "seconds",
        "the file",
    ),
    "cluster": Entry(
        f"1,000,000 changes {_INTO}, two workers, each pinned to one core",
        _SEEN,
        "{rounds} after 3",
        times=5,
    ),
    "scale": Entry(
        "changes into 50,000,000 rows", "Spark; the table has all indexes, and other batches"
    ),
    "freshness": Entry(
        "commit in PostgreSQL, with `fsync` on, to readable in Delta: ten tables of 100,000 rows, "
        "1,000 changes a second for 180 s, database and workload on the same cores",
        "20 s of the same",
        ONCE,
    ),
    "fresh-10k": Entry("the same at 10,000 changes a second", "20 s of the same", ONCE),
    "backfill": Entry(
        "5,000,000 rows read again, of which none differs, while ten other tables of 100,000 rows "
        "are changed at 1,000 rows a second",
        "20 s of the changes; one backfill; one load, with Spark and PostgreSQL",
    ),
    "many": Entry(
        "landed to readable, 1,000 tables of which 20 change each second", "10 s of the same", ONCE
    ),
    "many+busy": Entry(
        "the same next to a table with batches of 500,000 changes", "60 s of the same", ONCE
    ),
    "scan": Entry("a scan of 1,000 table folders of which 10 have new files", "one scan"),
    "scan on objects": Entry("the same on S3", "one scan"),
    "memory": Entry("capture of 10,000,000 rows in one transaction", "PostgreSQL", ONCE),
    "soak": Entry("small batches for a minute, the end and the beginning", _SPARK, ONCE),
    "soak of 3600 s": Entry("a small batch every second for an hour", _SPARK, ONCE),
    "start-idle": Entry("`apply --once` with nothing to apply", "the files on disk"),
    "start-run": Entry("`run --once` with nothing new in PostgreSQL", "PostgreSQL"),
    "start-cold": Entry("`apply --once` of a file of 1,000 rows, the first", "the files on disk"),
    "serve-api": Entry(
        "the slowest kind of request with 100 streams of 100 objects, p95", "the service", ONCE
    ),
    "serve-overview": Entry("the page of 100 streams of 100 tables, p95", "the service", ONCE),
    "serve-throughput": Entry(
        "rows in a burst, in a service whose page and metrics are read every second",
        "both mirrors; one burst",
    ),
    "serve-idle": Entry(
        "ten streams in which nothing changes", "70 s in which the log stands still", ONCE
    ),
}
