"""Where the Delta tables of landing folders are, those of earlier releases included."""

from __future__ import annotations

from mirrorlake.delta.log.table_log import BrokenLog, TableLog
from mirrorlake.landing.scan import TableScan
from mirrorlake.mirror.table.progress import FOLDER
from mirrorlake.root import delta_path, earlier_path
from mirrorlake.storage.store import Store, UnsafePath


class TablePaths:
    """Looks into the store once for each folder whose table may lie under its unescaped name."""

    def __init__(self, store: Store, default_schema: str | None) -> None:
        self._store, self._schema = store, default_schema
        self._known: dict[tuple[str, str], str] = {}

    def of(self, scan: TableScan) -> str:
        """The path of its table, whether there is one or not. A table stays where it is."""
        path = delta_path(scan.table, self._schema)
        earlier = earlier_path(scan.table, self._schema)
        if path == earlier:
            return path
        folder = scan.folder.path
        if (folder, path) not in self._known:
            try:
                found = earlier if self._is_of(earlier, folder) else path
            except (OSError, BrokenLog):
                return earlier  # it may be there: a table is not made a second time
            self._known[folder, path] = found
        return self._known[folder, path]

    def _is_of(self, path: str, folder: str) -> bool:
        """Whether the table at a path, if there is one, was made of a folder: `Tables/a/b` may be
        the table b of the schema a, or the table a/b. Raises OSError, BrokenLog."""
        try:
            metadata = TableLog.below(self._store, path).snapshot().metadata
        except (UnsafePath, NotADirectoryError):
            return False
        return bool(metadata) and (metadata.get("configuration") or {}).get(FOLDER) == folder
