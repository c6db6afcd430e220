"""Of each table: whether it is stopped, by what it is recognised, and where it was truncated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mirrorlake.capture.records.files import RecordFiles
from mirrorlake.capture.records.names import KNOWN, STOPPED, TRUNCATED
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.model.table import TableId, is_printed
from mirrorlake.sources.table import KnownTables


class TableRecords(RecordFiles):
    """`stopped.json`, `known.json` and `truncated.json`."""

    __slots__ = ()

    def stopped(self) -> dict[str, dict[str, Any]]:
        """Table name to the error that stopped its capture."""
        return self._tables(STOPPED)

    def failed(self) -> dict[str, dict[str, Any]]:
        """Those of `stopped` that are errors."""
        return {name: error for name, error in self.stopped().items() if not error.get("ignored")}

    def dropped(self) -> dict[str, dict[str, Any]]:
        """Those of `stopped` that are no errors: dropped in the source."""
        return {name: error for name, error in self.stopped().items() if error.get("ignored")}

    def stop(self, table: str, error: Mapping[str, Any]) -> None:
        self._write_stopped(self.stopped() | {table: dict(error)})

    def go_on(self, table: str) -> None:
        """The table is no longer stopped."""
        stopped = self.stopped()
        if stopped.pop(table, None) is not None:
            self._write_stopped(stopped)

    def _write_stopped(self, tables: Mapping[str, Any]) -> None:
        self._write(STOPPED, {"tables": dict(tables)})
        self.reached(CrashPoint.STOPPED_RECORDED)

    def known(self) -> dict[str, dict[str, Any]]:
        """Table name to `SourceTable.known`, as far as it counts; see `confirm`."""
        return self._tables(KNOWN)

    def know(self, tables: KnownTables, at: str = "") -> None:
        """By what tables are known from a point on, which counts from the next `confirm` on that
        covers it; without a point from now on."""
        noted = {str(table): dict(known) for table, known in tables.items()}
        known, pending = self.known(), self._pending()
        if at:
            self._know(known, [*pending, {"at": at, "tables": noted}])
            self.reached(CrashPoint.KNOWN_NOTED)
            return
        for entry in pending:
            entry["tables"] = {n: facts for n, facts in entry["tables"].items() if n not in noted}
        self._know(known | noted, pending)
        self.reached(CrashPoint.KNOWN_RECORDED)

    def confirm(self, is_durable: Callable[[str], bool], *, at_start: bool = False) -> None:
        """Let everything count that is known from points on that are durable. at_start: what else
        is noted does not hold, because it will be reported again."""
        known, pending = self.known(), self._pending()
        if not pending:
            return
        for entry in pending:
            known |= entry["tables"] if is_durable(entry["at"]) else {}
        left = [] if at_start else [entry for entry in pending if not is_durable(entry["at"])]
        if len(left) < len(pending):
            self._know(known, left)
            self.reached(CrashPoint.KNOWN_RECORDED)

    def _pending(self) -> list[dict[str, Any]]:
        pending = self._read(KNOWN).get("pending", ())
        return [entry | {"tables": self._printed(entry["tables"])} for entry in pending]

    def _know(
        self, known: Mapping[str, Mapping[str, Any]], pending: Sequence[Mapping[str, Any]]
    ) -> None:
        left = [entry for entry in pending if entry["tables"]]
        self._write(KNOWN, {"tables": known} | ({"pending": left} if left else {}))

    def truncated(self) -> dict[str, dict[str, str]]:
        """Table name to `position` and `generation` of its last truncation (strict zones), and to
        `schema` and `identity` of the table."""
        found: dict[str, dict[str, str]] = self._read(TRUNCATED).get("tables", {})
        # The folder of one may be deleted; of an earlier release its schema says what is its name.
        for former in [name for name in found if not is_printed(name)]:
            if schema := found[former].get("schema"):
                name = str(TableId(schema, former.removeprefix(f"{schema}.")))
                found.setdefault(name, found.pop(former))
        return self._printed(found)

    def truncate(
        self, table: TableId, position: str, generation: str, identity: str | None = None
    ) -> None:
        entry = {"position": position, "generation": generation}
        entry |= {"schema": table.schema, "identity": identity} if identity else {}
        self._write_truncated(self.truncated() | {str(table): entry})

    def _write_truncated(self, tables: Mapping[str, Any]) -> None:
        self._write(TRUNCATED, {"tables": dict(tables)})
        self.reached(CrashPoint.TRUNCATED_RECORDED)
