"""Random series of changes of a table and its rows at a live source, seen at random moments.

Processes may die. The mirror ends equal.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.model.change import SchemaChangeKind
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.storage.local import LocalStore
from tests.app.evolving_database import DRAWN, EvolvingDatabase, moments
from tests.conftest import Database

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
    CrashPoint.COLUMNS_RENAMED,
    CrashPoint.COLUMNS_ADDED,
    CrashPoint.COLUMNS_WRITTEN,
    CrashPoint.COLUMNS_ALTERED,
    CrashPoint.COMMIT_BEGUN,
    CrashPoint.COMMITTED,
]
ACTS = (
    *("add", "default", "volatile", "drop", "again", "rename", "exchange", "recreate"),
    *("retype", "compute", "truncate", "rewrite", "key", "identity", "keyless"),
)
KEYS = ("id", "code", "id, code")
TYPES = ("int", "bigint", "text", "numeric(9)", "real", "varchar(30)")


class Series:
    """A table as the series has made it. columns: besides `id` and `code`, which identify its rows;
    their values are whole numbers, whatever their types are. key: None for none."""

    def __init__(self, random: Random) -> None:
        self.random, self.columns = random, ["a", "b"]
        self.ids = itertools.count(100)
        self.key: str | None = "id"

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
                return self.remade(act)

    def remade(self, act: str) -> str:
        """The whole table is another one, or a row."""
        match act:
            case "retype" | "compute":
                return self.retyped(computed=act == "compute")
            case "truncate":
                return "truncate apples"
            case "rewrite" if self.key:
                return "cluster apples using apples_pkey"
            case "key" | "identity" | "keyless":
                return self.identified(act)
            case _:
                return self.row()

    def untold(self, act: str, free: list[str]) -> str:
        """What PostgreSQL does not log."""
        if act == "recreate":
            names = ", ".join(f"{name} int" for name in self.columns)
            self.key = "id"
            return (
                "drop table apples; create table apples "
                f"(id int primary key, code int not null default nextval('codes'), {names})"
            )
        if act == "volatile" and free:
            self.columns.append(self.random.choice(free))
            return (
                f"alter table apples add column {self.columns[-1]} int default trunc(random() * 9)"
            )
        name = self.columns.pop(self.random.randrange(len(self.columns)))
        self.columns.append(name)
        return f"alter table apples drop column {name}, add column {name} int default 5"

    def retyped(self, *, computed: bool) -> str:
        """A column gets another type, perhaps with other values."""
        name, kind = self.random.choice(self.columns), self.random.choice(TYPES)
        value = f"({name}::text::int + 1)::text" if computed else f"{name}::text"
        return f"alter table apples alter {name} type {kind} using {value}::{kind}"

    def identified(self, act: str) -> str:
        """Rows are identified by something else."""
        if act == "identity":
            return "alter table apples replica identity " + (
                self.random.choice(["full", "default"]) if self.key else "full"
            )
        former, self.key = self.key, None if act == "keyless" else self.random.choice(KEYS)
        dropped = [] if former is None else ["drop constraint apples_pkey"]
        added = f"add primary key ({self.key})" if self.key else "replica identity full"
        return "alter table apples " + ", ".join([*dropped, added])

    def row(self) -> str:
        name, value = self.random.choice(self.columns), self.random.randrange(9)
        number = self.random.choice([1, 2, 3])
        return self.random.choice(
            [
                f"insert into apples (id, {name}) values ({next(self.ids)}, '{value}')",
                f"update apples set {name} = '{value}' where id = {number}",
                f"update apples set {name} = '{value}' where code = {number}",
                f"update apples set id = {next(self.ids)} where id = {number}",
                f"delete from apples where id = {number}",
            ]
        )

    def transaction(self) -> str:
        """One statement, or some that are committed together."""
        return "; ".join(self.statement() for _ in range(self.random.choice([1, 1, 1, 2, 4])))


@pytest.mark.full
@DRAWN
@given(seed=st.integers(0, 1 << 32))
def test_a_series_of_changes_ends_equal(
    source_database: Database, tmp_path: Path, seed: int
) -> None:
    random, number = Random(seed), next(_numbers)
    nothing = frozenset[SchemaChangeKind]()
    store = LocalStore(tmp_path / str(number))
    drops, renames, widens = (bool(random.randrange(2)) for _ in range(3))
    evolving = EvolvingDatabase(
        source_database,
        store,
        nothing,
        number=number,
        drops=drops,
        renames=renames,
        widens=widens,
    )
    series = Series(random)
    evolving.run(
        "drop table if exists apples, log; drop sequence if exists codes; create sequence codes",
        "create table apples (id int primary key, code int not null default nextval('codes'), "
        "a int, b int)",
        "insert into apples (id, a, b) values (1, 1, 10), (2, 2, 20), (3, 3, 30)",
        "create table log (id int primary key)",
    )
    evolving.capture()
    moment = moments(random, evolving, POINTS)
    for _ in range(random.randrange(3, 12)):
        evolving.run(series.transaction())
        next(moment)
    if random.randrange(2):  # else the last alterations have no row behind them
        evolving.run(f"insert into apples (id) values ({next(series.ids)})")
    evolving.run("insert into log values (1)")
    evolving.capture()
    evolving.apply()
    evolving.check("apples")
    evolving.forget()
