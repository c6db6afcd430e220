"""Where a stream starts in the log of its source: checked, established, or moved after a gap.

A new start after a gap covers everything that was landed, so that no position is used twice. Order;
each step may be repeated after a crash:

    repair recorded → backfills of the tables requested, tables without ranges of keys dropped
        → start established → what tables are known by recorded → start recorded
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mirrorlake.capture.loop import common
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.records.stream import StreamRecord
from mirrorlake.capture.repair.compared import Compared
from mirrorlake.capture.sink import Sink
from mirrorlake.errors import PrerequisiteMissing, SourceGap
from mirrorlake.model.clock import Clock
from mirrorlake.model.crash_points import CrashHook, CrashPoint
from mirrorlake.model.position import LogPoint
from mirrorlake.sources.base import LINEAGE, MADE, REPAIR, CheckSeverity, Established, Source
from mirrorlake.sources.table import SourceTable


class LogStart:
    """The start of one stream."""

    def __init__(
        self,
        source: Source,
        records: Records,
        sinks: Sequence[Sink],
        clock: Clock,
        reached: CrashHook,
    ) -> None:
        self._source, self._records, self._sinks = source, records, sinks
        self._clock, self._reached = clock, reached

    def begin(self, identity: Mapping[str, str]) -> StreamRecord:
        """Record a stream that has no start yet. Raises PrerequisiteMissing."""
        objects = self._source.objects
        if objects and (occupant := objects.occupied(self._home)):
            raise PrerequisiteMissing(occupant.message, where=self._home, hint=occupant.remedy)
        self._check_prerequisites()
        record = StreamRecord.new(identity, objects.intended() if objects else ())
        self._records.write_stream(record)
        self._reached(CrashPoint.STREAM_RECORDED)
        return record

    def resume(self, record: StreamRecord, identity: Mapping[str, str]) -> StreamRecord:
        """Check that the log still has everything that was not landed. Raises SourceGap."""
        self._join(record)
        if (gap := self._gap(record, identity)) is not None:
            raise gap
        if record.source != identity:  # another server has taken over
            record = replace(record, source=identity)
            self._records.write_stream(record)
        self.name_home()
        return record

    def gap(self, record: StreamRecord) -> SourceGap | None:
        """Why the stream cannot go on; None when it can. Changes nothing."""
        return self._gap(record, self._source.identity())

    def refused(self) -> str:
        """Why the stream cannot be repaired; empty when it can."""
        if not all(sink.is_corrected for sink in self._sinks):
            return "event files do not contain which rows are gone"
        return next((sink.unsupported for sink in self._sinks if sink.unsupported), "")

    def with_hint(self, gap: SourceGap) -> SourceGap:
        """A gap with what to do about it here: where nothing is corrected, there is no repair."""
        if self.refused():
            hint = "Run `mirrorlake reset --all` to load all tables again."
            return SourceGap(gap.what, where=gap.where, hint=hint)
        return gap

    def _gap(self, record: StreamRecord, identity: Mapping[str, str]) -> SourceGap | None:
        try:
            _same_source(record, identity)
            self._source.resume(self.landed(record), record.source)
        except SourceGap as error:
            return self.with_hint(error)
        return None

    def establish(
        self, record: StreamRecord, identity: Mapping[str, str], tables: Sequence[SourceTable]
    ) -> tuple[StreamRecord, Established]:
        """Establish the start of a new stream of these tables, or of one that is repaired. Raises
        PrerequisiteMissing."""
        objects, former = self._source.objects, record.made if record.repair else ()
        if record.repair:
            tables = self._compared(record, identity, tables)
        self._records.write_stream(replace(record, source=identity))
        if objects is not None:
            established = objects.establish(tables, self._beyond(record))
        else:
            established = Established(self._source.snapshot(), ())
        try:
            self._reached(CrashPoint.SLOT_CREATED)
            if record.repair and established.known:
                self._records.know(established.known)
            record = replace(record, source=self._source.identity(), repair="")
            made = [*former, *(name for name in established.made if name not in former)]
            record = record.established(str(established.snapshot.point), made)
            self._records.write_stream(record)
            self._reached(CrashPoint.ESTABLISHED)
            self.name_home()
        except BaseException:
            established.snapshot.close()
            raise
        return record, established

    def _compared(
        self, record: StreamRecord, identity: Mapping[str, str], tables: Sequence[SourceTable]
    ) -> Sequence[SourceTable]:
        """Have tables compared. Returns them with what they are known by."""
        moved = _moved(record, identity)
        if moved - {LINEAGE}:
            self._check_free()
        for sink in self._sinks:
            sink.missing(tables)  # finishes loads from before the gap
        compared = Compared.of(tables, self._records, self._sinks)
        compared.request(record.repair, self._records, self._sinks, self._clock, self._reached)
        if moved:  # what is known is of another log
            self._records.know({t.table: t.known for t in self._source.discover() if t.known})
        known = self._records.known()
        return [replace(table, known=known.get(str(table.table), table.known)) for table in tables]

    def landed(self, record: StreamRecord) -> LogPoint:
        """Up to where every sink holds everything, at least from where it joined the stream."""
        starts = [(sink, self.joined(record, sink)) for sink in self._sinks]
        return common([(sink.durable() or start).join(start) for sink, start in starts])

    def joined(self, record: StreamRecord, sink: Sink) -> LogPoint:
        """From where on a sink takes part: one that comes to a stream under way from where the
        others are, because its tables are loaded at a later point."""
        point = self._records.joined(sink.name, record) or record.start
        return self._source.parse_point(point)

    def _join(self, record: StreamRecord) -> None:
        """Note from where on sinks take part that are new to the stream."""
        durable = {sink.name: sink.durable() for sink in self._sinks}
        others = [point for point in durable.values() if point is not None]
        for name, point in durable.items():
            if point is None and others and self._records.joined(name, record) is None:
                self._records.join(name, record, str(common(others)))

    def name_home(self) -> None:
        if self._source.objects is not None:
            self._source.objects.name_home(self._home)

    @property
    def _home(self) -> str:
        return self._records.store.location(self._records.zone)

    def _beyond(self, record: StreamRecord) -> LogPoint | None:
        """What the new start of a repaired stream has to cover: every position that was landed."""
        if not record.repair:
            return None
        point = self.landed(record)
        for sink in self._sinks:
            for end in sink.ends():
                point = point.join(end)
        return point

    def _check_free(self) -> None:
        """On another server the slot of this name is not ours."""
        objects = self._source.objects
        if objects and (occupant := objects.occupied(self._home)):
            raise PrerequisiteMissing(
                f"{occupant.message}, and this server is not the one that was captured",
                where=self._home,
                hint=occupant.remedy,
            )

    def _check_prerequisites(self) -> None:
        """Nothing is made in a source that cannot be captured."""
        for finding in self._source.check():
            if finding.severity is CheckSeverity.ERROR and finding.table is None:
                raise PrerequisiteMissing(finding.message, where="the source", hint=finding.remedy)


def _moved(record: StreamRecord, identity: Mapping[str, str]) -> set[str]:
    """By what the source is another one, or another line of its history, than was captured."""
    differs = {name for name, was in record.source.items() if identity.get(name) != was}
    return differs - MADE


def _same_source(record: StreamRecord, identity: Mapping[str, str]) -> None:
    """Raises SourceGap. Of a lineage that changed `Source.resume` decides."""
    for name, expected in record.source.items():
        found = identity.get(name)
        if found == expected or name == LINEAGE:
            continue
        if not found:
            gone = next((made for made in record.made if made.startswith(name)), f"the {name}")
            raise SourceGap(
                f"{gone} no longer exists; `mirrorlake detach` removes it",
                where="the source",
                hint=REPAIR,
            )
        raise SourceGap(
            f"this landing zone belongs to another source: its {name} was {expected} and is now "
            f"{found}",
            where="the source",
            hint="Set source.url to the source that this landing zone was captured from. If that "
            "source was restored, replaced or created again, run `mirrorlake repair` to compare "
            "all tables with it.",
        )
