"""The whole path on one thread, in simulated time, under one seed.

A modelled database changes; capture lands it in a store in memory; the mirror applies it to a
modelled lake. Processes end at any effect and at any named point, answers get lost, the database
goes away, a second mirror takes over from one that stalls. The seed decides everything, so the same
seed gives the same trace. At the end, and after every cycle, the tables must be what they claim.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any
from unittest.mock import patch
from uuid import UUID

from mirrorlake import root
from mirrorlake.app.loop import table_builder
from mirrorlake.app.loop.apply_loop import ApplyLoop
from mirrorlake.capture.backfill.backfills import BackfillSettings
from mirrorlake.capture.backfill.jobs import BackfillRecords, BackfillRequest
from mirrorlake.capture.backfill.reading import ChunkLimits
from mirrorlake.capture.capture import Capture
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.errors import LeaseHeld, LeaseLost, SourceGap, SourceUnavailable, UsageError
from mirrorlake.mirror.batch_limits import BatchLimits
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.model.position import LogPoint
from mirrorlake.model.table import TableId
from mirrorlake.sources.memory.database import MemoryTransaction
from mirrorlake.storage.lease import TERM
from tests.capture.landing import landing_capture
from tests.doubles.clock import SteppedClock
from tests.doubles.executors import seeded
from tests.doubles.memory_store import Crash, Effect, Files, MemoryStore
from tests.doubles.replica import fail_over
from tests.reference import plain
from tests.sim.engine import Lake, LakeTable, ModelledEngine, replayed
from tests.sim.source import COLUMNS, Row, SimulatedDatabase, values

TABLES = [TableId("shop", "orders"), TableId("shop", "items")]
KEYS = 6
STEPS = 60


class Simulation:
    """One run. `trace` says what happened, for a person who looks at a failing seed."""

    def __init__(self, seed: int, *, is_damaged: bool = False, loses: bool = False) -> None:
        """is_damaged: somebody else writes into the tables, which a backfill has to mend. loses:
        the database loses its log, and the mirror is repaired."""
        self.random, self.is_damaged, self.loses = Random(seed), is_damaged, loses
        self._ids = Random(f"ids {seed}")
        self._asked = 0
        self.clock = SteppedClock()
        sets = self.random.random() < 0.3
        self.database = self._new_database(sets=sets)
        self.files = Files(self.clock)
        self.lake = Lake()
        self.trace: list[str] = []
        self._cuts: dict[int, LogPoint] = {}
        self._capture: Capture | None = None
        self._apply: ApplyLoop | None = None
        self._processes = 0
        self._strict = self.random.random() < 0.2
        self._metadata = Random(f"metadata {seed}").random() < 0.3
        self._soft = not self._strict and Random(f"soft {seed}").random() < 0.3
        self._settings = CaptureSettings(
            roll_bytes=self.random.choice([1, 200, 100_000]),
            load_bytes=self.random.choice([1, 100_000]),
            heartbeat_seconds=1.0,
            strict=self._strict,
            metadata_columns=self._metadata,
            load_workers=1,
            one_thread=True,
        )
        if is_damaged or loses:
            self._strict, self._settings = False, replace(self._settings, strict=False)
        self._backfill = BackfillSettings(
            ChunkLimits(
                self.random.choice([1, 2, 100]),
                seconds=self.random.choice([0.0, 1.0, 60.0]),
                whole=Random(f"whole {seed}").choice([1, 1 << 20]),
            ),
            look_seconds=self.random.choice([0.0, 1.0]),
            window_bytes=self.random.choice([0, 500, 100_000, 100_000]),
            at_once=self.random.choice([1, 2]),
        )
        self._limits = BatchLimits(
            rows=self.random.choice([3, 1_000]),
            files=self.random.choice([2, 100]),
            large_rows=self.random.choice([0, 2, 1_000]),
        )
        self.crashes = self.losses = 0

    def run(self) -> None:
        """Random steps, then quiet until everything has arrived; checks on the way."""
        # Threads would race for random numbers, and ids that are random would give the order.
        with patch.object(table_builder, "BUILDERS", 1), patch("uuid.uuid4", self._new_id):
            self._run()

    def _run(self) -> None:
        for _ in range(self.random.randint(0, 8)):
            self._write()
        for _ in range(STEPS):
            self._surviving(self.random.choice(self._steps()))
        self._settle()
        self._check_all()

    def _steps(self) -> list[Callable[[], None]]:
        """What may happen, each as likely as the others."""
        return [
            self._write, self._write, self._capture_step, self._capture_step,
            self._apply_step, self._apply_step, self._wait, self._fail_over,
            self._request, self._request, self._damage, self._lose,
        ]  # fmt: skip

    def _new_id(self) -> UUID:
        return UUID(int=self._ids.getrandbits(128), version=4)

    def _new_database(self, *, sets: bool) -> SimulatedDatabase:
        return SimulatedDatabase(self.clock, self.random, TABLES, sets=sets)

    # -- what happens ---------------------------------------------------------------------------

    def _write(self) -> None:
        transaction = MemoryTransaction()
        tables = {table: self.database.rows(table) for table in TABLES}
        for _ in range(self.random.choice([1, 1, 2, 3, 9])):
            self._add_write(transaction, tables)
        if transaction.steps:
            self.database.commit(transaction)
            kinds = [str(step.kind) for step in transaction.steps]
            self.trace.append(f"commit {self.database.memory.current} {kinds}")

    def _add_write(
        self, transaction: MemoryTransaction, tables: dict[TableId, dict[int, Row]]
    ) -> None:
        table = self.random.choice([*tables])
        rows, name = tables[table], str(table)
        free = [key for key in self._keys(table) if key not in rows]
        kind = self.random.choice(["insert", "insert", "update", "update", "rekey", "delete"])
        if self.random.random() < 0.04:
            rows.clear()
            transaction.truncate(name)
            return
        if kind == "insert" and free:
            row: Row = (self.random.choice(free), self._text(), self._text())
            rows[row[0]] = row
            transaction.insert(name, **values(row))
            return
        if not rows:
            return
        old = self.random.choice(sorted(rows))
        _, _, text = rows.pop(old)
        if kind == "delete":
            transaction.delete(name, id=old)
            return
        unsent = self.random.choice([[], ["text"]]) if not self.is_damaged else []
        key = self.random.choice(free) if kind == "rekey" and free else old
        row = (key, self._text(), text if unsent else self._text())
        rows[key] = row
        transaction.update(name, {"id": old}, unsent, **values(row))

    def _keys(self, table: TableId) -> Sequence[Any]:
        """The keys that rows may have."""
        return range(KEYS)

    def _fail_over(self) -> None:
        if self.database.has_sets and self.random.random() < 0.3:
            fail_over(self.database.memory, self.random)
            self.trace.append("another server takes over")

    def _lose(self) -> None:
        """What was not read yet is gone from the log, and the place in it too."""
        if self.loses and self.random.random() < 0.5:
            self.database.memory.slots.clear()
            self.database.memory.forget(self.database.memory.points.current)
            self.losses += 1
            self.trace.append("the log is lost")

    def _repair(self) -> None:
        repair = self._new_capture().repair()
        assert repair.done().is_needed, self.told()
        self.trace.append("repaired")

    def _text(self) -> str | None:
        return self.random.choice([None, f"t{self.random.randint(0, 99)}"])

    def _wait(self) -> None:
        self.clock.advance(self.random.choice([0.1, 1.0, 5.0]))

    _stops = 0.3
    """Share of the requests that are to end a backfill, if there is one."""

    def _request(self) -> None:
        """Somebody asks for a backfill, or for the end of one."""
        jobs = self._jobs()
        found = [j for j in jobs.jobs() if not (j.state.is_over or j.request.reason)]
        if found and self.random.random() < self._stops:
            jobs.stop(self.random.choice(found))
            return
        if self.random.random() < 0.6:
            self._ask(self.random.choice(TABLES))

    def _ask(self, table: TableId, *, whole: bool = False) -> None:
        self._asked += 1
        low, high = sorted(self.random.choices(range(KEYS), k=2))
        keys = None if whole or self.random.random() < 0.5 else (str(low), str(high))
        rate = self.random.choice([None, None, 1, 3])
        with suppress(UsageError):  # there is one
            self._jobs().request(
                BackfillRequest(f"job-{self._asked}", str(table), keys, rate, f"{self._asked:09d}")
            )

    def _jobs(self) -> BackfillRecords:
        return BackfillRecords(Records(MemoryStore(self.clock, files=self.files), root.LANDING))

    def _damage(self) -> None:
        """Somebody writes into a mirrored table, and its feed tells it."""
        found = [table for table in self.lake.tables.values() if table.table.rows]
        if not found or not self.is_damaged:
            return
        mirrored = self.random.choice(found)
        rows = list(mirrored.table.rows)
        old = self.random.choice(rows)
        kind = self.random.choice(self._damages(mirrored))
        if kind in {"lose", "change"}:
            rows.remove(old)
        if kind == "change":
            rows.append((old[0], "damaged", *old[2:]))
        if kind == "double":
            rows.append(self.random.choice([old, (old[0], "double", None, *old[3:])]))
        if kind == "invent":
            key = type(old[0])(self.random.randint(-2, KEYS + 2))
            rows.append((key, "invented", None, *old[3:]))
        feed = Counter(("delete", plain(row)) for row in mirrored.table.rows)
        feed.update(("insert", plain(row)) for row in rows)
        mirrored.table.rows = rows
        mirrored.feed.append(feed)
        mirrored.version += 1
        self.trace.append(f"damage: {kind}")

    def _damages(self, mirrored: LakeTable) -> Sequence[str]:
        return ["lose", "change", "double", "invent"]

    # -- the two processes ----------------------------------------------------------------------

    def _capture_step(self) -> None:
        if self._capture is None:
            capture = self._new_capture()
            capture.open()
            self._capture = capture
        assert self._capture.loop is not None
        for _ in range(self.random.randint(1, 6)):
            self._capture.step(0.5)

    def _apply_step(self) -> None:
        if self._apply is None:
            apply = self._new_apply()
            apply.open()
            self._apply = apply
        self._apply.cycle(self._apply._cuts.newest())
        self._check_cuts()

    def _surviving(self, step: Callable[[], None]) -> None:
        """Do a step; a process that ends in it is started again later."""
        try:
            step()
        except Crash as crash:
            self._died(step, str(crash))
        except SourceUnavailable:
            self._died(step, "the database went away")
        except SourceGap:
            assert self.loses
            self._died(step, "the log is lost")
            self.clock.advance(TERM.total_seconds() + 1)
            self._surviving(self._repair)
        except LeaseHeld:
            self.clock.advance(TERM.total_seconds() + 1)
        except LeaseLost:
            self.trace.append("lost the lease")
            self._apply = None

    def _died(self, step: Callable[[], None], why: str) -> None:
        self.crashes += 1
        self.trace.append(f"{step.__name__} died: {why}")
        if step in {self._capture_step, self._repair}:
            self._capture = None
        else:
            self._apply = None
        if self.random.random() < 0.7:
            self.clock.advance(TERM.total_seconds() + 1)

    def _new_capture(self) -> Capture:
        return landing_capture(
            self.database.source(failures=0.01),
            self._store(),
            self._settings,
            self.clock,
            reached=self._reached(),
            holder=self._holder(),
            backfill=self._backfill,
        )

    def _new_apply(self, *, rivals: bool = True) -> ApplyLoop:
        store = self._store()
        return ApplyLoop(
            store,
            self._engine(store, self._rival if rivals else lambda: None),
            self._mirror_settings(),
            self.clock,
            reached=self._reached(),
            holder=self._holder(),
            new_generation=lambda: str(UUID(int=self.random.getrandbits(128))),
            executors=partial(seeded, self.random),
        )

    def _engine(self, store: MemoryStore, between: Callable[[], None]) -> ModelledEngine:
        return ModelledEngine(self.lake, store, self.random, self._reached(), between=between)

    def _mirror_settings(self) -> MirrorSettings:
        return MirrorSettings(limits=self._limits, cleanup_seconds=1.0, soft_deletes=self._soft)

    def _rival(self) -> None:
        """The process stalls just before its commit, and another takes over meanwhile."""
        if self.random.random() < 0.9:
            return
        self.clock.advance(TERM.total_seconds() + 1)
        rival = self._new_apply(rivals=False)
        rival.open()
        self.trace.append("a second mirror takes over")
        rival.cycle(rival._cuts.newest())

    def _store(self) -> MemoryStore:
        left = self.random.choice([3, 30, 100, 1_000])
        left = self.random.randint(1, left)

        def hook(effect: Effect) -> None:
            nonlocal left
            left -= 1
            if effect.name == "create" and effect.done and "/cuts/" in effect.path:
                self._note_cut(effect.path)
            if left == 0 and not self._quiet:
                raise Crash(str(effect))

        return MemoryStore(self.clock, hook, files=self.files)

    _quiet = False

    def _reached(self) -> Callable[[CrashPoint], None]:
        share = self.random.choice([0.0, 0.02, 0.1])

        def reached(point: CrashPoint) -> None:
            if not self._quiet and self.random.random() < share:
                raise Crash(str(point))

        return reached

    def _holder(self) -> str:
        self._processes += 1
        return f"process {self._processes}"

    # -- what must hold -------------------------------------------------------------------------

    def _note_cut(self, path: str) -> None:
        cut: dict[str, Any] = json.loads(self.files.content[path].content)
        self._cuts[cut["cut"]] = self.database.memory.points.parse(cut["position"])

    def _check_cuts(self) -> None:
        """A version that completes a cut is the source as it was there, row for row.

        In a strict zone it may be younger: values that the source did not send are read again.
        """
        for table in [] if self._strict or self.is_damaged else TABLES:
            mirrored = self.lake.tables.get(f"Tables/{table.schema}/{table.name}")
            if mirrored is not None and mirrored.cut is not None:
                expected = self.database.rows_at(self._cuts[mirrored.cut], table)
                assert self._live(mirrored.table.rows) == Counter(expected.values()), self.told()

    def _settle(self) -> None:
        """No more trouble: both processes run until everything has arrived."""
        self._quiet = True
        self.clock.advance(TERM.total_seconds() + 1)
        self._capture = self._apply = None
        self._backfill = replace(self._backfill, window_bytes=100_000)
        for job in self._jobs().jobs() if self.is_damaged else []:
            self._jobs().stop(job)
        try:
            self._land_all()
        except SourceGap:
            self.clock.advance(TERM.total_seconds() + 1)
            self._repair()
            self.clock.advance(TERM.total_seconds() + 1)
            self._land_all()
        for table in TABLES if self.is_damaged else []:
            self._ask(table, whole=True)
        self._land_all()
        apply = self._new_apply(rivals=False)
        apply.open()
        report = apply.once()
        apply.close()
        assert not report.errors, (report.errors, self.told())

    def _land_all(self) -> None:
        capture = landing_capture(
            self.database.source(),
            self._store(),
            self._settings,
            self.clock,
            holder=self._holder(),
            backfill=self._backfill,
        )
        capture.open()
        capture.once()
        capture.close()

    def _check_all(self) -> None:
        for table in TABLES:
            mirrored = self.lake.tables[f"Tables/{table.schema}/{table.name}"]
            expected = Counter(self.database.rows(table).values())
            assert self._live(mirrored.table.rows) == expected, self.told()
            played = replayed(mirrored)
            assert played == Counter(map(plain, mirrored.table.rows)), self.told()
            assert self._live(played.elements()) == Counter(map(plain, expected.elements()))
            self._check_metadata(table, [row for row in mirrored.table.rows if self._is_live(row)])
            self._check_deleted(table, mirrored.table.rows)
            if not self._corrects():
                assert not any(feed for _chunk, feed in mirrored.backfilled), self.told()
            ends = [last for _first, last in mirrored.applied]
            begins = [first for first, _last in mirrored.applied]
            assert begins == [1, *(end + 1 for end in ends[:-1])], self.told()

    def _corrects(self) -> bool:
        """Whether tables lacked rows, or had other ones, before they were read."""
        return self.is_damaged or self.losses > 0

    def _check_metadata(self, table: TableId, rows: list[Any]) -> None:
        """Each row names the change that made it what it is, or the position it was read at."""
        for row in rows if self._metadata else []:
            position, transaction, time = row[3:6]
            if transaction is None:
                assert time is None, self.told()
                assert position.endswith(":0"), self.told()
                continue
            if not self.is_damaged:
                write, committed = self.database.write_at(position)
                assert (str(write.table.table), time) == (str(table), committed), self.told()
                assert write.row is not None, self.told()
                assert write.row["id"] == row[0], self.told()
                # In a strict zone a row may be younger than the change, in what was not sent.
                assert self._strict or tuple(write.row.values()) == row[:3], self.told()

    def _check_deleted(self, table: TableId, rows: list[Any]) -> None:
        """A row that is marked as deleted was the last of its key, and is no more."""
        gone = [row for row in rows if not self._is_live(row)]
        assert not {row[0] for row in gone} & set(self.database.rows(table)), self.told()
        if not (self.is_damaged or self.losses):
            assert len({row[0] for row in gone}) == len(gone), self.told()
            assert {row[:3] for row in gone} <= self.database.deleted(table), self.told()

    def _is_live(self, row: Any) -> bool:
        return not (self._soft and row[-1])

    def _live(self, rows: Iterable[Any]) -> Counter[Any]:
        """The rows that are not marked as deleted, without metadata columns."""
        return bare(row for row in rows if self._is_live(row))

    def told(self) -> str:
        return "\n".join(self.trace)


def bare(rows: Iterable[Any]) -> Counter[Any]:
    """The rows without metadata columns."""
    return Counter(row[: len(COLUMNS)] for row in rows)
