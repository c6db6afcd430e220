"""What a project says of a bucket of events, and of the tables that are made of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from mirrorlake.events.envelope import EventSource
from mirrorlake.model.table import TableId
from mirrorlake.storage.urls import StorageLocation

_OF_DATASET = re.compile(r"[^A-Za-z0-9_]")
_OF_TABLE = re.compile(r"[/$.@+]")
STRICT_ORACLE = "oracle-strict"


@dataclass(frozen=True, slots=True)
class EventInput:
    """Where event files are, and what becomes of them.

    location: a folder, or a URL and how to access it; path: the folder below it. extensions: of the
    files that are read; all files without. source: of the events, where their `read_method` does
    not name it. is_append: every event is kept (ST-236). keys: the key columns of tables whose
    events name none, by schema and table (ST-250). guard: by how much a change may be older than a
    backfill and win (ST-217). look_back: for how long minute folders are looked into again
    (ST-178). dataset: the one schema of all tables; prefix: of the schemas otherwise (ST-241).
    strict_oracle: order Oracle as ST-190 says. poll_seconds: between two looks for new files.
    """

    location: StorageLocation | Path
    path: str = ""
    extensions: tuple[str, ...] = ()
    source: EventSource | None = None
    is_append: bool = False
    keys: Mapping[str, Sequence[str]] = field(default_factory=dict)
    guard: timedelta = timedelta(minutes=30)
    look_back: timedelta = timedelta(days=3)
    dataset: str | None = None
    prefix: str = ""
    strict_oracle: bool = False
    poll_seconds: float = 2.0

    @property
    def described(self) -> str:
        """The place, for people."""
        location = self.location
        url = location.url if isinstance(location, StorageLocation) else str(location)
        return f"{url}/{self.path}".removesuffix("/")

    def rule(self, source: EventSource) -> str:
        """By which rule the events of a source are ordered (ST-206)."""
        strict = self.strict_oracle and source is EventSource.ORACLE
        return STRICT_ORACLE if strict else str(source)

    def table(self, namespace: str, name: str) -> TableId:
        """The table of events of a schema or database and a table (ST-241, ST-245)."""
        if self.dataset is not None:
            joined = "_".join(filter(None, [namespace, name]))
            return TableId(self.dataset, _OF_TABLE.sub("_", joined))
        dataset = "_".join(filter(None, [self.prefix, namespace]))
        return TableId(_OF_DATASET.sub("_", dataset), _OF_TABLE.sub("_", name))


def event_name(namespace: str, name: str) -> str:
    """How `keys` names the table of events."""
    return f"{namespace}.{name}" if namespace else name
