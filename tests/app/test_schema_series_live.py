"""Random series of changes of a table and its rows at a live source, seen at random moments.

Processes may die. The mirror ends equal.
"""

from __future__ import annotations

import itertools
import json
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake import root
from mirrorlake.model.change import SchemaChangeKind
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.storage.local import LocalStore
from tests.app.every_change import FOLLOWING
from tests.app.evolving_database import DRAWN, EvolvingDatabase, moments
from tests.conftest import Database

pytestmark = pytest.mark.postgres

_numbers = itertools.count(1)
POINTS = [
    *FOLLOWING,
    CrashPoint.CHANGES_STAGED,
    CrashPoint.CHANGES_PUBLISHED_ONE,
    CrashPoint.CUT_WRITTEN,
    CrashPoint.ACKNOWLEDGED,
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
    *("move", "value", "relabel", "generate", "settle"),
)
KEYS = ("id", "code", "id, code")
TYPES = ("int", "bigint", "text", "numeric(9)", "real", "varchar(30)")


NAMES = ("apples", "cherries")


class Series:
    """A table as the series has made it. columns: besides `id` and `code`, which identify its rows;
    their values are whole numbers, whatever their types are. key: None for none; generated: the
    generated column; full: rows are logged whole; labels: values of its enum type, of which those
    in `fresh` cannot be used yet."""

    def __init__(self, random: Random) -> None:
        self.random, self.columns = random, ["a", "b"]
        self.ids = itertools.count(100)
        self.key: str | None = "id"
        self.name, self.full = "apples", False
        self.generated: str | None = None
        self.labels, self.fresh = ["v0", "v1"], list[str]()

    def statement(self) -> str:
        act = self.random.choice([*ACTS, *["row"] * 6])
        free = [n for n in "abcdef" if n not in {*self.columns, self.generated}]
        match act:
            case "add" | "default" if free:
                name = self.random.choice(free)
                self.columns.append(name)
                default = f" default {self.random.randrange(9)}" if act == "default" else ""
                return f"alter table {self.name} add column {name} int{default}"
            case "volatile" | "again" | "recreate":
                return self.untold(act, free)
            case "drop" if len(self.columns) > 1:
                name = self.columns.pop(self.random.randrange(len(self.columns)))
                return f"alter table {self.name} drop column {name}"
            case "rename" if free and self.columns:
                old, new = self.random.randrange(len(self.columns)), self.random.choice(free)
                was, self.columns[old] = self.columns[old], new
                return f"alter table {self.name} rename {was} to {new}"
            case "exchange" if len(self.columns) > 1:
                one, other = self.random.sample(self.columns, 2)
                return "; ".join(
                    f"alter table {self.name} rename {was} to {now}"
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
                return f"truncate {self.name}"
            case "rewrite" if self.key:
                return f"cluster {self.name} using apples_pkey"
            case "key" | "identity" | "keyless" if act == "key" or not self.generated:
                return self.identified(act)
            case _:
                return self.aside(act)

    def aside(self, act: str) -> str:
        """The table gets another name, or what it has beside its columns changes; or a row."""
        free = [n for n in "abcdef" if n not in self.columns]
        match act:
            case "move":
                was, self.name = self.name, *{*NAMES} - {self.name}
                return f"alter table {was} rename to {self.name}"
            case "value":
                self.fresh.append(f"v{len(self.labels) + len(self.fresh)}")
                return f"alter type mood add value '{self.fresh[-1]}'"
            case "relabel":
                at = self.random.randrange(len(self.labels))
                was, self.labels[at] = self.labels[at], f"w{next(self.ids)}"
                return f"alter type mood rename value '{was}' to '{self.labels[at]}'"
            case "generate" if free and not self.generated and not self.full:
                self.generated = self.random.choice(free)
                expression = f"{self.generated} int generated always as (id * 2) stored"
                return f"alter table {self.name} add column {expression}"
            case "settle" if self.generated:
                return self.settled(self.generated)
            case _:
                return self.row()

    def settled(self, name: str) -> str:
        """The generated column is dropped, or becomes an ordinary one."""
        self.generated = None
        if self.random.randrange(2):
            return f"alter table {self.name} drop column {name}"
        self.columns.append(name)
        return f"alter table {self.name} alter {name} drop expression"

    def untold(self, act: str, free: list[str]) -> str:
        """What PostgreSQL does not log."""
        if act == "recreate":
            names = ", ".join(f"{name} int" for name in self.columns)
            mood = f"m mood default '{self.labels[0]}'"
            self.key, self.full, self.generated = "id", False, None
            was, self.name = self.name, "apples"
            return (
                f"drop table {was}; create table apples "
                "(id int constraint apples_pkey primary key, "
                f"code int not null default nextval('codes'), {mood}, {names})"
            )
        if act == "volatile" and free:
            self.columns.append(self.random.choice(free))
            column = f"{self.columns[-1]} int default trunc(random() * 9)"
            return f"alter table {self.name} add column {column}"
        name = self.columns.pop(self.random.randrange(len(self.columns)))
        self.columns.append(name)
        return f"alter table {self.name} drop column {name}, add column {name} int default 5"

    def retyped(self, *, computed: bool) -> str:
        """A column gets another type, perhaps with other values."""
        name, kind = self.random.choice(self.columns), self.random.choice(TYPES)
        value = f"({name}::text::int + 1)::text" if computed else f"{name}::text"
        return f"alter table {self.name} alter {name} type {kind} using {value}::{kind}"

    def identified(self, act: str) -> str:
        """Rows are identified by something else."""
        if act == "identity":
            how = self.random.choice(["full", "default"]) if self.key else "full"
            self.full = how == "full"
            return f"alter table {self.name} replica identity {how}"
        former, self.key = self.key, None if act == "keyless" else self.random.choice(KEYS)
        self.full |= self.key is None
        dropped = [] if former is None else ["drop constraint apples_pkey"]
        key = f"add constraint apples_pkey primary key ({self.key})"
        added = key if self.key else "replica identity full"
        return f"alter table {self.name} " + ", ".join([*dropped, added])

    def row(self) -> str:
        name, value = self.random.choice(self.columns), self.random.randrange(9)
        number, label = self.random.choice([1, 2, 3]), self.random.choice(self.labels)
        return self.random.choice(
            [
                f"insert into {self.name} (id, {name}) values ({next(self.ids)}, '{value}')",
                f"update {self.name} set {name} = '{value}' where id = {number}",
                f"update {self.name} set {name} = '{value}' where code = {number}",
                f"update {self.name} set m = '{label}' where id = {number}",
                f"update {self.name} set id = {next(self.ids)} where id = {number}",
                f"delete from {self.name} where id = {number}",
            ]
        )

    def transaction(self) -> str:
        """One statement, or some that are committed together."""
        found = [self.statement() for _ in range(self.random.choice([1, 1, 1, 2, 4]))]
        self.labels, self.fresh = [*self.labels, *self.fresh], []
        return "; ".join(found)


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
        "drop table if exists apples, cherries, log; drop sequence if exists codes",
        "drop type if exists mood; create type mood as enum ('v0', 'v1'); create sequence codes",
        "create table apples (id int primary key, code int not null default nextval('codes'), "
        "m mood default 'v0', a int, b int)",
        "insert into apples (id, a, b) values (1, 1, 10), (2, 2, 20), (3, 3, 30)",
        "create table log (id int primary key)",
    )
    evolving.capture()
    moment = moments(random, evolving, POINTS)
    for _ in range(random.randrange(3, 12)):
        evolving.run(series.transaction())
        next(moment)
    if random.randrange(2):  # else the last alterations have no row behind them
        evolving.run(f"insert into {series.name} (id) values ({next(series.ids)})")
    evolving.run("insert into log values (1)")
    evolving.capture()
    evolving.apply()
    mirrored = name_of(evolving, series.name)
    listed = ["id", "code", "m", *series.columns]
    others = evolving.stopped().keys() - {f"public.{mirrored}"}
    evolving.check(mirrored, source=series.name, columns=", ".join(listed), stopped=others)
    evolving.lose_slot()


def name_of(evolving: EvolvingDatabase, table: str) -> str:
    """Below `public`, the name under which the table is mirrored that has this name by now."""
    query = f"select '{table}'::regclass::oid::text"
    ((oid,),) = evolving.database.sql.execute(query).fetchall()
    for name in ("apples", "cherries"):
        with suppress(OSError):
            path = f"{root.LANDING}/public.schema/{name}/_metadata.json"
            described = json.loads(evolving.store.read(path))["mirrorlake"]
            if described["source"]["identity"] == oid:
                return name
    raise AssertionError(f"{table} is not mirrored")
