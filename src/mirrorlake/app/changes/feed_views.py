"""Views of change feeds for the catalog of a Spark (CF-180)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from mirrorlake.app.stores import store_of
from mirrorlake.config import Project
from mirrorlake.delta.tables import delta_tables
from mirrorlake.errors import FeedError, UsageError, tables_like
from mirrorlake.feed.bounds import FeedRequest
from mirrorlake.feed.reader import Feed
from mirrorlake.model.table import named
from mirrorlake.root import table_at

END = "_changes"
"""What the name of a view ends with, after that of its table."""


@dataclass(frozen=True, slots=True)
class FeedView:
    """A view of the changes of a table, from the version `first` to the newest one at each query.

    database, name: of the view in the catalog; location: of the table.
    """

    table: str
    database: str
    name: str
    location: str
    first: int

    @property
    def temporary(self) -> str:
        """What creates the view in a session alone, without its database, in the SQL of Spark."""
        return f"create or replace temporary view {_identifier(self.name)} as {self._query}"

    @property
    def statements(self) -> list[str]:
        """What creates the view, or replaces an earlier one, in the SQL of Spark 4.2 and later.

        Earlier ones refuse a view in a catalog over a function that Delta brings.
        """
        database = _identifier(self.database)
        view = f"{database}.{_identifier(self.name)}"
        return [
            f"create database if not exists {database}",
            f"create or replace view {view} as {self._query}",
        ]

    @property
    def _query(self) -> str:
        changes = f"table_changes_by_path({_string(self.location)}, {self.first})"
        return f"select * from {changes}"  # noqa: S608  (quoted)

    def facts(self) -> dict[str, Any]:
        named = f"{self.database}.{self.name}"
        return {
            "table": self.table,
            "view": named,
            "first": self.first,
            "statements": self.statements,
        }


def feed_views(
    project: Project, tables: Collection[str] = (), database: str | None = None
) -> list[FeedView]:
    """A view of each table whose changes can be read, or of some tables. Starts no JVM.

    A view begins with the first readable version that Delta reads in one piece with the newest
    one. database: of all views; without one that of each is the schema of its table. Raises
    UsageError for a table that there is not, and FeedError for a named one without a feed.
    """
    store = store_of(project)
    names = {str(table_at(path)): path for path in delta_tables(store)}
    tables = {named(name, names, where=project.name) for name in tables}
    if unknown := sorted(set(tables) - names.keys()):
        raise UsageError(
            f"there is no table {unknown[0]}",
            where=project.name,
            hint=tables_like(unknown[0], names, "none yet"),
        )
    found = []
    for name in sorted(tables or names):
        location, options = store.location(names[name]), store.options(names[name])
        request = FeedRequest.of(location, from_beginning=True, on_gap="report")
        try:
            feed = Feed(request, options)
        except FeedError:
            if tables:
                raise
            continue
        table = table_at(names[name])
        if feed.ranges:
            first = feed.ranges[-1].first
            found.append(
                FeedView(
                    name, database or table.schema or "default", table.name + END, location, first
                )
            )
        elif tables:
            feed = Feed(FeedRequest.of(location, from_version=feed.plan.latest), options)  # raises
    return found


def _identifier(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _string(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
