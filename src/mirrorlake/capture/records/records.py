"""All records of a stream, and what concerns several of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mirrorlake.capture.records.admission import AdmissionRecords
from mirrorlake.capture.records.loads import LoadRecords
from mirrorlake.capture.records.looks import LookRecords
from mirrorlake.capture.records.names import KNOWN, OF_TABLES, TRUNCATED
from mirrorlake.capture.records.source_state import SourceStateRecords
from mirrorlake.capture.records.stream import StreamRecords
from mirrorlake.capture.records.tables import TableRecords
from mirrorlake.model.table import is_printed


class Records(
    StreamRecords, TableRecords, LoadRecords, AdmissionRecords, LookRecords, SourceStateRecords
):
    """Reads and writes the records of one stream in a zone."""

    __slots__ = ()

    def forget(self, table: str) -> None:
        """Forget a table that starts over: what is recorded of it no longer holds."""
        _without(table, self.append_only(), self.write_append_only)
        _without(table, self.without_effect(), self.write_without_effect)
        _without(table, self.attached(), self.write_attached)
        _without(table, self.unfollowed(), self.write_unfollowed)
        _without(table, self.ignored(), self.write_ignored)
        self.go_on(table)
        _without(table, self.truncated(), self._write_truncated)
        known, pending = self.known(), self._pending()
        later = [entry for entry in pending if entry["tables"].pop(table, None) is not None]
        if known.pop(table, None) is not None or later:
            self._know(known, pending)

    def forget_all(self) -> None:
        """Forget all tables."""
        for path in OF_TABLES:
            self.store.delete(f"{self.folder}/{path}")

    def rewrite(self) -> None:
        """Write what an earlier release recorded of tables under the names that are printed now,
        while their folders, which say what these are, are there."""
        for path in OF_TABLES:
            if path != KNOWN:
                self._rewrite(path)
        if (known := self.known()).keys() != self._read(KNOWN).get("tables", {}).keys():
            self._know(known, self._pending())

    def _rewrite(self, path: str) -> None:
        record = self._read(path)
        if not all(map(is_printed, tables := record.get("tables", {}))):
            now = self.truncated() if path == TRUNCATED else self._printed(tables)
            self._write(path, {"tables": now})


def _without(table: str, found: dict[str, Any], write: Callable[[dict[str, Any]], None]) -> None:
    """Write what is recorded of other tables, if there is something of this one."""
    if found.pop(table, None) is not None:
        write(found)
