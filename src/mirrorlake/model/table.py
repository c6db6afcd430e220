"""Tables, columns and schemas."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

from mirrorlake.errors import UsageError
from mirrorlake.model.types import DataType

Value = TypeVar("Value")


_QUOTED = re.compile(r'[."]')
_PART = r'"(?:[^"]|"")*"|[^".]*'
_EXACT = re.compile(rf"(?:(?P<schema>{_PART})\.)?(?P<name>{_PART})", re.DOTALL)


@dataclass(frozen=True, order=True, slots=True)
class TableId:
    """The name of a table and its schema, "" if it has none (LZ-013).

    Printed as `schema.name`, with a part in double quotes, as in SQL, that has a dot or a double
    quote: `public."v1.0"`. So two tables are never printed alike.
    """

    schema: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what is printed; of a text with more dots than that, the last one ends the schema,
        as in earlier releases. `meant` also finds tables by their `plain` names."""
        if found := _EXACT.fullmatch(text):
            return cls(_unquoted(found["schema"] or ""), _unquoted(found["name"]))
        schema, _, name = text.rpartition(".")
        return cls(schema, name)

    def __str__(self) -> str:
        return f"{_quoted(self.schema)}.{_quoted(self.name)}" if self.schema else _quoted(self.name)

    @property
    def plain(self) -> str:
        """Schema and name without quotes, as patterns and records of earlier releases have them;
        two tables may have the same."""
        return f"{self.schema}.{self.name}" if self.schema else self.name


def _quoted(part: str) -> str:
    return '"' + part.replace('"', '""') + '"' if _QUOTED.search(part) else part


def _unquoted(part: str) -> str:
    return part[1:-1].replace('""', '"') if part.startswith('"') else part


def is_printed(text: str) -> bool:
    """Whether a text is as `TableId` prints it; names of earlier releases may not be."""
    if '"' not in text:
        return text.count(".") <= 1
    return str(TableId.parse(text)) == text


def printed(text: str) -> str:
    """A name as `TableId` prints it, where it says which part is which, as `public.v1.0` does
    not."""
    return str(TableId.parse(text)) if _EXACT.fullmatch(text) else text


def named(text: str, known: Iterable[str], *, where: str) -> str:
    """The printed name, among those `known`, of the table that a person means: that which is
    written so, or the one that is written so without quotes; the text itself where there is none.

    Raises UsageError where there are several.
    """
    names = {*known}
    if (exact := printed(text)) in names:
        return exact
    found = sorted(name for name in names if TableId.parse(name).plain == text)
    if len(found) > 1:
        raise UsageError(
            f"{text} may be {' or '.join(found)}",
            where=where,
            hint="Write the name with its quotes.",
        )
    return found[0] if found else text


def of_table(settings: Mapping[str, Value], table: TableId) -> Value | None:
    """What settings by name say of a table, whose name may be without its quotes there."""
    found = settings.get(str(table))
    return settings.get(table.plain) if found is None else found


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
