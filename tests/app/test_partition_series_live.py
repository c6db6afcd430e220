"""Random series of what is done to a partitioned table, its partitions and its rows at a live
source, seen at random moments. Processes may die. The mirror ends equal."""

from __future__ import annotations

import itertools
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    CrashPoint.BACKFILL_REQUIRED,
    CrashPoint.BACKFILL_PUBLISHED,
    CrashPoint.BACKFILL_RECORDED,
    CrashPoint.COLUMNS_WRITTEN,
    CrashPoint.COMMITTED,
]
SLOTS, WIDTH = range(6), 10
KEY, BY = "primary key (id, region)", "partition by range (region)"
ACTS = (
    *("make", "fill", "fill", "detach", "detach", "attach", "attach", "wider"),
    *("drop", "truncate", "all", "write", "default", "add", "rename", "delete"),
)


class PartitionSeries:
    """A table by ranges of `region`, as the series has made it. attached: the partition of each
    slot, by the first of its slots; loose: detached ones, with theirs; columns: besides its key."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.attached: dict[int, tuple[str, int]] = {}
        self.loose: list[tuple[str, int]] = []
        self.columns = ["a", "b"]
        self.ids, self.names = itertools.count(1), itertools.count(1)

    @property
    def free(self) -> list[int]:
        taken = {slot + n for slot, (_name, size) in self.attached.items() for n in range(size)}
        return [slot for slot in SLOTS if slot not in taken]

    def begin(self) -> list[str]:
        return [
            "drop table if exists apples, log cascade",
            f"create table apples (id int, region int, a int, b int, {KEY}) {BY}",
            *(self.make(slot) for slot in (0, 1)),
            *(self.insert() for _ in range(3)),
            "create table log (id int primary key)",
        ]

    def statement(self) -> str:
        act = self.random.choice([*ACTS, *["row"] * 8])
        match act:
            case "make" | "fill" if free := self.free:
                slot = self.random.choice(free)
                return self.make(slot) if act == "make" else self.fill(slot)
            case "attach" | "wider":
                return self.attach(wider=act == "wider")
            case "detach" | "drop" | "truncate" if self.attached:
                return self.emptied(act)
            case "write" if self.loose:
                name, slot = self.random.choice(self.loose)
                update = f"update {name} set {self.columns[0]} = 77"
                return self.random.choice([update, self.insert(name, slot)])
            case "default" | "add" | "rename" | "delete":
                return self.altered(act)
            case _:
                return "truncate apples" if act == "all" else self.row()

    def emptied(self, act: str) -> str:
        """A partition, or what is in it, is no longer part of the table."""
        slot = self.random.choice(sorted(self.attached))
        name, _size = self.attached[slot]
        if act == "truncate":
            return f"truncate {name}"
        del self.attached[slot]
        if act == "drop":
            return f"drop table {name}"
        self.loose.append((name, slot))
        return f"alter table apples detach partition {name}"

    def make(self, slot: int) -> str:
        name = f"apples_{next(self.names)}"
        self.attached[slot] = name, 1
        return f"create table {name} partition of apples {self.bounds(slot, 1)}"

    def fill(self, slot: int) -> str:
        """A table that has rows becomes a partition."""
        name = f"apples_{next(self.names)}"
        rows = self.insert(name, slot)
        self.attached[slot] = name, 1
        return (
            f"create table {name} (like apples including all); {rows}; "
            f"alter table apples attach partition {name} {self.bounds(slot, 1)}"
        )

    def attach(self, *, wider: bool) -> str:
        fitting = [(name, slot) for name, slot in self.loose if slot in self.free]
        if not fitting:
            return self.row()
        name, slot = self.random.choice(fitting)
        self.loose.remove((name, slot))
        size = 2 if wider and slot + 1 in self.free else 1
        self.attached[slot] = name, size
        return f"alter table apples attach partition {name} {self.bounds(slot, size)}"

    def altered(self, act: str) -> str:
        """Columns of all partitions. What is detached no longer has those of the table."""
        dropped = "".join(f"drop table {name}; " for name, _slot in self.loose)
        self.loose.clear()
        unused = [name for name in "abcdef" if name not in self.columns]
        if act == "delete" and len(self.columns) > 1:
            name = self.columns.pop(self.random.randrange(len(self.columns)))
            return f"{dropped}alter table apples drop column {name}"
        if act == "rename":
            index, name = self.random.randrange(len(self.columns)), self.random.choice(unused)
            was, self.columns[index] = self.columns[index], name
            return f"{dropped}alter table apples rename {was} to {name}"
        if not unused:
            return f"{dropped}{self.row()}"
        self.columns.append(self.random.choice(unused))
        default = " default 5" if act == "default" else ""
        return f"{dropped}alter table apples add column {self.columns[-1]} int{default}"

    def bounds(self, slot: int, size: int) -> str:
        return f"for values from ({slot * WIDTH}) to ({(slot + size) * WIDTH})"

    def insert(self, name: str = "apples", slot: int | None = None) -> str:
        column, value = self.random.choice(self.columns), self.random.randrange(9)
        slot = self.random.choice(sorted(self.attached)) if slot is None else slot
        region = slot * WIDTH + self.random.randrange(WIDTH)
        key = f"{next(self.ids)}, {region}"
        return f"insert into {name} (id, region, {column}) values ({key}, {value})"

    def row(self) -> str:
        if not self.attached:
            return "insert into log values (0) on conflict do nothing"
        column, value = self.random.choice(self.columns), self.random.randrange(9)
        slot, last = self.random.choice(sorted(self.attached)), next(self.ids)
        some = f"id = {self.random.randrange(last)}"
        return self.random.choice(
            [
                self.insert(),
                self.insert(),
                f"update apples set {column} = {value} where {some}",
                f"update apples set {column} = {value} where region < {slot * WIDTH}",
                f"update apples set region = {slot * WIDTH} where {some}",
                f"delete from apples where {some}",
            ]
        )

    def transaction(self) -> str:
        """One statement, or some that are committed together."""
        return "; ".join(self.statement() for _ in range(self.random.choice([1, 1, 1, 2, 3])))


@pytest.mark.full
@DRAWN
@given(seed=st.integers(0, 1 << 32))
def test_a_series_of_changes_of_partitions_ends_equal(
    source_database: Database, tmp_path: Path, seed: int
) -> None:
    random, number = Random(seed), next(_numbers)
    evolving = EvolvingDatabase(
        source_database,
        LocalStore(tmp_path / str(number)),
        number=number,
        selected=("public.apples", "public.log"),
    )
    series = PartitionSeries(random)
    evolving.begin(*series.begin())
    moment = moments(random, evolving, POINTS)
    for _ in range(random.randrange(3, 14)):
        evolving.run(series.transaction())
        next(moment)
    evolving.run("insert into log values (1)")
    evolving.capture()
    evolving.apply()
    evolving.check("apples")
    loose = [f"drop table {name}" for name, _slot in series.loose]
    evolving.lose_slot()
    evolving.run(*loose)
