"""The columns of a table whose changes are copied to something that knows columns by name alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from mirrorlake.delta.log.table_log import BrokenLog, TableLog
from mirrorlake.delta.schema import TableSchema, UnknownColumnType, parse
from mirrorlake.errors import FeedError
from mirrorlake.feed.reasons import FeedReason
from mirrorlake.feed.widening import names_in, reused_name
from mirrorlake.mirror.table.progress import key_columns


class FollowedColumns:
    """The columns of a table at the version up to which it is copied.

    With column mapping a name may go from one column to another, without changes in the feed: what
    is copied so far would keep the values of the former one.
    """

    def __init__(self, table: str, log: TableLog, key: Sequence[str], hint: str) -> None:
        """key: by the names in the newest version; hint: what to do where the copy cannot go on."""
        self._table, self._log, self._hint = table, log, hint
        self._key, self._named = tuple(key), _schema(log.snapshot().metadata)
        self._version: int | None = None
        self._schema: TableSchema | None = None
        self._metadata: Mapping[str, Any] = {}

    @property
    def schema(self) -> TableSchema | None:
        """The columns; None when the log no longer has them."""
        return self._schema

    @property
    def has_present_key(self) -> bool:
        """Whether the mirror found rows by the columns that are the key in the newest version."""
        return key_columns(self._metadata.get("configuration") or {}) == self.key

    @property
    def key(self) -> tuple[str, ...]:
        """The key, by the names that its columns have here."""
        if self._schema is None or self._named is None:
            return self._key
        return names_in(self._schema, self._key, self._named)

    def go_on(self, version: int) -> None:
        """The table is copied up to a version. Raises FeedError `schema_changed` when since the
        last one a name became that of another column."""
        for between in range(version if self._version is None else self._version, version):
            for action in self._log.actions(between + 1):
                if "metaData" in action and (now := _schema(action["metaData"])):
                    self._alter(now, between + 1)
                    self._metadata = action["metaData"]
        self._version = version
        if self._schema is None:
            self._begin(version)

    def _begin(self, version: int) -> None:
        """Read the columns of a version, if the log still has them."""
        with suppress(FileNotFoundError, BrokenLog):
            self._metadata = self._log.metadata_at(version)
            self._schema = _schema(self._metadata)

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


def _schema(metadata: Mapping[str, Any]) -> TableSchema | None:
    """The columns of a metaData action; None when one has a type that nobody copies."""
    try:
        return parse(metadata)
    except UnknownColumnType:
        return None
