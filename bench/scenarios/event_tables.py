"""Event files to a Delta table, by the consumer that `mirrorlake run` is.

- A million events of half as many keys, in ten files of Avro, into a table of 5 million rows,
  against plain Spark, which reads the same files into a copy of the table. Equal: the rows.
- A batch of 1,000 late events, against the same changes from a landing zone. Both are warm.
- A cycle in a bucket of 1,000,000 old files that has one new file, against one of 1,000.

Neither side of the first two starts a JVM in its seconds, and ours needs none.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from bench import equality, event_files
from bench.peers import spark_events
from bench.result import Result
from bench.rounds import Plan, cached, medians, say, timed
from bench.scenarios.apply import linked
from bench.spark import session
from bench.zone import Zone, changes
from mirrorlake.app.mirror import Mirror
from mirrorlake.apply.events.batches.divided import BATCH_FILES
from mirrorlake.apply.events.consumer import EventConsumer
from mirrorlake.apply.events.journal import FileJournals, ReadFile
from mirrorlake.apply.events.listing import EventFiles
from mirrorlake.apply.events.settings import EventInput
from mirrorlake.config import Project
from mirrorlake.errors import TableError
from mirrorlake.model.clock import WallClock
from mirrorlake.model.crash_points import no_crash
from mirrorlake.model.landed import format_time
from mirrorlake.model.table import TableId
from mirrorlake.storage.local import LocalStore

ROWS = 5_000_000
EVENTS = 1_000_000
OTHERS = 100_000
"""Events of the same table that each side applies just before. So many that the memory of both was
used a moment ago: some machines take what was not for some seconds, as while the other side works.
"""
LATE = 1_000
LEAST = 150_000
"""Events a second."""
TARGET = 5.0
AT_MOST = 1.5
"""How much longer late events may take than the same changes from a landing zone."""
OLD, FEW = 1_000_000, 1_000
CYCLES = 20
"""In each round; one alone is too short to trust."""
NEARLY = 0.8
"""How many times as fast a cycle with a million old files must be at least, where it shall be as
fast as one with a thousand."""
_DAYS, _DAYS_AGO = 3_000, 40
"""The old files are of so many days, the last of which are so long ago."""
_TABLE = "public/payments"


def run(plan: Plan) -> list[Result]:
    with session(packages=[spark_events.PACKAGE]) as spark:
        prepared = _Prepared(plan)
        return [
            _throughput(plan, spark, prepared),
            _late(plan, spark, prepared),
            _old_files(plan),
        ]


class _Told:
    def applied(self, *_what: object) -> None:
        pass

    def stopped(self, _table: TableId, error: TableError) -> None:
        raise error


def _consumer(root: Path, bucket: Path) -> EventConsumer:
    return EventConsumer(
        LocalStore(root),
        LocalStore(bucket),
        EventInput(bucket),
        WallClock(),
        _Told(),
        reached=no_crash,
        check=lambda: None,
    )


class _Prepared:
    """The table as both sides have it before the events, and the files of these."""

    def __init__(self, plan: Plan) -> None:
        say("  writing the event files, and the table that they change")
        self.rows, self.count = plan.sized(ROWS), plan.sized(EVENTS)
        self.bucket, self.root = plan.folder / "bucket", plan.folder / "prepared"
        event_files.backfill(self.bucket, self.rows)
        _consumer(self.root, self.bucket).cycle()
        self.events = event_files.changes(
            plan.folder / "many", self.rows, self.count, salt=2, keys=self.count // 2
        )
        # Of an earlier hour: whoever comes last wins for Spark alone.
        self.others = event_files.changes(
            plan.folder / "others", self.rows, plan.sized(OTHERS), salt=1
        )
        self.small = event_files.changes(plan.folder / "small", self.rows, LATE, salt=1)
        self.late = event_files.changes(plan.folder / "late", self.rows, LATE, salt=3)

    def copy(self, target: Path) -> tuple[Path, Path]:
        """Root and bucket, to work on."""
        root, bucket = target / "root", target / "bucket"
        shutil.copytree(self.root, root, copy_function=linked)
        shutil.copytree(self.bucket, bucket, copy_function=linked_events)
        return root, bucket


def linked_events(source: str, target: str) -> None:
    cached(source)
    Path(target).hardlink_to(source)


def put(files: list[Path], bucket: Path) -> None:
    """Let files appear in the bucket."""
    for file in files:
        target = bucket / Path(*file.parts[-7:])
        target.parent.mkdir(parents=True, exist_ok=True)
        linked_events(str(file), str(target))


def _throughput(plan: Plan, spark: SparkSession, prepared: _Prepared) -> Result:
    say(f"  {prepared.count:,} events")
    found: dict[str, equality.Fingerprint] = {}

    def look(side: str, number: int, table: Path) -> None:
        if number == plan.rounds:
            found[side] = equality.fingerprint(equality.delta(table))

    def ours(number: int) -> float:
        root, bucket = prepared.copy(plan.folder / f"ours-{number}")
        consumer = _consumer(root, bucket)
        put(prepared.others, bucket)
        consumer.cycle()  # so that it has seen the table
        put(prepared.events, bucket)
        with timed() as watch:
            consumer.cycle()
        look("ours", number, root / "Tables" / _TABLE)
        shutil.rmtree(root.parent)
        return watch.seconds

    def theirs(number: int) -> float:
        root, _bucket = prepared.copy(plan.folder / f"spark-{number}")
        table = root / "Tables" / _TABLE
        spark_events.merge(spark, table, prepared.others)
        for file in prepared.events:
            cached(file)
        seconds = spark_events.merge(spark, table, prepared.events)
        look(spark_events.NAME, number, table)
        shutil.rmtree(root.parent)
        return seconds

    sides: dict[str, Callable[[int], float]] = {"ours": ours, spark_events.NAME: theirs}
    seconds = medians(plan, sides)
    rate = round(prepared.count / seconds["ours"])
    return Result(
        "event-tables",
        seconds["ours"],
        spark_events.NAME,
        seconds[spark_events.NAME],
        target=TARGET,
        equal=found["ours"] == found[spark_events.NAME],
        over="" if rate >= LEAST else f"{rate:,} events a second, {LEAST:,} are the target",
        more={"rows": prepared.rows, "events": prepared.count, "events_per_second": rate},
    )


def _late(plan: Plan, spark: SparkSession, prepared: _Prepared) -> Result:
    say(f"  {LATE:,} late events")
    zone_root = plan.folder / "zone"
    zone = Zone(zone_root)
    landed = len(zone.load(prepared.rows))
    small = changes(plan.folder / "small.parquet", prepared.rows, LATE, salt=1)
    large = changes(plan.folder / "late.parquet", prepared.rows, LATE, salt=3)
    with Mirror(Project.of_root(zone_root), spark=spark) as mirror:
        mirror.apply_once()

    def ours(number: int) -> float:
        root, bucket = prepared.copy(plan.folder / f"late-{number}")
        consumer = _consumer(root, bucket)
        put(prepared.small, bucket)
        consumer.cycle()
        put(prepared.late, bucket)
        with timed() as watch:
            consumer.cycle()
        shutil.rmtree(root.parent)
        return watch.seconds

    def from_zone(number: int) -> float:
        root = plan.folder / f"zone-{number}"
        shutil.copytree(zone_root, root, copy_function=linked)
        copied = Zone(root)
        with Mirror(Project.of_root(root), spark=spark) as mirror:
            copied.land(landed + 1, small)
            mirror.apply_once()
            copied.land(landed + 2, large)
            with timed() as watch:
                mirror.apply_once()
        shutil.rmtree(root)
        return watch.seconds

    peer = "from a landing zone"
    seconds = medians(plan, {"ours": ours, peer: from_zone})
    return Result(
        "event-tables-late",
        seconds["ours"],
        peer,
        seconds[peer],
        target=1 / AT_MOST,
        more={"rows": prepared.rows, "events": LATE},
    )


def _old_files(plan: Plan) -> Result:
    many, few = plan.sized(OLD, FEW), FEW
    say(f"  a cycle with {many:,} old files")
    cycles = {count: _Bucket(plan.folder / f"old-{count}", count) for count in (many, few)}
    peer = f"{few:,} old files"
    sides: dict[str, Callable[[int], float]] = {"ours": cycles[many].cycle, peer: cycles[few].cycle}
    seconds = medians(plan, sides)
    return Result(
        "event-tables-bucket",
        seconds["ours"],
        peer,
        seconds[peer],
        target=NEARLY,
        more={"old_files": many},
    )


class _Bucket:
    """A bucket with old files, in minutes of a thousand each, over years.

    What the consumer remembers of them is as one pass over all of them leaves it: it is recorded by
    the journal itself, a batch of the consumer at a time, and the cycles are those right after that
    pass, by a process that was started anew. Only their events are not read, which would take an
    hour, and of which nothing but the rows of the table would remain.
    """

    def __init__(self, folder: Path, count: int) -> None:
        self._bucket, root = folder / "bucket", folder / "root"
        (template,) = event_files.changes(folder / "one", 10, 10, salt=1)
        self._content = template.read_bytes()
        now = datetime.now(UTC)
        began = now - timedelta(days=_DAYS_AGO + _DAYS)
        for first in range(0, count, FEW):
            minute = self._minute(began + timedelta(days=_DAYS * first / count))
            minute.mkdir(parents=True)
            # Links, for room; file systems have a maximum of links to one file.
            (minute / "0.avro").write_bytes(self._content)
            for number in range(1, FEW):
                (minute / f"{number}.avro").hardlink_to(minute / "0.avro")
        self._record(LocalStore(root), f"{now - timedelta(days=3):%Y%m%d}")
        self._consumer = _consumer(root, self._bucket)

    def _record(self, root: LocalStore, horizon: str) -> None:
        """Let the journal record all files as applied, as at the end of the first pass."""
        settings, now = EventInput(self._bucket), format_time(datetime.now(UTC))
        files = list(EventFiles(LocalStore(self._bucket), settings).list(""))
        journals = FileJournals(root)
        journal = journals.read()
        for first in range(0, len(files), BATCH_FILES):
            batch = files[first : first + BATCH_FILES]
            read = [ReadFile(file.path, file.etag, file.minute, time=now) for file in batch]
            is_last = first + BATCH_FILES >= len(files)
            journal = journals.add(journal, read, horizon if is_last else "", lambda: horizon)

    def _minute(self, moment: datetime) -> Path:
        return self._bucket / "public_payments" / f"{moment:%Y/%m/%d/%H/%M}"

    def cycle(self, number: int) -> float:
        minute = self._minute(datetime.now(UTC))
        minute.mkdir(parents=True, exist_ok=True)
        seconds = 0.0
        for one in range(CYCLES):
            (minute / f"new-{number}-{one}.avro").write_bytes(self._content)
            with timed() as watch:
                found = self._consumer.cycle()
            assert found == 1
            seconds += watch.seconds
        return seconds / CYCLES
