"""The columns of a table whose changes are copied to something that knows columns by name alone."""

from __future__ import annotations

from collections.abc import Sequence

from mirrorlake.delta.log.table_log import TableLog
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
        self._version, self._schema = version, None

    def go_on(self, version: int) -> None:
        """The changes up to a version are copied next. Raises FeedError `schema_changed` when a
        name is that of another column than before."""
        for between in range(self._version + 1, version + 1):
            for action in self._log.actions(between):
                if "metaData" in action:
                    self._alter(parse(action["metaData"]), between)
        self._version = version

    def key(self, columns: Sequence[str]) -> tuple[str, ...]:
        """The names that the key columns of the newest version have here."""
        newest = parse(self._log.snapshot().metadata)
        here = dict(zip(self._known.physical, self._known.schema.names, strict=True))
        there = dict(zip(newest.schema.names, newest.physical, strict=True))
        return tuple(here.get(there.get(name, name), name) for name in columns)

    @property
    def _known(self) -> TableSchema:
        if self._schema is None:
            self._schema = parse(self._log.snapshot_at(self._version).metadata)
        return self._schema

    def _alter(self, now: TableSchema, version: int) -> None:
        if self._version >= 0 and (column := reused_name(self._known, now)) is not None:
            raise FeedError(
                f"version {version} renamed column {column}, or gave its name to another column, "
                "which the copy cannot express",
                reason=FeedReason.SCHEMA_CHANGED,
                table=self._table,
                hint=self._hint,
            )
        self._schema = now
