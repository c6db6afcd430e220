"""Which column of a table in memory is which: by a number that is given once, so that what became
of the columns is known whatever their names were meanwhile. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import pyarrow as pa

from mirrorlake.model.arrow import arrow_type
from mirrorlake.model.change import Alteration, SchemaChangeKind
from mirrorlake.model.table import Column, Schema
from mirrorlake.model.types import DataType, is_wider

_UNLOGGED = "the log does not contain the values of older rows"


@dataclass(frozen=True, slots=True)
class KnownColumn:
    """type: as text. computed: how often its values were computed in all rows."""

    name: str
    type: str
    computed: int = 0


@dataclass(frozen=True, slots=True)
class KnownColumns:
    """The columns of a table at some place in the log.

    version: how often the table was altered by then. columns: by number. key: the numbers of its
    columns. last: the highest number that was given. former: other names that columns once had.
    """

    version: int
    columns: Mapping[int, KnownColumn]
    key: tuple[int, ...]
    last: int
    former: frozenset[str] = frozenset()

    @classmethod
    def first(cls, schema: Schema, key: Sequence[str]) -> Self:
        """Of a new table."""
        columns = {n: KnownColumn(c.name, str(c.type)) for n, c in enumerate(schema, start=1)}
        numbers = {column.name: number for number, column in columns.items()}
        return cls(0, columns, tuple(numbers[name] for name in key), len(columns))

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Self:
        """The inverse of `plain`, which may have other members too."""
        columns = {int(number): KnownColumn(*facts) for number, facts in plain["columns"].items()}
        former = frozenset(plain["former"])
        return cls(plain["version"], columns, tuple(plain["key"]), plain["last"], former)

    def plain(self) -> dict[str, Any]:
        """As JSON can carry it."""
        return {
            "version": self.version,
            "columns": {str(n): [c.name, c.type, c.computed] for n, c in self.columns.items()},
            "key": list(self.key),
            "last": self.last,
            "former": sorted(self.former),
        }

    @property
    def numbers(self) -> dict[str, int]:
        """By name."""
        return {column.name: number for number, column in self.columns.items()}

    @property
    def key_names(self) -> tuple[str, ...]:
        return tuple(self.columns[number].name for number in self.key)

    def altered(
        self,
        columns: Sequence[tuple[Column, str | None]],
        computed: Collection[str],
        key: Sequence[str] | None = None,
    ) -> KnownColumns:
        """After an alteration; columns, computed, key: as in `MemoryTransaction.alter`."""
        numbers, last = self.numbers, self.last
        now = dict[int, KnownColumn]()
        for column, former in columns:
            last += former is None
            number = last if former is None else numbers[former]
            times = self.columns[number].computed if former is not None else 0
            times += column.name in computed
            now[number] = KnownColumn(column.name, str(column.type), times)
        named = {column.name: number for number, column in now.items()}
        own = self.key if key is None else tuple(named[name] for name in key)
        former_names = (self.former | {*numbers}) - {*named}
        return KnownColumns(self.version + 1, now, own, last, former_names)


@dataclass(slots=True)
class Altered:
    """What became of the columns between two places in the log. copied, filled, saved, changes: as
    in `Alteration`, `filled` by values; differs: kinds of changes after which the values of earlier
    rows are unknown, each with the reason."""

    before: KnownColumns
    now: KnownColumns
    copied: dict[str, str] = field(default_factory=dict)
    filled: dict[str, Any] = field(default_factory=dict)
    saved: dict[str, str] = field(default_factory=dict)
    changes: list[tuple[SchemaChangeKind, str]] = field(default_factory=list)
    differs: list[tuple[SchemaChangeKind, str]] = field(default_factory=list)

    @classmethod
    def between(
        cls, before: KnownColumns, now: KnownColumns, defaults: Mapping[int, Any]
    ) -> Altered:
        """defaults: the values that earlier rows got in added columns, by number; others got
        NULL."""
        found = cls(before, now)
        for number, column in now.columns.items():
            if former := before.columns.get(number):
                found._stands(former, column)
            else:
                found._comes(column, defaults.get(number))
        found.changes += [
            (SchemaChangeKind.COLUMN_DROPPED, f"column {column.name} was dropped")
            for number, column in before.columns.items()
            if number not in now.columns
        ]
        return found

    @property
    def is_change(self) -> bool:
        """Whether anything changed, the key included."""
        return self.before.columns != self.now.columns or self.before.key != self.now.key

    @property
    def is_older(self) -> bool:
        """Whether `now` is the earlier of the two places."""
        return self.now.version < self.before.version

    def alteration(self, schema: Schema) -> Alteration:
        """schema: of the table as it is now."""
        filled = {
            name: pa.array([value], arrow_type(schema[name].type))
            for name, value in self.filled.items()
        }
        # Perhaps with a column that got the name of the former one.
        is_other = self.before.key != self.now.key or self.before.key_names != self.now.key_names
        return Alteration(
            self.copied,
            pa.RecordBatch.from_pydict(filled) if filled else None,
            tuple(self.changes),
            self.saved,
            gone=tuple(sorted(self.before.numbers.keys() - self.now.numbers.keys())),
            key=self.now.key_names if is_other else None,
        )

    def _stands(self, former: KnownColumn, column: KnownColumn) -> None:
        """A column was there before, under this name or another."""
        name = column.name
        if former.name != name:
            self.copied[name] = former.name
            what = f"column {former.name} was renamed to {name}"
            self.changes.append((SchemaChangeKind.COLUMN_RENAMED, what))
        if former.type != column.type:
            kind, what = _retyped(former, column)
            self.changes.append((kind, what))
            self.differs.append((kind, f"{what}; {_UNLOGGED}"))
            if kind is SchemaChangeKind.TYPE_CHANGED:
                self._save(name, former.name)
        elif former.computed != column.computed:
            what = f"column {name} was computed anew; {_UNLOGGED}"
            self.differs.append((SchemaChangeKind.TYPE_CHANGED, what))

    def _comes(self, column: KnownColumn, default: Any) -> None:
        """A column was not there before, but perhaps one of its name."""
        name = column.name
        self.changes.append((SchemaChangeKind.COLUMN_ADDED, f"column {name} was added"))
        is_used = name in {*self.before.former, *self.before.numbers}
        if column.computed:
            what = f"column {name} was added with computed values; {_UNLOGGED}"
            self.differs.append((SchemaChangeKind.COLUMN_ADDED, what))
            if is_used:  # perhaps by one of another type
                self._save(name, name)
        elif default is not None or is_used:
            self.filled[name] = default

    def _save(self, name: str, former: str) -> None:
        """No other column has ever had the name under which former values stay."""
        saved = f"{former}_before_{self.now.version}"
        taken = {*self.before.former, *self.before.numbers, *self.now.former, *self.now.numbers}
        while saved in taken:
            saved += "_"
        self.saved[name] = saved


def are_other(known: Mapping[str, Any], seen: Mapping[str, Any]) -> bool:
    """Whether a table that is known by something has other columns, or another key, by now."""
    if not known:
        return False
    former, now = KnownColumns.of(known), KnownColumns.of(seen)
    return former.columns != now.columns or former.key != now.key


def _retyped(former: KnownColumn, column: KnownColumn) -> tuple[SchemaChangeKind, str]:
    widened = is_wider(DataType.parse(column.type), DataType.parse(former.type))
    kind = SchemaChangeKind.TYPE_WIDENED if widened else SchemaChangeKind.TYPE_CHANGED
    what = f"the type of column {column.name} was changed from {former.type} to {column.type}"
    return kind, what
