"""A backfill under way, and the snapshot from which it reads."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass

from mirrorlake.capture.backfill.jobs import BackfillJob
from mirrorlake.capture.backfill.reading import ChunkLimits, ChunkReading, ReadChunk
from mirrorlake.capture.backfill.window import ChangeWindow
from mirrorlake.errors import TableError, Unavailable
from mirrorlake.model.keys import KeyRange
from mirrorlake.sources.ordered import has_ranges
from mirrorlake.sources.table import SourceTable

ReadResult = ReadChunk | TableError | Unavailable


@dataclass(slots=True)
class SnapshotSession:
    """One snapshot of one table, and what happened to the table since just before it. begun: when;
    ready: the chunk to be landed; pending: the one behind it, which is read meanwhile."""

    window: ChangeWindow
    reading: ChunkReading
    begun: float
    pending: Future[ReadResult] | None = None
    ready: ReadChunk | None = None


@dataclass(slots=True)
class RunningBackfill:
    """A backfill under way. left: the keys to read; limits: of its chunks; read, size: rows and
    bytes, and since when, for the limits per second; landed: when the last chunk was; not_before:
    when the source is read again; unseen: how often its columns were other ones than the stream
    has described, since a chunk was read."""

    job: BackfillJob
    table: SourceTable
    left: KeyRange
    limits: ChunkLimits
    since: float
    landed: float
    read: int = 0
    size: int = 0
    not_before: float = 0.0
    unseen: int = 0
    session: SnapshotSession | None = None

    def may_read(self, now: float) -> bool:
        """Whether the limits per second let another chunk be read."""
        request, passed = self.job.request, now - self.since
        return not (
            (request.max_rows_per_second and self.read > passed * request.max_rows_per_second)
            or (request.max_bytes_per_second and self.size > passed * request.max_bytes_per_second)
        )

    def end_session(self) -> None:
        """Let go of the snapshot; what was read from it and is not landed is forgotten."""
        session, self.session = self.session, None
        if session is None:
            return
        reading = session.reading
        if session.pending is None:
            reading.close()
            return
        # In the middle of a read on another thread. Without ranges that would go on for long.
        if not has_ranges(self.table):
            reading.end()
        session.pending.add_done_callback(lambda _done: reading.close())
