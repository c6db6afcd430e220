"""The settings of a bucket of event files and of the tables built from them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from mirrorlake.events.envelope import EventSource
from mirrorlake.events.types import UnifiedType
from mirrorlake.model.table import TableId
from mirrorlake.storage.urls import StorageLocation

_OF_DATASET = re.compile(r"[^A-Za-z0-9_]")
_OF_TABLE = re.compile(r"[/$.@+]")
STRICT_ORACLE = "oracle-strict"


@dataclass(frozen=True, slots=True)
class EventInput:
    """Where event files are, and how they are applied.

    location: a folder, or a URL and how to access it; path: the folder below it.
    extensions: of the files to read; empty for all files.
    source: of the events, if their `read_method` does not name it.
    is_append: keep every event (ST-236).
    keys: key columns for tables whose events name none, by schema and table (ST-250).
    types: of columns that have other types than the events, by schema and table and by name.
    guard: how much older than a backfill a change may be to still win (ST-217).
    look_back: how long minute folders are listed again (ST-178).
    retention: how long events are remembered that determine no row.
    dataset: one schema for all tables; prefix: of the schemas otherwise (ST-241).
    strict_oracle: order Oracle's events as in ST-190.
    metadata_columns: whether rows have the position and the time of their event.
    poll_seconds: interval between two listings.
    keeps_changes: whether each commit keeps every change of keys that it changes several times,
        beside the table.
    """

    location: StorageLocation | Path
    path: str = ""
    extensions: tuple[str, ...] = ()
    source: EventSource | None = None
    is_append: bool = False
    keys: Mapping[str, Sequence[str]] = field(default_factory=dict)
    types: Mapping[str, Mapping[str, UnifiedType]] = field(default_factory=dict)
    guard: timedelta = timedelta(minutes=30)
    look_back: timedelta = timedelta(days=3)
    retention: timedelta = timedelta(days=30)
    dataset: str | None = None
    prefix: str = ""
    strict_oracle: bool = False
    metadata_columns: bool = False
    poll_seconds: float = 2.0
    keeps_changes: bool = False

    @property
    def described(self) -> str:
        """The location, for people."""
        location = self.location
        url = location.url if isinstance(location, StorageLocation) else str(location)
        return f"{url}/{self.path}".removesuffix("/")

    def inside(self, path: str) -> str:
        """A path in the store below the folder of the files."""
        return path.removeprefix(self.path).strip("/")

    def rule(self, source: EventSource) -> str:
        """The rule that orders the events of a source (ST-206)."""
        strict = self.strict_oracle and source is EventSource.ORACLE
        return STRICT_ORACLE if strict else str(source)

    def table(self, namespace: str, name: str) -> TableId:
        """The table for events of a schema or database and a table (ST-241, ST-245)."""
        if self.dataset is not None:
            joined = "_".join(filter(None, [namespace, name]))
            return TableId(self.dataset, _OF_TABLE.sub("_", joined))
        dataset = "_".join(filter(None, [self.prefix, namespace]))
        return TableId(_OF_DATASET.sub("_", dataset), _OF_TABLE.sub("_", name))


def source_table(name: str) -> TableId:
    """The parts of a name that `TableEvents.name` has, whose namespace is in quotes where it has
    dots."""
    if name.startswith('"'):
        namespace, _, table = name[1:].partition('".')
    else:
        namespace, dot, table = name.partition(".")
        if not dot:
            namespace, table = "", namespace
    return TableId(namespace, table)


def event_name(namespace: str, name: str) -> str:
    """The name of a table in `keys`, which may have quotes there as `TableId` prints it."""
    return f"{namespace}.{name}" if namespace else name
