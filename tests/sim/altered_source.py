"""A database whose tables are altered all the time, for a simulation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from mirrorlake.model.clock import Clock
from mirrorlake.model.position import LogPoint
from mirrorlake.model.table import Column, Schema, TableId
from mirrorlake.model.types import INTEGER, LONG, STRING
from mirrorlake.sources.memory.database import MemoryTransaction, Step, WriteKind
from tests.sim.source import COLUMNS, SimulatedDatabase

Values = dict[str, Any]

NAMES = ["note", "text", "a", "b", "c"]
KEY_NAMES = ["id", "number"]
KEYS = 6


@dataclass
class TableNow:
    """A table at some place in the log. names: of each row, all that columns had since it was
    written, by its key."""

    schema: Schema = COLUMNS
    key: str = "id"
    rows: dict[int, Values] = field(default_factory=dict)
    names: dict[int, set[str]] = field(default_factory=dict)
    is_rekeyed: bool = False

    def put(self, row: Values) -> None:
        self.rows[row[self.key]] = row
        self.names[row[self.key]] = {*row}

    def pop(self, key: int) -> Values:
        del self.names[key]
        return self.rows.pop(key)

    def clear(self) -> None:
        self.rows, self.names = {}, {}

    def alter(self, step: Step) -> None:
        self.schema = Schema.of([column for column, _former in step.columns])
        self.key = next(c.name for c, former in step.columns if former == self.key)
        rows = {key: dict(step.altered(row)) for key, row in self.rows.items()}
        names = {key: names | {*self.schema.names} for key, names in self.names.items()}
        (self.key,) = step.key or (self.key,)
        self.is_rekeyed |= step.key is not None
        self.rows = {row[self.key]: row for row in rows.values()}
        self.names = {rows[key][self.key]: own for key, own in names.items()}


class AlteringDatabase(SimulatedDatabase):
    """now: of each table; told: as its last row or truncation describes it, and how many have come;
    past: both, with the end of the transaction after which they were so."""

    recognises = True

    def __init__(
        self, clock: Clock, random: Random, tables: Sequence[TableId], *, sets: bool
    ) -> None:
        super().__init__(clock, random, tables, sets=sets)
        self.now = {table: TableNow() for table in tables}
        self.told = {table: (0, TableNow()) for table in tables}
        self._untold: dict[TableId, list[Step]] = {table: [] for table in tables}
        self.past: list[tuple[LogPoint, dict[TableId, tuple[int, TableNow, TableNow]]]] = []
        self.alterations = 0

    def commit(self, transaction: MemoryTransaction) -> None:
        super().commit(transaction)
        for step in transaction.steps:
            self._follow(TableId.parse(step.table), step)
        states = {table: deepcopy((*self.told[table], self.now[table])) for table in self.now}
        self.past.append((self._done[-1].end, states))

    def _follow(self, table: TableId, step: Step) -> None:
        follow(self.now[table], step)
        if step.kind is WriteKind.ALTER:
            self.alterations += 1
            self._untold[table].append(step)
            return
        count, told = self.told[table]
        for untold in self._untold[table]:
            told.alter(untold)
        self._untold[table] = []
        follow(told, step)
        self.told[table] = count + 1, told

    def at(self, point: LogPoint, table: TableId) -> list[TableNow]:
        """The table at a point: as its last row has told it, and as it was at any time since, when
        it may have been loaded."""
        found = [states[table] for end, states in self.past if point.covers(end)]
        if not found:
            return [TableNow()]
        count, told, _now = found[-1]
        return [told, *(now for times, _told, now in found if times == count)]


def follow(table: TableNow, step: Step) -> None:
    """The plainest meaning of a step, whose `where` is a key."""
    match step.kind:
        case WriteKind.ALTER:
            table.alter(step)
        case WriteKind.TRUNCATE:
            table.clear()
        case WriteKind.INSERT:
            table.put(dict(step.values))
        case WriteKind.DELETE:
            table.pop(step.where[table.key])
        case WriteKind.UPDATE:
            table.put({**table.pop(step.where[table.key]), **step.values})


class Draft:
    """A transaction that is written at random."""

    def __init__(self, random: Random, tables: Mapping[TableId, TableNow]) -> None:
        self._random, self._tables = random, deepcopy(dict(tables))
        self.transaction = MemoryTransaction()
        self.told: list[str] = []

    def write(self, table: TableId) -> None:
        """Change a row of a table, whichever can be changed."""
        now, random = self._tables[table], self._random
        kind = random.choice(["insert", "insert", "update", "update", "rekey", "delete"])
        if random.random() < 0.04:
            self._do(Step(WriteKind.TRUNCATE, str(table)))
        elif not now.rows or (kind == "insert" and len(now.rows) < KEYS):
            self._do(Step(WriteKind.INSERT, str(table), self._row(now, self._free(now))))
        elif kind == "delete":
            where = {now.key: random.choice(sorted(now.rows))}
            self._do(Step(WriteKind.DELETE, str(table), where=where))
        else:
            self._update(table, now, is_moved=kind == "rekey" and len(now.rows) < KEYS)

    def _update(self, table: TableId, now: TableNow, *, is_moved: bool) -> None:
        old = self._random.choice(sorted(now.rows))
        others = [name for name in now.schema.names if name != now.key]
        unsent = [name for name in others if self._random.random() < 0.25]
        values = self._row(now, self._free(now) if is_moved else old)
        values |= {name: now.rows[old][name] for name in unsent}
        where = {now.key: old}
        self._do(Step(WriteKind.UPDATE, str(table), values, where, frozenset(unsent)))

    def alter(self, table: TableId) -> None:
        """Alter the columns of a table."""
        now = self._tables[table]
        kinds = [self._add, self._add, self._rename, self._exchange, self._drop]
        kinds += [self._compute, self._retype, self._widen, self._rename_key, self._change_key]
        found = self._random.choice(kinds)(now)
        if found is not None:
            told, step = found
            self._do(replace(step, table=str(table)))
            self.told[-1] = told

    def _do(self, step: Step) -> None:
        self.transaction.steps.append(step)
        follow(self._tables[TableId.parse(step.table)], step)
        self.told.append(str(step.kind))

    def _free(self, now: TableNow) -> int:
        return self._random.choice([key for key in range(KEYS) if key not in now.rows])

    def _row(self, now: TableNow, key: int) -> Values:
        return {c.name: key if c.name == now.key else self._value(c) for c in now.schema}

    def _value(self, column: Column) -> Any:
        number = self._random.choice([None, self._random.randint(0, 99)])
        return f"t{number}" if number is not None and column.type == STRING else number

    # -- alterations ----------------------------------------------------------------------------

    def _add(self, now: TableNow) -> tuple[str, Step] | None:
        free = [name for name in NAMES if name not in now.schema]
        if not free:
            return None
        column = Column(self._random.choice(free), self._random.choice([STRING, LONG, INTEGER]))
        columns = [*_same(now), (column, None)]
        if self._random.random() < 0.3:
            seed = self._random.random()
            what = f"add {column.name} computed"
            return what, _altered(columns, computed={column.name: self._compute_by(seed, column)})
        default = self._value(column)
        values = {} if default is None else {column.name: default}
        return f"add {column.name} {column.type} {default}", _altered(columns, values)

    def _rename(self, now: TableNow) -> tuple[str, Step] | None:
        free = [name for name in NAMES if name not in now.schema]
        if not free or len(now.schema) < 2:
            return None
        old, new = self._one(now).name, self._random.choice(free)
        columns = [(replace(c, name=new) if c.name == old else c, was) for c, was in _same(now)]
        return f"rename {old} {new}", _altered(columns)

    def _rename_key(self, now: TableNow) -> tuple[str, Step] | None:
        free = [name for name in KEY_NAMES if name not in now.schema]
        if not free:
            return None
        new = self._random.choice(free)
        columns = [(replace(c, name=new) if was == now.key else c, was) for c, was in _same(now)]
        return f"rename the key to {new}", _altered(columns)

    def _exchange(self, now: TableNow) -> tuple[str, Step] | None:
        if len(now.schema) < 3:
            return None
        one = self._one(now).name
        other = self._random.choice([c.name for c in _others(now) if c.name != one])
        names = {one: other, other: one}
        columns = [(replace(c, name=names.get(was, was)), was) for c, was in _same(now)]
        return f"exchange {one} {other}", _altered(columns)

    def _drop(self, now: TableNow) -> tuple[str, Step] | None:
        if len(now.schema) < 2:
            return None
        gone = self._one(now).name
        return f"drop {gone}", _altered([(c, was) for c, was in _same(now) if was != gone])

    def _compute(self, now: TableNow) -> tuple[str, Step] | None:
        if len(now.schema) < 2:
            return None
        column, seed = self._one(now), self._random.random()
        computed = {column.name: self._compute_by(seed, column)}
        return f"compute {column.name}", _altered(_same(now), computed=computed)

    def _retype(self, now: TableNow) -> tuple[str, Step] | None:
        if len(now.schema) < 2:
            return None
        old, seed = self._one(now), self._random.random()
        new = replace(old, type=LONG if old.type == STRING else STRING)
        columns = [(new if was == old.name else c, was) for c, was in _same(now)]
        computed = {old.name: self._compute_by(seed, new)}
        return f"retype {old.name} {new.type}", _altered(columns, computed=computed)

    def _widen(self, now: TableNow) -> tuple[str, Step] | None:
        narrow = [column for column in _others(now) if column.type == INTEGER]
        if not narrow:
            return None
        old = self._random.choice(narrow)
        columns = [(replace(c, type=LONG) if c == old else c, was) for c, was in _same(now)]
        computed = {old.name: lambda row: row[old.name]}
        return f"widen {old.name}", _altered(columns, computed=computed)

    def _change_key(self, now: TableNow) -> tuple[str, Step] | None:
        """Another column becomes the key, perhaps with values computed for that."""
        found = [column.name for column in _others(now) if column.type == LONG]
        if not found:
            return None
        key, former = self._random.choice(found), now.key
        values = {row[key] for row in now.rows.values()}
        if None not in values and len(values) == len(now.rows):
            return f"key {key}", replace(_altered(_same(now)), key=[key])
        computed = {key: lambda row: 100 - row[former]}
        return f"key {key} computed", replace(_altered(_same(now), computed=computed), key=[key])

    def _one(self, now: TableNow) -> Column:
        return self._random.choice(_others(now))

    def _compute_by(self, seed: float, column: Column) -> Any:
        """A function of a row, the same for the same row."""

        def value(row: Mapping[str, Any]) -> Any:
            number = Random(f"{seed} {sorted(row.items(), key=str)}").randint(100, 999)
            return f"c{number}" if column.type == STRING else number

        return value


def _others(now: TableNow) -> list[Column]:
    return [column for column in now.schema if column.name != now.key]


def _same(now: TableNow) -> list[tuple[Column, str]]:
    return [(column, column.name) for column in now.schema]


def _altered(
    columns: Sequence[tuple[Column, str | None]],
    values: Values | None = None,
    computed: Mapping[str, Any] | None = None,
) -> Step:
    return Step(WriteKind.ALTER, "", values or {}, columns=columns, computed=computed or {})


def rows_of(table: TableNow) -> Iterator[tuple[Any, ...]]:
    for row in table.rows.values():
        yield tuple(row[name] for name in table.schema.names)
