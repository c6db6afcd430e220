"""The main job, from nothing to proof: a database under load, mirrored and verified."""

from __future__ import annotations

import contextlib
import multiprocessing
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import psycopg

from mirrorlake.app.mirror import Mirror
from mirrorlake.app.stores import store_of
from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.config import Project
from mirrorlake.demo import shop
from mirrorlake.demo.freshness import Freshness, FreshnessMeter
from mirrorlake.demo.server import EmbeddedServer, signals_held
from mirrorlake.demo.verify import Verdict, verify
from mirrorlake.demo.writer import Writer
from mirrorlake.errors import InternalError
from mirrorlake.landing.cuts import Cuts
from mirrorlake.model.position import Lsn
from mirrorlake.root import LANDING
from mirrorlake.sources.postgresql.settings import PostgresSettings
from mirrorlake.sources.selection import Selection
from mirrorlake.spark.session.spark_session import end_jvm
from mirrorlake.spark.settings import SparkSettings

LOOK_SECONDS = 0.05
PATIENCE_SECONDS = 300.0
"""How long the last changes may take to arrive before the demo gives up."""


class Stage(Protocol):
    """Shows what goes on: `begin` a step, `advance` it, `end` it with what came of it."""

    def begin(self, what: str, total: float | None = None) -> None: ...
    def advance(self, done: float) -> None: ...
    def end(self, outcome: str) -> None: ...


@dataclass(frozen=True, slots=True)
class DemoSettings:
    rows: int = 1_000_000
    seconds: float = 30.0
    rate: int = 2_000  # rows that the shop changes per second at most
    seed: int = 1


@dataclass(frozen=True, slots=True)
class TableResult:
    """One mirrored table at the end."""

    verdict: Verdict
    inserts: int
    updates: int
    deletes: int
    versions: int

    def facts(self) -> dict[str, Any]:
        return {
            "table": self.verdict.table,
            "rows": self.verdict.rows,
            "inserts": self.inserts,
            "updates": self.updates,
            "deletes": self.deletes,
            "versions": self.versions,
            "verified": self.verdict.verified,
        }


@dataclass(frozen=True, slots=True)
class DemoResult:
    """What the demo found. Throughput is until readable in Delta."""

    root: Path
    tables: list[TableResult] = field(default_factory=list)
    load_rows_per_second: float = 0.0
    changes_per_second: float = 0.0
    freshness: Freshness = field(default_factory=lambda: Freshness.of([]))

    @property
    def verified(self) -> bool:
        return bool(self.tables) and all(table.verdict.verified for table in self.tables)

    def facts(self) -> dict[str, Any]:
        return {
            "verified": self.verified,
            "tables": [table.facts() for table in self.tables],
            "load_rows_per_second": round(self.load_rows_per_second),
            "changes_per_second": round(self.changes_per_second),
            "freshness_seconds": asdict(self.freshness),
            "root": str(self.root),
        }


class Demo:
    """One run."""

    def __init__(
        self,
        folder: Path,
        settings: DemoSettings,
        stage: Stage,
        prepare: Callable[[], None] | None = None,
    ) -> None:
        self._folder, self._settings, self._stage = folder, settings, stage
        self._prepare = prepare
        self._sizes = shop.Sizes.of(settings.rows)
        self._server: EmbeddedServer | None = None
        self._root, self._temporary = folder / "lake", folder / "scratch"

    def run(self) -> DemoResult:
        """The whole demo. Raises Unavailable for a missing part."""
        self._server = EmbeddedServer()
        with self._server as server:
            self._fill(server)
            project = self._project(server)
            with Mirror(project, prepare=self._prepare) as mirror:
                return self._mirrored(server, mirror)

    def abandon(self) -> None:
        """End every process of the run, at any moment; of its files the tables are left.

        For a signal handler, after which the process leaves.
        """
        for process in multiprocessing.active_children():
            process.kill()  # capture and the shop
        if self._server is not None:
            self._server.abandon()
        end_jvm()
        shutil.rmtree(self._temporary, ignore_errors=True)

    def _fill(self, server: EmbeddedServer) -> None:
        total = sum(self._sizes.rows.values())
        self._stage.begin(f"Filling a PostgreSQL {server.version} with a shop", total)
        with psycopg.connect(server.url, autocommit=True) as sql:
            sql.execute(shop.SCHEMA)
            for table, statement in shop.fill(self._sizes):
                sql.execute(statement)
                self._stage.advance(self._sizes[table])
            sql.execute("vacuum analyze")
        self._stage.end(f"{total:,} rows in {len(shop.TABLES)} tables")

    def _project(self, server: EmbeddedServer) -> Project:
        return Project(
            name="demo",
            root=self._root,
            source=PostgresSettings(
                server.url, Selection(("shop.*", "warehouse.*")), slot="demo", publication="demo"
            ),
            capture=CaptureSettings(),
            spark=SparkSettings(),
        )

    def _mirrored(self, server: EmbeddedServer, mirror: Mirror) -> DemoResult:
        self._stage.begin("Starting Spark")
        began = time.monotonic()
        mirror.engine()
        self._stage.end(f"{time.monotonic() - began:.1f} s")
        loaded = self._load(mirror)
        freshness, changed = self._live(server, mirror)
        tables = self._verified(server, mirror)
        return DemoResult(self._root, tables, loaded, changed, freshness)

    def _load(self, mirror: Mirror) -> float:
        """The initial load, from PostgreSQL to readable in Delta. Returns rows per second."""
        rows = sum(self._sizes.rows.values())
        self._stage.begin("Initial load: PostgreSQL to landing zone to Delta", rows)
        seen: dict[str, int] = {}

        def advance(progress: Any) -> None:
            before = seen.get(str(progress.table), 0)
            seen[str(progress.table)] = progress.rows
            self._stage.advance(progress.rows - before)

        began = time.monotonic()
        mirror.capture_once(advance)
        mirror.apply_once()
        seconds = time.monotonic() - began
        self._stage.end(f"{rows:,} rows in {seconds:.1f} s")
        return rows / seconds

    def _live(self, server: EmbeddedServer, mirror: Mirror) -> tuple[Freshness, float]:
        """Capture and apply while the shop works. Returns freshness and changes per second."""
        settings = self._settings
        self._stage.begin(
            "Mirroring while the shop inserts, updates, deletes, rekeys and truncates",
            settings.seconds,
        )
        schema, name = shop.HEARTBEAT.split(".")
        reached = FreshnessMeter(self._root / "Tables" / schema / name)
        writer = Writer(server.url, self._sizes, settings.seconds, settings.rate, settings.seed)
        reached.start()
        with _running(mirror) as failure:
            began = time.monotonic()
            writer.start()
            shown = 0.0
            while writer.is_working and not failure:
                time.sleep(LOOK_SECONDS)
                now = min(time.monotonic() - began, settings.seconds)
                self._stage.advance(now - shown)
                shown = now
            changed = writer.result()
            self._wait(server, mirror, failure)
            seconds = time.monotonic() - began
        found = reached.stop()
        self._stage.end(f"{changed:,} rows changed; all are in Delta after {seconds:.1f} s")
        return found, changed / seconds

    def _wait(self, server: EmbeddedServer, mirror: Mirror, failure: list[BaseException]) -> None:
        """Wait until everything that was committed by now is readable in Delta, by position."""
        with psycopg.connect(server.url, autocommit=True) as sql:
            row = sql.execute("select pg_current_wal_lsn()::text").fetchone()
        assert row is not None
        target = Lsn.parse(row[0])
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline and not failure:
            if _has_arrived(mirror, target):
                return
            time.sleep(LOOK_SECONDS)
        if not failure:
            raise InternalError(
                f"the changes up to {target} did not arrive within {PATIENCE_SECONDS:.0f} seconds",
                where=str(self._root),
                hint="Run `mirrorlake status --root ...` to see the state of each table.",
            )

    def _verified(self, server: EmbeddedServer, mirror: Mirror) -> list[TableResult]:
        status = {table.table: table for table in mirror.status().tables}
        self._stage.begin("Verifying every row and value, and the change feed", len(shop.TABLES))
        tables = {name: self._root / "Tables" / Path(*name.split(".")) for name in shop.TABLES}
        self._temporary.mkdir()
        try:
            verdicts = verify(
                server.url, tables, self._temporary, lambda _name: self._stage.advance(1)
            )
        finally:
            shutil.rmtree(self._temporary, ignore_errors=True)
        rows = sum(verdict.rows for verdict in verdicts)
        wrong = sum(not verdict.verified for verdict in verdicts)
        self._stage.end(f"{wrong} tables differ" if wrong else f"{rows:,} rows, no differences")
        return [
            TableResult(
                verdict,
                inserts=status[verdict.table].inserts,
                updates=status[verdict.table].updates,
                deletes=status[verdict.table].deletes,
                versions=(status[verdict.table].version or 0) + 1,
            )
            for verdict in verdicts
        ]


@contextlib.contextmanager
def _running(mirror: Mirror) -> Iterator[list[BaseException]]:
    """The mirror at work on a thread; the list gets what ends it, which is raised at the end."""
    failure: list[BaseException] = []

    def work() -> None:
        try:
            # Ctrl-C is for us: capture, which is started here, ends when we say so.
            with signals_held(signal.SIGINT):
                mirror.run()
        except BaseException as error:  # noqa: BLE001  (raised on the caller's thread)
            failure.append(error)

    thread = threading.Thread(target=work, name="mirror")
    thread.start()
    try:
        yield failure
    finally:
        mirror.stop.set()
        thread.join()
    if failure:
        raise failure[0]


def _has_arrived(mirror: Mirror, target: Lsn) -> bool:
    newest = Cuts(store_of(mirror.project), LANDING).newest()
    if newest is None or not Lsn.parse(newest.position).covers(target):
        return False
    tables = mirror.status().tables
    return all(table.pending_files == 0 or table.error for table in tables)
