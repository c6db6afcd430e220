"""What a run did, table by table: kept for the caller, and logged as it happens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import structlog

from mirrorlake.errors import MirrorlakeError, TableError
from mirrorlake.mirror.engine import Applied
from mirrorlake.mirror.steps import ApplyFiles, TablePlan
from mirrorlake.model.table import TableId

log = structlog.get_logger()

BATCH_APPLIED = "batch_applied"
TABLE_FAILED = "table_failed"
TABLE_REMOVED = "table_removed"
TABLE_WAITS = "table_waits"


@dataclass(frozen=True, slots=True)
class TableReport:
    """What a run did to one table.

    last_file: its number, or its name in timestamp mode; duplicates: rows beyond the first of a key
    that were replaced or deleted (LZ-088, LZ-089); error: why it has stopped; waiting: for what,
    in words; is_gone: its folder is missing.
    """

    table: TableId
    path: str
    version: int | None = None
    last_file: int | str = 0
    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    commits: int = 0
    duplicates: int = 0
    error: TableError | None = None
    waiting: str = ""
    is_gone: bool = False


@dataclass(slots=True)
class ApplyReport:
    """What a run did, by table name. stopped_targets: the tables built from change feeds that could
    not be brought up to date, and why. gone_files: the event files whose dead letters were dropped
    because they are not there any more."""

    tables: dict[TableId, TableReport] = field(default_factory=dict)
    stopped_targets: dict[TableId, MirrorlakeError] = field(default_factory=dict)
    gone_files: list[str] = field(default_factory=list)

    @property
    def errors(self) -> list[TableError]:
        return [t.error for t in self.tables.values() if t.error is not None]

    def deleted(self, gone: Sequence[TablePlan]) -> None:
        """Take note of the tables whose folders are missing, and of those whose are back."""
        missing = {table.table for table in gone}
        for table in gone:
            known = self.tables.get(table.table)
            if known is None or known.waiting != table.waiting:
                log.warning(TABLE_WAITS, table=str(table.table), reason=table.waiting)
            self._set(table.table, table.path, error=None, waiting=table.waiting, is_gone=True)
        for back in [table for table in self.tables.values() if table.is_gone]:
            if back.table not in missing:
                self._set(back.table, back.path, waiting="", is_gone=False)

    def removed(self, table: TableId) -> None:
        """A table was dropped."""
        known = self.tables.pop(table, None)
        log.info(TABLE_REMOVED, table=str(table), path=known.path if known else None)

    def note(self, planned: Sequence[TablePlan]) -> None:
        """Take note of the tables that stand still, and of those that no longer do.

        An error ends with the folder it was found in.
        """
        present = {table.table for table in planned}
        for gone in [table for table in self.tables.values() if table.error is not None]:
            if gone.table not in present:
                self._set(gone.table, gone.path, error=None)
        for table in planned:
            known = self.tables.get(table.table)
            if table.error is not None:
                self.fail(table.table, table.path, table.error)
            elif known is not None and known.is_gone:
                pass  # what is left of its folder says nothing
            elif known is None or known.error is not None or known.waiting != table.waiting:
                if table.waiting:
                    log.info(TABLE_WAITS, table=str(table.table), reason=table.waiting)
                self._set(table.table, table.path, error=None, waiting=table.waiting)

    def fail(self, table: TableId, path: str, error: TableError) -> None:
        """A table stops. It is said once, however often it is found again."""
        known = self.tables.get(table)
        if known is None or known.error is None or str(known.error) != str(error):
            log.error(
                TABLE_FAILED,
                table=str(table),
                code=error.code,
                file=error.file,
                row=error.row,
                column=error.column,
                hint=error.hint,
            )
        self._set(table, path, error=error, waiting="")

    def add(self, step: ApplyFiles, applied: Applied) -> None:
        """A batch is in its table."""
        counts = applied.counts
        log.info(
            BATCH_APPLIED,
            table=str(step.table),
            first=step.first,
            last=step.last,
            files=len(step.names) or None,
            version=applied.version,
            inserted=counts.insert,
            updated=counts.update,
            deleted=counts.delete,
            duplicates=counts.duplicates or None,
        )
        known = self.tables.get(step.table) or TableReport(step.table, step.path)
        self._set(
            step.table,
            step.path,
            version=applied.version,
            last_file=step.names[-1] if step.names else step.last,
            inserts=known.inserts + counts.insert,
            updates=known.updates + counts.update,
            deletes=known.deletes + counts.delete,
            commits=known.commits + 1,
            duplicates=known.duplicates + counts.duplicates,
        )

    def _set(self, table: TableId, path: str, **facts: object) -> None:
        known = self.tables.get(table) or TableReport(table, path)
        self.tables[table] = replace(known, **facts)  # type: ignore[arg-type]
