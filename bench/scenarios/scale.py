"""Whether the cost of a batch follows the batch: the same changes to 5 and to 50 million rows.

Each side is `apply --once` on a landing zone with one new file: 80 % updates, 18 % inserts, 2 %
deletions, one change per key; clustered keys follow each other, random ones lie anywhere. The
batches of all rounds go into the same two tables, made by a load of files of 625,000 rows. Batches
of random keys come first, uncounted, until every file has its index of keys. Files are not
compacted meanwhile: that is work of its own, between batches, and a matter of its own.

A result compares the large table ("ours") with the small one ("peer"), so the least ratio is one
divided by how many times as much the large one may cost. Content: DuckDB replays all landed files,
and both tables must hold the same rows.
"""

from __future__ import annotations

import dataclasses
import functools
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
from pyspark.sql import SparkSession

from bench import equality
from bench.result import Result
from bench.rounds import Plan, medians, say, timed
from bench.spark import session
from mirrorlake.app.mirror import Mirror
from mirrorlake.config import Project
from mirrorlake.delta.lookup import key_index
from mirrorlake.landing.metadata import Metadata, encode
from mirrorlake.model.change import MARKER_COLUMN, Marker
from mirrorlake.model.landed import FileKind, FileName, Footer

SMALL, LARGE = 5_000_000, 50_000_000
ROWS_PER_FILE = 625_000
WARMING = 1_000
MOST_WARMING = 40

LIMITS = {
    ("clustered", 60_000): 1.5,
    ("random", 1_000): 3.0,
    ("random", 60_000): 5.0,
}
"""How many times as much the large table may cost."""

_ROW = """
    g::bigint as id, md5(g::varchar) as reference,
    ((g * 31 % 1000000) / 100.0 + {salt})::decimal(12, 2) as amount,
    timestamptz '2020-01-01 00:00:00.123456+00' + to_seconds(g % 100000000) as created_at,
    (g % 9973)::integer as status,
    case when g % 4 = 0 then null else 'Paid by transfer no. ' || g || ', "as agreed"' end as note
"""
_COLUMNS = ["id", "reference", "amount", "epoch_us(created_at)", "status", "note"]


def run(plan: Plan) -> list[Result]:
    with session() as spark:
        small = _Table(plan, spark, "small", plan.sized(SMALL))
        large = _Table(plan, spark, "large", plan.sized(LARGE))
        for table in (small, large):
            table.prepare()
        sides: dict[str, Callable[[int], float]] = {}
        for kind, count in LIMITS:
            for table in (small, large):
                side = functools.partial(table.apply, kind, plan.sized(count))
                sides[f"{table.name} {kind} {count}"] = side
        seconds = medians(plan, sides)
        equal = all(table.is_right() for table in (small, large))
    return [
        Result(
            "scale",
            seconds[f"large {kind} {count}"],
            f"small table, {count:,} {kind}",
            seconds[f"small {kind} {count}"],
            target=1 / limit,
            equal=equal,
            more={"rows": plan.sized(LARGE), "of": plan.sized(SMALL), "changes": count},
        )
        for (kind, count), limit in LIMITS.items()
    ]


class _Table:
    """A mirrored table of so many rows, and the files that were landed for it."""

    def __init__(self, plan: Plan, spark: SparkSession, name: str, rows: int) -> None:
        self.name, self._spark, self._rows = name, spark, rows
        self._root, self._landed = plan.folder / name, plan.folder / f"{name}-landed"
        self._files: list[Path] = []
        project = Project.of_root(self._root)
        mirror = dataclasses.replace(project.mirror, compaction=False)
        self._project = dataclasses.replace(project, mirror=mirror)

    def prepare(self) -> None:
        say(f"  preparing the table of {self._rows:,} rows")
        self._folder.mkdir(parents=True)
        self._landed.mkdir()
        (self._folder / "_metadata.json").write_bytes(encode(Metadata(key_columns=("id",))))
        stream = str(uuid.uuid4())
        for first, last in self._pieces():
            footer = Footer(stream, FileKind.LOAD, "0/1:0", "0/1:0", complete=last == self._rows)
            query = f"select {_ROW.format(salt=0)} from range({first}, {last + 1}) r(g)"
            self._land(query, footer)
        self._mirrored()
        for _ in range(MOST_WARMING):
            self.apply("random", WARMING, 0)
            if len(list((self._table / key_index.FOLDER).iterdir())) >= len(list(self._pieces())):
                break

    def apply(self, kind: str, count: int, _round: int) -> float:
        self._land(self._changes(kind, count))
        with timed() as watch:
            self._mirrored()
        return watch.seconds

    def is_right(self) -> bool:
        """Whether the table holds what the landed files say, each key as its last file has it."""
        changed = f"read_parquet('{self._landed}/changes-*', filename = true)"
        loaded = f"read_parquet('{self._landed}/load-*')"
        expected = f"""(
            with last as (select id, arg_max({MARKER_COLUMN}, filename) as marker,
                                 max(filename) as file from {changed} group by id)
            select id, reference, amount, created_at, status, note from {loaded}
                where id not in (select id from last)
            union all
            select c.id, c.reference, c.amount, c.created_at, c.status, c.note
                from {changed} c join last on c.id = last.id and c.filename = last.file
                where marker <> {int(Marker.DELETE)})"""
        found = equality.fingerprint(equality.delta(self._table), _COLUMNS)
        return found == equality.fingerprint(expected, _COLUMNS)

    @property
    def _folder(self) -> Path:
        return self._root / "Files/LandingZone/ledger"

    @property
    def _table(self) -> Path:
        return self._root / "Tables/ledger"

    def _pieces(self) -> Iterator[tuple[int, int]]:
        for first in range(1, self._rows + 1, ROWS_PER_FILE):
            yield first, min(first + ROWS_PER_FILE - 1, self._rows)

    def _changes(self, kind: str, count: int) -> str:
        """One change per key; no two files insert the same keys."""
        salt = len(self._files)
        updates, deletions = count * 80 // 100, count * 2 // 100
        old, new = updates + deletions, count - updates - deletions
        if kind == "random":
            # A key that is drawn twice is kept once.
            key = f"(1 + hash(r.g * 1000003 + {salt}) % {self._rows})::bigint"
            drawn = f"select distinct {key} as g from range({old * 3}) r(g) limit {old}"
        else:
            first = 1 + salt * 7_919_000 % max(self._rows - old, 1)
            drawn = f"select * from range({first}, {first + old}) r(g)"
        inserted = self._rows + 1 + salt * 1_000_000
        return f"""
            with drawn as ({drawn}), numbered as (
                select g, row_number() over (order by hash(g)) as place from drawn
            ), keys as (
                select g, case when place <= {updates} then {int(Marker.UPDATE)}
                               else {int(Marker.DELETE)} end::tinyint as marker from numbered
                union all
                select g, {int(Marker.INSERT)}::tinyint
                from range({inserted}, {inserted + new}) r(g)
            )
            select {_ROW.format(salt=salt)}, marker as {MARKER_COLUMN} from keys order by hash(id)
        """

    def _land(self, query: str, footer: Footer | None = None) -> None:
        """Publish a file; it is kept, to be replayed."""
        number = len(self._files) + 1
        path = self._landed / f"{'load' if footer else 'changes'}-{number:06}.parquet"
        said = ", ".join(f"'{k}': '{v}'" for k, v in (footer.encode() if footer else {}).items())
        noted = f", kv_metadata {{{said}}}" if said else ""
        connection = duckdb.connect()
        connection.execute("set TimeZone = 'UTC'")
        connection.execute(f"copy ({query}) to '{path}' (format parquet, compression zstd{noted})")
        (self._folder / str(FileName(number))).hardlink_to(path)
        self._files.append(path)

    def _mirrored(self) -> None:
        with Mirror(self._project, spark=self._spark) as mirror:
            report = mirror.apply_once()
        if report.errors:
            raise report.errors[0]
