"""A moment for each table, kept beside the leases: who loses it loses time, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime

from mirrorlake.model.landed import format_time, parse_time
from mirrorlake.storage.store import Store


class Dates:
    """The record at `record`: moments by the paths of tables."""

    def __init__(self, store: Store, record: str) -> None:
        self._store, self._path = store, record

    def read(self) -> dict[str, datetime]:
        """What is noted; nothing where there is no record, or none that can be read."""
        try:
            found = json.loads(self._store.read(self._path))["tables"]
            return {str(path): parse_time(time) for path, time in found.items()}
        except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
            return {}

    def write(self, dates: Mapping[str, datetime]) -> None:
        """Replace what is noted."""
        tables = {path: format_time(time) for path, time in sorted(dates.items())}
        self._store.replace(self._path, json.dumps({"tables": tables}, indent=1).encode())
