"""Lets a stream continue after changes were lost, and tables that stopped because of that.

The repair of a stream gives it a new start (`log_start.py`). That of a table, in this order, so
that it is never streamed without being compared:

    published again → backfill requested → what it is known by recorded → no longer stopped
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from mirrorlake.capture.backfill.jobs import BackfillRecords
from mirrorlake.capture.log_start import LogStart
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.records.stream import StreamRecord
from mirrorlake.capture.repair.compared import Compared
from mirrorlake.capture.sink import Sink
from mirrorlake.capture.tables import members
from mirrorlake.errors import PrerequisiteMissing, SourceGap, UsageError, names_like
from mirrorlake.model.clock import Clock
from mirrorlake.model.crash_points import CrashHook, CrashPoint
from mirrorlake.model.table import TableId, named
from mirrorlake.sources.base import Source
from mirrorlake.sources.ordered import unreadable
from mirrorlake.sources.table import SourceTable

WHERE = "repair"

SELECTED = "other columns or rows of it were selected"


@dataclass(frozen=True, slots=True)
class Repair:
    """What a repair does. reason: why the stream gets a new start, empty when it does not."""

    reason: str = ""
    compared: Compared = field(default_factory=Compared)

    @property
    def is_needed(self) -> bool:
        return bool(self.reason or self.compared.tables)

    def sentences(self) -> list[str]:
        """What is done, for a person."""
        if not self.is_needed:
            return ["There is nothing to repair: the source still has every change."]
        lines = [f"{table}: compare it with the source" for table in self.compared.tables]
        lines += [
            f"{table}: load it again, because {why}; its change feed is deleted, and begins anew"
            for table, why in self.compared.loaded
        ]
        if not self.reason:
            return lines
        lines += [f"{table}: it stays stopped" for table in self.compared.stopped]
        return [
            f"{self.reason}.",
            *lines,
            "continue at the end of the source's log",
        ]

    def facts(self) -> dict[str, Any]:
        """As `mirrorlake repair --json` prints it."""
        return {
            "reason": self.reason or None,
            "compared": [str(table) for table in self.compared.tables],
            "loaded": {str(table): why for table, why in self.compared.loaded},
            "stopped": list(self.compared.stopped),
        }


class StreamRepair:
    """Repairs one stream that is not captured now. leased: the right to do so.

    captured: the tables of the source that are captured, as discovered now.
    """

    def __init__(
        self,
        source: Source,
        records: Records,
        sinks: Sequence[Sink],
        log_start: LogStart,
        captured: Callable[[], list[SourceTable]],
        leased: Callable[[], AbstractContextManager[None]],
        clock: Clock,
        reached: CrashHook,
    ) -> None:
        self._source, self._records, self._sinks = source, records, sinks
        self._log_start, self._captured, self._leased = log_start, captured, leased
        self._clock, self._reached = clock, reached

    @property
    def refused(self) -> str:
        """Why the stream cannot be repaired; empty when it can."""
        return self._log_start.refused()

    def planned(self, tables: Sequence[str] = ()) -> Repair:
        """What `done` would do: for the stream, or for stopped tables. Changes nothing. Raises
        UsageError."""
        with self._leased():
            return self._of_tables(tables) if tables else self._of_stream()

    def done(self, tables: Sequence[str] = ()) -> Repair:
        """Do it. The next capture compares the tables. May be repeated after a crash. Raises
        UsageError, PrerequisiteMissing."""
        with self._leased():
            repair = self._of_tables(tables) if tables else self._of_stream()
            if not repair.is_needed:
                return repair
            if tables:
                self._repair_tables(repair)
            else:
                self._repair_stream(repair)
            return repair

    def of_selected(self) -> None:
        """Have tables compared that stopped because of what was selected of them, and of which
        something else is selected now. Those of which that cannot be done stay stopped. May be
        repeated after a crash."""
        if self.refused or not any(members.SELECTION in f for f in self._stopped.values()):
            return
        discovered = self._source.discover()
        for table in members.selected_again(discovered, self._records, self._sinks):
            if not unreadable(table):
                with suppress(PrerequisiteMissing):
                    self._repair_tables(Repair(compared=Compared([table.table])), SELECTED)

    @property
    def _stopped(self) -> Mapping[str, Mapping[str, Any]]:
        return self._records.stopped()

    def _of_stream(self) -> Repair:
        record = self._record()
        identity = self._source.identity()
        if identity.get("slot") != record.source.get("slot"):
            raise UsageError(
                f"source.slot was {record.source.get('slot')} and is now {identity.get('slot')}",
                where=WHERE,
                hint="Set it back in the project file.",
            )
        gap: SourceGap | None = None
        if not record.repair and (gap := self._log_start.gap(record)) is None:
            return Repair()
        discovered = [table for table in self._source.discover() if table.refused is None]
        compared = Compared.of(discovered, self._records, self._sinks)
        return Repair(record.repair or (gap.what if gap else ""), compared)

    def _repair_stream(self, repair: Repair) -> None:
        record = self._record()
        if not record.repair:
            objects = self._source.objects
            intended = objects.intended() if objects is not None else ()
            made = [*record.made, *(name for name in intended if name not in record.made)]
            record = replace(record, repair=repair.reason, made=made)
            self._records.write_stream(record)
            self._reached(CrashPoint.REPAIR_RECORDED)
        _, established = self._log_start.establish(
            record, self._source.identity(), self._captured()
        )
        established.snapshot.close()

    def _of_tables(self, names: Sequence[str]) -> Repair:
        self._record()
        stopped = self._records.stopped()
        discovered = self._source.discover()
        found = {str(table.table): table for table in discovered if table.refused is None}
        names = [named(name, {*stopped, *found}, where=WHERE) for name in names]
        for name in names:
            if name not in stopped:
                raise UsageError(
                    f"{name} is not stopped",
                    where=WHERE,
                    hint=f"`mirrorlake backfill {name}` compares it with the source. Stopped are: "
                    f"{names_like(name, stopped)}.",
                )
            table = found.get(name)
            reason = unreadable(table) if table else "it is not selected, or not in the source"
            if reason or not any(table and sink.holds(table.table) for sink in self._sinks):
                raise UsageError(
                    f"{name} cannot be compared: {reason or 'nothing of it is landed'}",
                    where=WHERE,
                    hint=f"Run `mirrorlake reset {name}` to load it again.",
                )
        return Repair(compared=Compared([found[name].table for name in names]))

    def _repair_tables(self, repair: Repair, why: str = "") -> None:
        """why: the tables were not captured, if that is not why they stopped."""
        jobs, stopped = BackfillRecords(self._records), self._records.stopped()
        self._publish(repair.compared.tables)
        now = {table.table: table for table in self._source.discover()}
        for name in repair.compared.tables:
            said = why or stopped[str(name)]["message"]
            reason = f"its changes were not captured for some time: {said}"
            jobs.require(str(name), reason, self._clock.now())
        self._reached(CrashPoint.REPAIR_REQUESTED)
        self._records.know({name: now[name].known for name in repair.compared.tables})
        for name in repair.compared.tables:
            self._records.go_on(str(name))

    def _publish(self, names: Sequence[TableId]) -> None:
        """Let the source stream the tables again, where it does not. Raises PrerequisiteMissing."""
        if self._source.objects is not None:
            found = {table.table: table for table in self._source.discover()}
            self._source.objects.include([found[name] for name in names])

    def _record(self) -> StreamRecord:
        """The stream. Raises UsageError where nothing can be repaired."""
        if self.refused:
            raise UsageError(
                self.refused, where=WHERE, hint="`mirrorlake reset --all` loads all tables again."
            )
        record = self._records.stream()
        if record is None or not record.is_established:
            raise UsageError(
                "the mirror has not begun yet",
                where=WHERE,
                hint="`mirrorlake run` loads the tables.",
            )
        return record
