"""Tables, columns and schemas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from mirrorlake.model.types import DataType


@dataclass(frozen=True, order=True, slots=True)
class TableId:
    """The name of a table and its schema, "" if it has none (LZ-013). Printed as `schema.name`."""

    schema: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Self:
        schema, _, name = text.rpartition(".")
        return cls(schema, name)

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}" if self.schema else self.name


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a mirrored table."""

    name: str
    type: DataType
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns of a table, in order. Names are unique."""

    columns: tuple[Column, ...]

    @classmethod
    def of(cls, columns: Sequence[Column]) -> Self:
        names = [column.name for column in columns]
        if len(set(names)) != len(names):
            raise ValueError(f"a column name occurs twice in {names}")
        return cls(tuple(columns))

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def __getitem__(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    def __contains__(self, name: str) -> bool:
        return any(column.name == name for column in self.columns)
