"""The columns of a table whose changes are copied to something that knows columns by name alone."""

from __future__ import annotations

from collections.abc import Sequence

from mirrorlake.delta.log.table_log import BrokenLog, TableLog
from mirrorlake.delta.schema import TableSchema, parse
from mirrorlake.errors import FeedError
from mirrorlake.feed.reasons import FeedReason
from mirrorlake.feed.widening import reused_name


class FollowedColumns:
    """The columns of a table at the version up to which it is copied.

    With column mapping a name may go from one column to another, without changes in the feed: what
    is copied so far would keep the values of the former one.
    """

    def __init__(self, table: str, log: TableLog, hint: str) -> None:
        """hint: what to do where the copy cannot go on."""
        self._table, self._log, self._hint = table, log, hint
        self._version = -1
        self._schema: TableSchema | None = None

    def begin(self, version: int) -> None:
        """The table is copied as of a version."""
        self._version, self._schema = version, self._at(version)

    def go_on(self, version: int) -> None:
        """The changes up to a version are copied next. Raises FeedError `schema_changed` when a
        name is that of another column than before."""
        for between in range(self._version + 1, version + 1):
            for action in self._log.actions(between):
                if "metaData" in action:
                    self._alter(parse(action["metaData"]), between)
        self._version = version
        self._schema = self._schema or self._at(version)

    def key(self, columns: Sequence[str]) -> tuple[str, ...]:
        """The names that the key columns of the newest version have here."""
        if self._schema is None:
            return tuple(columns)
        newest = parse(self._log.snapshot().metadata)
        here = dict(zip(self._schema.physical, self._schema.schema.names, strict=True))
        there = dict(zip(newest.schema.names, newest.physical, strict=True))
        return tuple(here.get(there.get(name, name), name) for name in columns)

    def _at(self, version: int) -> TableSchema | None:
        """The columns at a version; None when the log no longer has it."""
        try:
            return parse(self._log.snapshot_at(version).metadata)
        except (FileNotFoundError, BrokenLog):
            return None

    def _alter(self, now: TableSchema, version: int) -> None:
        is_mapped = list(now.physical) != now.schema.names
        if self._schema is None and is_mapped:
            raise self._refused(
                f"version {version} may have renamed columns, and the log has nothing of before"
            )
        if self._schema and (column := reused_name(self._schema, now)) is not None:
            raise self._refused(
                f"version {version} renamed column {column}, or gave its name to another column, "
                "which the copy cannot express"
            )
        self._schema = now

    def _refused(self, what: str) -> FeedError:
        return FeedError(what, reason=FeedReason.SCHEMA_CHANGED, table=self._table, hint=self._hint)
