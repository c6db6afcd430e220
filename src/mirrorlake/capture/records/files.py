"""Reading and writing one record, also what an earlier release recorded of tables."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from mirrorlake.capture.records.names import EVENTS, FLEETING
from mirrorlake.errors import RecordDamaged
from mirrorlake.landing import layout
from mirrorlake.model.crash_points import CrashHook, no_crash
from mirrorlake.model.landed import DEFAULT_STREAM, FORMAT, LaterFormat
from mirrorlake.model.table import TableId, Value, is_printed
from mirrorlake.storage.store import Store, read_record

LOST = (
    "Restore it from a backup. Without one, run `mirrorlake reset --all` to load all tables again."
)

UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError)
"""Errors of reading a record that another program has written."""


@dataclass(slots=True)
class RecordFiles:
    """The files of one stream in a zone. reached: called behind those by which a change of a schema
    is followed. forgets: what is damaged is read as if it were not there, for who forgets
    everything. Otherwise RecordDamaged is raised."""

    store: Store
    zone: str
    stream_id: str = DEFAULT_STREAM
    reached: CrashHook = field(default=no_crash, repr=False, compare=False)
    forgets: bool = False

    @property
    def folder(self) -> str:
        return layout.stream_folder(self.zone, self.stream_id)

    def _tables(self, path: str) -> dict[str, Any]:
        return self._printed(self._read(path).get("tables", {}))

    def _printed(self, tables: Mapping[str, Value]) -> dict[str, Value]:
        """What is recorded of tables, by the names that are printed now: an earlier release put no
        part of a name in quotes."""
        if all(map(is_printed, tables)):
            return dict(tables)
        delivered = self._delivered()
        found = {name: one for name, one in tables.items() if is_printed(name)}
        for former in tables.keys() - found.keys():
            for name in self.printed_names(former, delivered):
                found.setdefault(name, tables[former])
        return found

    def printed_names(self, text: str, delivered: Collection[TableId] | None = None) -> list[str]:
        """As in `layout`, also of tables of which event files were written. delivered: these, if
        they are known."""
        names = layout.printed_names(self.store, self.zone, text)
        if all(map(is_printed, names)):
            return names
        known = self._delivered() if delivered is None else delivered
        return [str(table) for table in known if table.plain == text] or names

    def _delivered(self) -> set[TableId]:
        """The tables of which event files were written; the record names their parts."""
        try:
            stored = json.loads(self.store.read(f"{self.folder}/{EVENTS}"))
            states = [*stored["destinations"].values()] if "destinations" in stored else [stored]
            tables = [facts for state in states for facts in state["tables"].values()]
            return {TableId(facts["schema"], facts["name"]) for facts in tables}
        except UNREADABLE:
            return set()

    def _read(self, path: str) -> dict[str, Any]:
        try:
            record = read_record(self.store, f"{self.folder}/{path}", LOST)
        except FileNotFoundError:
            return {}
        except RecordDamaged:
            if self.forgets or path in FLEETING:
                return {}
            raise
        if record["format"] != FORMAT:
            raise LaterFormat(
                f"{path} has format {record['format']}; this release reads format {FORMAT}"
            )
        return record

    def _write(self, path: str, record: dict[str, Any]) -> None:
        stored = {"format": FORMAT, "stream_id": self.stream_id, **record}
        content = json.dumps(stored, indent=1, ensure_ascii=False)
        self.store.replace(f"{self.folder}/{path}", content.encode())
