"""Capture of a million changes that wait in the log: from the slot to landed files.

Ours is `capture --once`: connect, look at the source, read, decode, write, publish and acknowledge,
file by file, all of it flushed to disk. Every side of every round has a slot of its own, made
before the changes, so all read the same messages, over TCP.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import psycopg

from bench import equality, payments
from bench import server as servers
from bench.peers import debezium_capture, raw_drain
from bench.result import Result
from bench.rounds import Plan, medians, say, timed
from bench.server import PUBLICATION, Server
from bench.worker import Worker
from mirrorlake.app.mirror import Mirror
from mirrorlake.model.change import MARKER_COLUMN, Marker

ROWS = 110_000
"""In the table before the changes: as few as they need, because loading is not the matter."""
TRANSACTIONS = 10_000
TARGET = 5.0


def run(plan: Plan) -> list[Result]:
    transactions = plan.sized(TRANSACTIONS)
    present = payments.LEAST_ROWS + plan.sized(ROWS - payments.LEAST_ROWS)
    with servers.started() as (server, sql):
        payments.fill(sql, present)
        race = _Race(plan, server, sql, transactions * payments.CHANGES_PER_TRANSACTION)
        race.prepare()
        payments.change(sql, present, transactions)
        race.until = servers.value(sql, "select pg_current_wal_lsn()")
        sides: dict[str, Callable[[int], float]] = {
            "ours": race.ours,
            debezium_capture.NAME: race.debezium,
            raw_drain.NAME: race.drain,
        }
        with race.peer:
            seconds = medians(plan, sides)
        found = race.fingerprints
    return [
        Result(
            "capture",
            seconds["ours"],
            peer,
            seconds[peer],
            target=target,
            equal=found["ours"] == found[peer],
            more={"changes": race.changes},
        )
        for peer, target in ((debezium_capture.NAME, TARGET), (raw_drain.NAME, None))
    ]


MARKERS = {
    str(int(Marker.INSERT)): "I",
    str(int(Marker.UPDATE)): "U",
    str(int(Marker.UPSERT)): "U",
    str(int(Marker.DELETE)): "D",
}


class _Race:
    """The sides; what the last round of each wrote is compared."""

    def __init__(self, plan: Plan, server: Server, sql: psycopg.Connection, changes: int) -> None:
        self._plan, self._server, self._sql = plan, server, sql
        self.changes, self.until = changes, ""
        self.peer = Worker(debezium_capture.capture)
        self.fingerprints: dict[str, equality.Fingerprint] = {}

    def prepare(self) -> None:
        """A slot for every side of every round, and ours with its load behind it."""
        self._sql.execute(f"create publication {PUBLICATION} for table {payments.TABLE}")
        for number in self._plan.all_rounds:
            for side in ("debezium", "drain"):
                self._sql.execute(
                    "select pg_create_logical_replication_slot(%s, 'pgoutput')",
                    [f"{side}_{number}"],
                )
            self._mirror(number).capture_once()

    def ours(self, number: int) -> float:
        folder = self._landed(number)
        loaded = {path.name for path in folder.glob("*.parquet")}
        with timed() as watch:
            self._mirror(number).capture_once()
        if number == self._plan.rounds:
            for name in loaded:
                (folder / name).unlink()
            self._look("ours", _kinds(MARKER_COLUMN, MARKERS), folder / "*.parquet")
        shutil.rmtree(folder)
        return watch.seconds

    def debezium(self, number: int) -> float:
        folder, slot = self._plan.folder, f"debezium_{number}"
        where = (folder, self._server.url, payments.TABLE, PUBLICATION)
        seconds: float = self.peer.call(*where, slot, self.changes)
        path = folder / f"{slot}.parquet"
        if number == self._plan.rounds:
            kind = _kinds(debezium_capture.OP, {"'c'": "I", "'u'": "U", "'d'": "D"})
            self._look(debezium_capture.NAME, kind, path, debezium_capture.GIVEN)
        path.unlink()
        return seconds

    def drain(self, number: int) -> float:
        path = self._plan.folder / f"drained-{number}"
        slot = f"drain_{number}"
        seconds = raw_drain.drain(self._server.url, slot, PUBLICATION, self.until, path)
        if number == self._plan.rounds:
            say("  decoding what was drained, to compare it")
            decoded = raw_drain.read(
                path, list(payments.TYPES), self._plan.folder / "drained.parquet"
            )
            self._look(raw_drain.NAME, raw_drain.OP, decoded)
        path.unlink()
        return seconds

    def _look(self, side: str, kind: str, path: Path, given: dict[str, str] | None = None) -> None:
        """Kind of change and values of all rows; of a deletion the key, which is all there is."""
        key, *values = payments.canonical(given)
        hashed = f"case when {kind} = 'D' then 0 else hash({', '.join(values)}) end"
        source = equality.parquet(path)
        self.fingerprints[side] = equality.fingerprint(source, [kind, key, hashed])

    def _mirror(self, number: int) -> Mirror:
        name = f"ours_{number}"
        project = servers.project(self._server, self._plan.folder / name, name, payments.TABLE)
        return Mirror(project)

    def _landed(self, number: int) -> Path:
        schema, table = payments.TABLE.split(".")
        return (
            self._plan.folder / f"ours_{number}" / "Files/LandingZone" / f"{schema}.schema" / table
        )


def _kinds(column: str, letters: Mapping[str, str]) -> str:
    """An expression that says insert, update or deletion in one letter."""
    cases = " ".join(f"when {value} then '{letter}'" for value, letter in letters.items())
    return f"case {column} {cases} end"
