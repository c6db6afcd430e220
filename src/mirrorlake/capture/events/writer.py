"""Changes into event files.

Order of effects; a crash test stands behind every arrow:

    batch assigned → its files written, each whole → position noted

A batch that was assigned and not noted comes again after a crash, and its changes are made into the
same files again, with the same names and ids, before anything else is written: whatever order the
tables come in then, and whatever has become of values that were not sent. Changes of a transaction
wait in memory for its end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import pairwise

import numpy as np
import pyarrow as pa
import structlog

from mirrorlake.capture import segments
from mirrorlake.capture.events import build
from mirrorlake.capture.events.build import TakenRows
from mirrorlake.capture.events.files import EVENTS_FAILED, FileMaker
from mirrorlake.capture.events.infinities import Infinities
from mirrorlake.capture.events.settings import EventsSettings
from mirrorlake.capture.events.sizes import EventSizes
from mirrorlake.capture.events.state import (
    AssignedBatch,
    BatchTimes,
    EventState,
    WrittenEvents,
    milliseconds,
)
from mirrorlake.capture.filled import filled
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.sink import BackfillRows, Lost
from mirrorlake.errors import TableError, TableTruncated
from mirrorlake.events.rows import EventObject
from mirrorlake.model.clock import Clock
from mirrorlake.model.crash_points import CrashHook, CrashPoint, no_crash
from mirrorlake.model.position import LogPoint, Position
from mirrorlake.model.table import TableId
from mirrorlake.sources.base import Source
from mirrorlake.sources.chunk import Changes, Chunk, Transactions, Truncation
from mirrorlake.sources.replaced import ReplacedValues
from mirrorlake.sources.table import SourceTable
from mirrorlake.storage.store import Store

log = structlog.get_logger()

EVENTS_WRITTEN = "events_written"


class EventsWriter:
    """The `SinkWriter` of event files.

    tables: those that are loaded, with the points of their loads. store: the destination.
    """

    is_corrected = False

    def __init__(
        self,
        source: Source,
        records: Records,
        state: EventState,
        tables: Sequence[tuple[SourceTable, LogPoint]],
        durable: LogPoint,
        settings: EventsSettings,
        store: Store,
        clock: Clock,
        lost: Lost,
        reached: CrashHook = no_crash,
    ) -> None:
        self._source, self._records, self._state = source, records, state
        self._loads = {table.table: point for table, point in tables}
        self._settings, self._store, self._clock = settings, store, clock
        self._lost, self._reached = lost, reached
        self._infinities = Infinities(settings.infinite, ReplacedValues().note)
        self._open: list[Changes] = []  # of the open transaction
        self._waiting: list[TakenRows] = []
        self._repeated: list[TakenRows] = []  # of the batch that an earlier process assigned
        self._oldest: float | None = None
        self._sizes, self._size = EventSizes(settings), 0.0
        self._first = dict[str, tuple[int, int]]()  # as in `Records.waiting_events`
        self._latest = dict(state.latest)  # with what waits
        self._reaching = dict[str, int]()  # with what is written and not noted
        self._through = durable  # everything that ends here or before was taken
        self.durable = durable
        batch = state.assigned
        self._again = source.parse_point(batch.through) if batch else None

    def take(self, chunk: Chunk, now: float) -> None:
        tables = len(self._first)
        self._take_parts(chunk, now)
        if len(self._first) != tables:
            self._tell_waiting()
        for point in chunk.reached():
            self._through = self._through.join(point)

    def _take_parts(self, chunk: Chunk, now: float) -> None:
        transactions = chunk.transactions
        if chunk.opens and transactions.closed():
            opened, self._open = self._open, []
            for left in opened:
                self._take(
                    replace(left, transaction=np.zeros_like(left.transaction)), transactions, now
                )
        for part in chunk.parts:
            if isinstance(part, Changes):
                self._take(part, transactions, now)
            elif isinstance(part, Truncation) and self._settings.truncations:
                self._take(build.emptied(part), transactions, now)
            elif isinstance(part, Truncation):
                self._truncated(part, transactions)

    def due(self) -> float | None:
        """A file closes by its size or its age, whichever comes first (ST-171)."""
        if self._oldest is None or self._is_behind():
            return None
        if self._size >= self._settings.rotation_bytes:
            return float("-inf")
        return self._oldest + self._settings.rotation_seconds

    def roll(self, now: float) -> None:  # noqa: ARG002  (of the contract)
        """Write everything of transactions that have ended. What an earlier process may have
        written in part is written first, once all of it has come again."""
        if self._is_behind():
            return
        if self._again is not None:
            repeated, self._repeated = self._repeated, []
            self._write(repeated, self._again)
            self._noted(self._again)
            self._again = None
        waiting, self._waiting = self._waiting, []
        self._write(waiting, self._through)
        self._none_waits()

    def cut(
        self,
        point: LogPoint,
        time: datetime | None,  # noqa: ARG002
        differing: Collection[TableId] = (),  # noqa: ARG002  (nothing is read again into events)
    ) -> None:
        if self._is_behind() or self.durable.covers(point):
            return
        if self._again is not None:
            self.roll(0)  # nothing waits, and the assigned batch is without changes
        self._noted(point)
        self._reached(CrashPoint.CUT_WRITTEN)

    def is_ahead(self, table: TableId) -> bool:  # noqa: ARG002
        return self._is_behind()

    def backfill(self, chunk: BackfillRows) -> None:
        """Rows that are gone in the source have no event. A chunk that comes again after a crash
        was read again, later: it makes files of its own, whose events win (ST-215).

        The events are later than everything that was noted, although rows may have been read long
        before: what was changed since is not among them, so they are the state of now (ST-218).

        Called while nothing `is_ahead`: so an assigned batch has come again as a whole, and is
        written with the times that it had before a later one is noted."""
        table = chunk.table
        if table.table not in self._loads or not chunk.read.num_rows:
            return
        if self._again is not None:
            self.roll(0)
        name, number = str(table.table), self._state.batch
        state, taken = self._state.read_at(name, chunk.taken)
        self._state = replace(state, batch=number + 1)
        self._state.write(self._records)
        self._reached(CrashPoint.EVENTS_ASSIGNED)
        self._latest[name] = max(taken, self._latest.get(name, 0))
        read = milliseconds(self._clock.now())
        event_object = build.described(table, self._settings)
        batch = build.batch_id(self._settings.stream, table, number)
        try:
            events = build.loaded(
                event_object, table, chunk.read, batch, 0, taken, read, self._infinities
            )
        except TableError as error:
            self._lost(table.table, error)
            return
        size = 0
        maker = FileMaker(self._settings, number)
        for file in maker.files(event_object, events):
            self._store.replace(file.path, file.content)
            size += len(file.content)
            self._reached(CrashPoint.EVENTS_WRITTEN_ONE)
        lost = maker.too_large
        written = WrittenEvents(len(events) - lost, size, lost)
        self._state = self._state.wrote(name, written)
        self._state.write(self._records)

    def stop(self, table: TableId, error: TableError) -> None:  # noqa: ARG002
        """The table is loaded again when it is reset: what comes meanwhile is not written."""
        self._loads.pop(table, None)
        self._open = [part for part in self._open if part.table.table != table]
        self._waiting = [rows for rows in self._waiting if rows.table.table != table]
        self._repeated = [rows for rows in self._repeated if rows.table.table != table]
        if self._first.pop(str(table), None):
            self._tell_waiting()
        self._state = self._state.without(str(table))
        self._state.write(self._records)

    def abandon(self) -> None:
        self._open, self._waiting, self._repeated = [], [], []
        self._none_waits()

    def _none_waits(self) -> None:
        self._oldest, self._size = None, 0.0
        if self._first:
            self._first = {}
            self._tell_waiting()

    def _tell_waiting(self) -> None:
        self._records.write_waiting_events(self._settings.described, self._first)

    def _is_behind(self) -> bool:
        """Whether a batch has not come again as a whole."""
        return self._again is not None and not self._through.covers(self._again)

    def _take(self, part: Changes, transactions: Transactions, now: float) -> None:
        left = self._left(part, transactions)
        if left is None:
            return
        closed = left.transaction < transactions.closed()
        if closed.any():
            self._close(left.only(closed), transactions, now)
        if not closed.all():
            self._open.append(left.only(~closed))

    def _left(self, part: Changes, transactions: Transactions) -> Changes | None:
        """The changes that are neither loaded nor durable already."""
        load = self._loads.get(part.table.table)
        if load is None:
            return None
        left: Changes | None = part
        for point in (load, self.durable):
            left = segments.after(left, transactions, Position.after(point)) if left else None
        return left

    def _close(self, part: Changes, transactions: Transactions, now: float) -> None:
        """Changes of transactions that have ended."""
        found = self._filled(part)
        if found is None:
            return
        whole, gone = found
        if self._again is not None:
            through = [self._again.covers(end) for end in transactions.end if end is not None]
            before = np.array([*through, False])[whole.transaction]
        else:
            before = np.zeros(len(whole.marker), bool)
        for which, waiting in ((before, self._repeated), (~before, self._waiting)):
            if which.any():
                taken = self._taken(whole.only(which), transactions, gone[which])
                waiting.append(taken)
                self._size += self._sizes.of(taken).sum()
                if (table := str(taken.table.table)) not in self._first:
                    read = milliseconds(self._clock.now())
                    self._first[table] = int(taken.changed.min()), read
        self._oldest = now if self._oldest is None else self._oldest

    def _taken(self, run: Changes, transactions: Transactions, gone: np.ndarray) -> TakenRows:
        """Changes, none of which has an earlier time than one of the table before it (see
        `EventState`)."""
        now, table = self._clock.now(), str(run.table.table)
        times = [milliseconds(time or now) for time in transactions.time]
        changed = np.array(times, np.int64)[run.transaction]
        changed = np.maximum.accumulate(np.maximum(changed, self._latest.get(table, 0)))
        self._latest[table] = int(changed[-1])
        lsn = None
        if run.metadata is not None and "lsn" in run.metadata.schema.names:
            lsn = run.metadata["lsn"].to_numpy()
        return TakenRows(
            table=run.table,
            rows=run.rows,
            marker=run.marker,
            changed=changed,
            transaction=pa.array(list(transactions.id), pa.string()).take(
                pa.array(run.transaction)
            ),
            lsn=lsn,
            gone=gone,
        )

    def _truncated(self, part: Truncation, transactions: Transactions) -> None:
        """The original has no event for it (ST-255), so the table stops, for a person to load it
        again."""
        table = part.table.table
        load = self._loads.get(table)
        if load is None:
            return
        for point in (load, self.durable):
            if not segments.is_after(part, transactions, Position.after(point)):
                return
        error = TableTruncated(
            "the table was truncated in the source, which event files cannot express",
            table=str(table),
            hint=f"Empty what was made of its events, then run `mirrorlake reset {table}`, which "
            "loads the table again. With `destination: {truncations: true}` a truncation is an "
            "event.",
        )
        self._lost(table, error)

    def _filled(self, part: Changes) -> tuple[Changes, np.ndarray] | None:
        """The changes with every value (ST-109), and those whose row is gone, so that the value
        is unknown: they are no events, and the deletion of the row follows."""
        if part.unchanged is None or not part.unchanged.any():
            return part, np.zeros(len(part.marker), bool)
        try:
            rows, gone = filled(self._source, part.table, part.rows, part.unchanged)
        except TableError as error:
            self._lost(part.table.table, error)
            return None
        if gone.any():
            log.warning(
                EVENTS_FAILED,
                table=str(part.table.table),
                events=int(gone.sum()),
                reason="a value was not sent, and its row no longer exists",
            )
        return replace(part, rows=rows, unchanged=None), gone

    def _write(self, waiting: Sequence[TakenRows], through: LogPoint) -> None:
        if not waiting:
            return
        tables: dict[TableId, list[TakenRows]] = defaultdict(list)
        for rows in waiting:
            tables[rows.table.table].append(rows)
        assigned = self._state.assigned
        if assigned is None:
            read = milliseconds(self._clock.now())
            found = {str(table): self._cuts(taken) for table, taken in tables.items()}
            cuts = {table: numbers for table, numbers in found.items() if numbers}
            assigned = AssignedBatch(self._state.batch, str(through), read, cuts)
            self._state = replace(self._state, assigned=assigned, batch=assigned.number + 1)
            self._state.write(self._records)
            self._reached(CrashPoint.EVENTS_ASSIGNED)
        for table, taken in tables.items():
            try:
                self._write_table(taken, assigned)
            except TableError as error:
                self._lost(table, error)
        log.debug(EVENTS_WRITTEN, batch=assigned.number, tables=len(tables))

    def _cuts(self, taken: Sequence[TakenRows]) -> list[int]:
        """The numbers of the changes of a table with which files begin, but for the first: each is
        about as large as a file may be (ST-171)."""
        sizes = np.concatenate([self._sizes.of(rows) for rows in taken])
        begins = np.concatenate(([0.0], np.cumsum(sizes)[:-1]))
        file = np.floor_divide(begins, self._settings.rotation_bytes)
        return [int(number) for number in np.flatnonzero(np.diff(file)) + 1]

    def _write_table(self, taken: Sequence[TakenRows], assigned: AssignedBatch) -> None:
        """A new schema is a new file (ST-172). Nothing in a name depends on other tables, because
        one that stops after a crash does not come again."""
        first = size = 0
        table = taken[0].table.table
        batch = build.batch_id(self._settings.stream, taken[0].table, assigned.number)
        # `a_b` with `c` and `a` with `b_c` are one object, divided at another underscore.
        maker = FileMaker(self._settings, assigned.number, table.schema.count("_"))
        cuts = assigned.cuts.get(str(table), ())
        for event_object, group in _together(taken, self._settings):
            for rows in _cut(group, first, cuts):
                events = build.changes(
                    event_object, rows, batch, first, assigned.read, self._infinities
                )
                for file in maker.files(
                    event_object, events, first, gone=rows.gone, per_file=len(rows)
                ):
                    self._store.replace(file.path, file.content)
                    size += len(file.content)
                    self._reached(CrashPoint.EVENTS_WRITTEN_ONE)
                first += len(events)
        lost = sum(int(rows.gone.sum()) for rows in taken) + maker.too_large
        # Counted with the next note, which says that all of it is durable.
        times = None
        if size:
            committed = max(int(rows.changed[~rows.gone].max(initial=0)) for rows in taken)
            now = milliseconds(self._clock.now())
            times = BatchTimes(committed, assigned.read, now)
        written = WrittenEvents(first - lost, size, lost, times)
        self._state = self._state.wrote(str(table), written)
        # Not in the state before the note: until then the same changes may come again.
        self._reaching[str(table)] = max(int(rows.changed.max(initial=0)) for rows in taken)

    def _noted(self, point: LogPoint) -> None:
        self.durable = self.durable.join(point)
        for table, time in self._reaching.items():
            self._state = self._state.reached(table, time)
        self._reaching = {}
        self._state = replace(self._state, position=str(self.durable), assigned=None)
        self._state.write(self._records)


def _together(
    taken: Sequence[TakenRows], settings: EventsSettings
) -> list[tuple[EventObject, list[TakenRows]]]:
    """Neighbours with one schema and key. Whatever else is known of a table may be known at another
    place of the log after a crash, and moves no file."""
    groups: list[tuple[EventObject, list[TakenRows]]] = []
    for rows in taken:
        if groups and groups[-1][1][-1].table == rows.table:
            groups[-1][1].append(rows)
            continue
        event_object = build.described(rows.table, settings)
        if groups and _is_alike(*groups[-1], event_object, rows):
            groups[-1][1].append(rows)
        else:
            groups.append((event_object, [rows]))
    return groups


def _is_alike(
    known: EventObject, group: Sequence[TakenRows], event_object: EventObject, rows: TakenRows
) -> bool:
    return (
        known.schema_key == event_object.schema_key
        and group[0].table.key == rows.table.key
        and group[0].rows.schema == rows.rows.schema
    )


def _cut(group: Sequence[TakenRows], first: int, cuts: Sequence[int]) -> Iterator[TakenRows]:
    """The rows of one file each, whatever pieces they come in. first: the number of the first row;
    cuts: the numbers with which files begin."""
    begins, held = set(cuts), list[TakenRows]()
    for rows in group:
        inside = [cut - first for cut in cuts if first < cut < first + len(rows)]
        for start, stop in pairwise([0, *inside, len(rows)]):
            if held and first + start in begins:
                yield _joined(held)
                held = []
            held.append(rows.slice(start, stop))
        first += len(rows)
    if held:
        yield _joined(held)


def _joined(group: Sequence[TakenRows]) -> TakenRows:
    if len(group) == 1:
        return group[0]
    lsns = [rows.lsn for rows in group if rows.lsn is not None]
    return replace(
        group[0],
        rows=pa.concat_batches([rows.rows for rows in group]),
        marker=np.concatenate([rows.marker for rows in group]),
        changed=np.concatenate([rows.changed for rows in group]),
        transaction=pa.concat_arrays([rows.transaction for rows in group]),
        lsn=np.concatenate(lsns) if len(lsns) == len(group) else None,
        gone=np.concatenate([rows.gone for rows in group]),
    )
