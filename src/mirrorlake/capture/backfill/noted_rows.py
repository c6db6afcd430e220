"""The rows of a table without ranges, part by part: what was read before a crash is not read again.

A part is staged while it is read, and noted (`capture/staged/parts.py`). The next reading has
another snapshot, which it asks for the versions of the rows of each noted part: it takes those that
are still there from the staged file, and reads those that are new. So it has all rows as of its own
snapshot, whether it comes after a crash, because the connection was lost, or because too much had
changed meanwhile.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, replace

import pyarrow as pa
import structlog

from mirrorlake.capture.records.records import Records
from mirrorlake.capture.staged.parts import (
    NOTE,
    PartNote,
    VersionsFile,
    facts_of,
    held,
    still_there,
)
from mirrorlake.capture.staged.staged_file import (
    DamagedStagedFile,
    StagedFile,
    batches_of,
    left_of,
)
from mirrorlake.errors import TableError
from mirrorlake.model.crash_points import CrashHook, CrashPoint
from mirrorlake.model.keys import KeyRange
from mirrorlake.model.position import LogPoint
from mirrorlake.sources.base import Recognising, Snapshot
from mirrorlake.sources.table import SnapshotPart, SourceTable

log = structlog.get_logger()

BACKFILL_RESUMED = "backfill_resumed"
BACKFILL_BEGUN_ANEW = "backfill_begun_anew"
BACKFILL_PART_DAMAGED = "backfill_part_damaged"

_PREFIX, _ROWS, _VERSIONS = "_part-", "-0.parquet", "-versions.parquet"
"""Of the names of staged files."""


def has_notes(snapshot: Snapshot | None, table: SourceTable) -> bool:
    """Whether every part of a table can be noted."""
    if snapshot is None or (recognising := snapshot.recognising) is None:
        return False
    try:
        parts = snapshot.parts(table)
    except TableError:  # as its load will find
        return False
    return all(recognising.facts(part) is not None for part in parts)


@dataclass(frozen=True, slots=True)
class NotedRows:
    """Those of one backfill. folder: where its parts are staged; guard: raises when this process
    may no longer write."""

    records: Records
    folder: str
    guard: Callable[[], None]
    reached: CrashHook

    def of(
        self, snapshot: Snapshot, table: SourceTable, keys: KeyRange
    ) -> Iterator[tuple[pa.RecordBatch, LogPoint]]:
        """All rows, as `Snapshot.ordered` has them, which is used where parts cannot be noted. The
        table may be altered between two parts; then the next one raises as `ordered` does."""
        recognising, record = snapshot.recognising, self.records.stream()
        parts = [] if recognising is None else snapshot.parts(table)
        parts = [replace(part, is_described=True) for part in parts]
        facts = [] if record is None else facts_of(snapshot, parts, record, stream=record.stream)
        if recognising is None or not facts or None in facts:
            yield from snapshot.ordered(table, keys)
            return
        before = held(self.records.store, self.folder, _PREFIX, facts, self.guard)
        if kept := len(before.notes):
            log.info(BACKFILL_RESUMED, table=str(table.table), parts=len(parts), kept=kept)
        elif before.why_none:
            log.info(BACKFILL_BEGUN_ANEW, table=str(table.table), reason=before.why_none)
        token = uuid.uuid4().hex[:12]
        for number, part in enumerate(parts):
            name = f"{_PREFIX}{token}-{number}"
            new = PartNote(name + NOTE, before.attempt, facts[number] or {}, (), name + _VERSIONS)
            with closing(self._part(recognising, part, before.notes.get(number), new)) as batches:
                for batch in batches:
                    yield batch, snapshot.point

    def _part(
        self, recognising: Recognising, part: SnapshotPart, note: PartNote | None, new: PartNote
    ) -> Generator[pa.RecordBatch, None, None]:
        """The rows of a part. note: of what was read of it before; new: what is read anew is noted
        as, without files."""
        store, folder = self.records.store, self.folder
        found = None if note is None else still_there(store, folder, note, recognising, part)
        if note is None or found is None:
            yield from self._read(recognising, part, new)
            return
        ((name, _rows),), (mask,) = note.files, found.masks
        path = f"{folder}/{name}"
        try:
            yield from batches_of(store, path) if mask is None else left_of(store, path, mask)
        except DamagedStagedFile:
            log.warning(BACKFILL_PART_DAMAGED, table=str(part.table.table), file=name)
            store.delete(f"{folder}/{note.name}")  # the next attempt reads the part anew
            raise
        yield from (rows for rows, _version in recognising.only(part, found.new))

    def _read(
        self, recognising: Recognising, part: SnapshotPart, new: PartNote
    ) -> Generator[pa.RecordBatch, None, None]:
        """Stage a part while it is read, and note it at its end."""
        store, folder, name = self.records.store, self.folder, new.name.replace(NOTE, _ROWS)
        file, count = None, 0
        try:
            with VersionsFile(store, f"{folder}/{new.versions}") as noting:
                for batch in noting.noted(recognising.versioned(part)):
                    file = file or StagedFile(store, f"{folder}/{name}", batch.schema)
                    file.write(batch)
                    count += batch.num_rows
                    yield batch
        except BaseException:
            if file is not None:
                file.drop()
            raise
        if file is not None:
            file.finish(None)
            self.reached(CrashPoint.BACKFILL_PART_STAGED)
            self.guard()
            replace(new, files=((name, count),)).write(store, folder)
            self.reached(CrashPoint.BACKFILL_NOTED)
