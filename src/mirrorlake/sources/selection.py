"""Which tables, columns and rows a project mirrors."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from mirrorlake.model.table import TableId, of_table

_SHOWN = 20
"""Names in a message."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Patterns as in `public.*`; one that begins with `!` takes away what the others gave.

    tables: patterns of `schema.table`; columns: pattern of a table to patterns of its columns;
    rows: name of a table to a condition in the source's SQL. Names of tables count with and without
    their quotes.
    named: what `columns` was made of, if its patterns have what is said of several: each one counts
    for all tables that it matches, and `idle_columns` looks at them instead.
    """

    tables: tuple[str, ...] = ("*.*",)
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    rows: Mapping[str, str] = field(default_factory=dict)
    named: Sequence[tuple[str, Sequence[str]]] = ()

    def takes(self, table: TableId) -> bool:
        return takes(table, self.tables)

    def columns_of(self, table: TableId, names: Sequence[str]) -> list[str]:
        """The selected ones of `names`, in their order; all when no pattern matches the table."""
        for pattern, column_patterns in self.columns.items():
            if _is_matched(table, pattern):
                return [name for name in names if matches(name, column_patterns)]
        return list(names)

    def condition_of(self, table: TableId) -> str | None:
        return of_table(self.rows, table)

    # -- settings without effect ----------------------------------------------------------------

    def idle_tables(self, names: Iterable[TableId]) -> list[str]:
        """The patterns of `tables` that no table of the source matches."""
        known = [*names]
        return [pattern for pattern in self.tables if not _any(known, pattern)]

    def idle_columns(
        self,
        columns: Mapping[TableId, Collection[str]],
        *,
        precautions: bool = False,
        loaded: Collection[TableId] = (),
    ) -> Iterator[str]:
        """What in `columns` concerns nothing, as sentences; `columns`: of each selected table.

        With precautions also `!secret_*` and the like, which may be meant for what comes later.
        Without the patterns that match a `loaded` table.
        """
        for pattern, column_patterns, tables in self._served(columns):
            if _any(loaded, pattern):
                continue
            if not tables:
                yield f"{pattern} in source.columns matches no selected table" + (
                    " that an earlier pattern does not match" if _any(columns, pattern) else ""
                )
                continue
            known = {name for table in tables for name in columns[table]}
            for column in column_patterns:
                if not _any(known, column) and (precautions or not _is_precaution(column)):
                    there = ", ".join(sorted(known)[:_SHOWN])
                    more = ", ..." if len(known) > _SHOWN else ""
                    yield (
                        f"{column} in source.columns, {pattern}, matches none of the columns "
                        f"{there}{more}"
                    )

    def _served(
        self, selected: Iterable[TableId]
    ) -> Iterator[tuple[str, Sequence[str], list[TableId]]]:
        """The patterns of tables, with those of their columns and the tables that they concern."""
        if self.named:
            for pattern, columns in self.named:
                yield pattern, columns, [one for one in selected if _is_matched(one, pattern)]
            return
        served: dict[str, list[TableId]] = {pattern: [] for pattern in self.columns}
        for table in selected:
            if first := next((p for p in served if _is_matched(table, p)), None):
                served[first].append(table)
        for pattern, tables in served.items():
            yield pattern, self.columns[pattern], tables

    def idle_rows(self, names: Collection[TableId]) -> Iterator[str]:
        """What in `rows` concerns no selected table, as sentences."""
        known = {printed for name in names for printed in (str(name), name.plain)}
        for name in self.rows:
            if name not in known:
                yield f"{name} in source.rows is not a selected table"


def _is_precaution(pattern: str) -> bool:
    return pattern.startswith("!") and not set(pattern).isdisjoint("*?[")


def _any(names: Iterable[TableId | str], pattern: str) -> bool:
    return any(_is_matched(name, pattern.removeprefix("!")) for name in names)


def _is_matched(name: TableId | str, pattern: str) -> bool:
    if isinstance(name, str):
        return fnmatchcase(name, pattern)
    return fnmatchcase(name.plain, pattern) or fnmatchcase(str(name), pattern)


def takes(table: TableId, patterns: Sequence[str]) -> bool:
    """Whether patterns take a table, whose name counts with and without its quotes."""
    return _takes(table, patterns)


def matches(name: str, patterns: Sequence[str]) -> bool:
    """At least one pattern takes the name, and none that begins with `!` does."""
    return _takes(name, patterns)


def _takes(name: TableId | str, patterns: Sequence[str]) -> bool:
    refused = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    taken = [pattern for pattern in patterns if not pattern.startswith("!")] or ["*"]
    return any(_is_matched(name, p) for p in taken) and not any(
        _is_matched(name, p) for p in refused
    )
