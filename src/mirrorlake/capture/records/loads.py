"""Which tables are loaded, and which folders were deleted with their tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from mirrorlake.capture.records.files import RecordFiles
from mirrorlake.capture.records.names import DELETED, LOADS
from mirrorlake.model.crash_points import CrashPoint


class LoadRecords(RecordFiles):
    """`loads.json` and `deleted.json`."""

    __slots__ = ()

    def loads(self) -> dict[str, bool | None] | None:
        """By table name whether its rows are loaded, None where that is decided when it begins
        anew; None where all are."""
        found = self._read(LOADS)
        return self._printed(found["tables"]) if found else None

    def write_loads(
        self, tables: Mapping[str, bool | None], first: Collection[str] | None = None
    ) -> None:
        """first: as `load_first` returns them from now on; None leaves them."""
        first = self.load_first() if first is None else first
        self._write(LOADS, {"tables": dict(tables)} | ({"first": sorted(first)} if first else {}))
        self.reached(CrashPoint.LOADS_RECORDED)

    def load_first(self) -> set[str]:
        """The tables whose rows cannot be read beside their changes."""
        return {*(self._read(LOADS) or {}).get("first", ())}

    def note_load_first(self, table: str) -> None:
        """The rows of the table cannot be read beside its changes."""
        self.write_loads(self.loads() or {}, self.load_first() | {table})

    def unloaded(self) -> set[str]:
        """The tables whose rows are not loaded."""
        return {name for name, is_loaded in (self.loads() or {}).items() if is_loaded is False}

    def load_rows(self, table: str) -> None:
        """The rows of the table are loaded, or will be."""
        loads = self.loads()
        if loads is not None and not loads.get(table, False):
            self.write_loads({**loads, table: True})

    def load_anew(self, table: str) -> None:
        """The table begins anew, and its rows are loaded, before changes or beside them."""
        loads = self.loads()
        if loads is not None and loads.get(table, False) is not None:
            self.write_loads({**loads, table: None})

    def deleted(self) -> dict[str, str]:
        """By table name the folders of those that were dropped in the source, which are deleted, or
        will be."""
        return self._tables(DELETED)

    def note_deleted(self, table: str, folder: str) -> None:
        """A folder is about to be deleted because its table was dropped in the source."""
        if (known := self.deleted()).get(table) != folder:
            self._write(DELETED, {"tables": known | {table: folder}})
            self.reached(CrashPoint.DELETED_RECORDED)

    def note_filled(self, folders: Collection[str]) -> None:
        """Tables are about to be loaded into these folders."""
        known = self.deleted()
        left = {name: folder for name, folder in known.items() if folder not in folders}
        if left != known:
            self._write(DELETED, {"tables": left})
