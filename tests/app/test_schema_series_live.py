"""Random series of changes of columns and rows at a live source, seen at random moments.

Processes may die. The mirror ends equal, or its table stops and says why.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mirrorlake.model.change import SchemaChangeKind
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.storage.local import LocalStore
from tests.app.evolving_database import Dying, EvolvingDatabase
from tests.conftest import Database
from tests.profiles import tries

pytestmark = pytest.mark.postgres

_numbers = itertools.count(1)
POINTS = [
    CrashPoint.CHANGES_STAGED,
    CrashPoint.CHANGES_PUBLISHED_ONE,
    CrashPoint.CUT_WRITTEN,
    CrashPoint.ACKNOWLEDGED,
    CrashPoint.REPLACED_DELETED,
    CrashPoint.BACKFILL_REQUIRED,
    CrashPoint.BACKFILL_PUBLISHED,
    CrashPoint.COLUMNS_ADDED,
    CrashPoint.COLUMNS_WRITTEN,
    CrashPoint.COLUMNS_ALTERED,
    CrashPoint.COMMIT_BEGUN,
    CrashPoint.COMMITTED,
]
ACTS = ("add", "default", "volatile", "drop", "again", "rename", "exchange", "recreate")
SAFE = ("its columns were changed again",)
"""Why a table may stop: nothing tells what happened."""


class Series:
    """A table as the series has made it. columns: those beside the key, all integers."""

    def __init__(self, random: Random) -> None:
        self.random, self.columns = random, ["a", "b"]
        self.ids = itertools.count(100)

    def statement(self) -> str:
        act = self.random.choice([*ACTS, *["row"] * 6])
        free = [name for name in "abcdef" if name not in self.columns]
        match act:
            case "add" | "default" if free:
                name = self.random.choice(free)
                self.columns.append(name)
                default = f" default {self.random.randrange(9)}" if act == "default" else ""
                return f"alter table apples add column {name} int{default}"
            case "volatile" | "again" | "recreate":
                return self.untold(act, free)
            case "drop" if len(self.columns) > 1:
                name = self.columns.pop(self.random.randrange(len(self.columns)))
                return f"alter table apples drop column {name}"
            case "rename" if free and self.columns:
                old, new = self.random.randrange(len(self.columns)), self.random.choice(free)
                was, self.columns[old] = self.columns[old], new
                return f"alter table apples rename {was} to {new}"
            case "exchange" if len(self.columns) > 1:
                one, other = self.random.sample(self.columns, 2)
                return "; ".join(
                    f"alter table apples rename {was} to {now}"
                    for was, now in ((one, "x"), (other, one), ("x", other))
                )
            case _:
                return self.row()

    def untold(self, act: str, free: list[str]) -> str:
        """What PostgreSQL does not log."""
        if act == "recreate":
            names = ", ".join(f"{name} int" for name in self.columns)
            return f"drop table apples; create table apples (id int primary key, {names})"
        if act == "volatile" and free:
            self.columns.append(self.random.choice(free))
            return f"alter table apples add column {self.columns[-1]} int default random() * 9"
        name = self.columns.pop(self.random.randrange(len(self.columns)))
        self.columns.append(name)
        return f"alter table apples drop column {name}, add column {name} int default 5"

    def row(self) -> str:
        name, value = self.random.choice(self.columns), self.random.randrange(9)
        number = self.random.choice([1, 2, 3])
        return self.random.choice(
            [
                f"insert into apples (id, {name}) values ({next(self.ids)}, {value})",
                f"update apples set {name} = {value} where id = {number}",
                f"update apples set id = {next(self.ids)} where id = {number}",
                f"delete from apples where id = {number}",
            ]
        )

    def transaction(self) -> str:
        """One statement, or some that are committed together."""
        return "; ".join(self.statement() for _ in range(self.random.choice([1, 1, 1, 2, 4])))


def moments(random: Random, evolving: EvolvingDatabase) -> Iterator[None]:
    """Between two transactions: nothing happens, or a process runs, and perhaps dies."""
    while True:
        dying = Dying(random.choice(POINTS)) if random.random() < 0.3 else Dying()
        match random.choice(["", "", "capture", "apply"]):
            case "capture":
                evolving.capture(dying)
            case "apply":
                evolving.apply(dying)
        yield


@settings(
    max_examples=tries(12, long=100),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
)
@given(seed=st.integers(0, 1 << 32))
def test_a_series_of_changes_ends_equal(database: Database, tmp_path: Path, seed: int) -> None:
    random, number = Random(seed), next(_numbers)
    nothing = frozenset[SchemaChangeKind]()
    store = LocalStore(tmp_path / str(number))
    evolving = EvolvingDatabase(database, store, nothing, number=number)
    series = Series(random)
    evolving.run(
        "create table apples (id int primary key, a int, b int)",
        "insert into apples values (1, 1, 10), (2, 2, 20), (3, 3, 30)",
        "create table log (id int primary key)",
    )
    evolving.capture()
    moment = moments(random, evolving)
    for _ in range(random.randrange(3, 12)):
        evolving.run(series.transaction())
        next(moment)
    evolving.run(
        f"insert into apples (id) values ({next(series.ids)})", "insert into log values (1)"
    )
    evolving.capture()
    evolving.apply()
    if stopped := evolving.stopped():
        assert any(why in stopped["public.apples"] for why in SAFE), stopped
    else:
        evolving.check("apples")
    evolving.forget()
