"""One table's way from a stream into files, and what those files say."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow.parquet as pq

from mirrorlake import root
from mirrorlake.capture.backfill.backfills import BackfillSettings
from mirrorlake.capture.capture import Capture
from mirrorlake.capture.landing.outbox import Outbox
from mirrorlake.capture.landing.sink import LandingSink
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.segments import Closed
from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.landing import publish
from mirrorlake.landing.scan import data_files
from mirrorlake.model.change import MARKER_COLUMN
from mirrorlake.model.clock import Clock
from mirrorlake.model.crash_points import CrashHook, no_crash
from mirrorlake.model.landed import DEFAULT_STREAM, FileKind, Footer
from mirrorlake.model.position import Lsn, Position
from mirrorlake.sources.base import Source
from mirrorlake.sources.chunk import Changes, Chunk, Truncation
from mirrorlake.storage.store import Store
from tests.capture.streams import ID, Transaction

FOLDER = "Files/LandingZone/shop.schema/orders"
Change = tuple[Position, int | None, int]
"""Position, marker (None for a truncation) and value of a change."""


def landing_capture(
    source: Source,
    store: Store,
    settings: CaptureSettings,
    clock: Clock,
    *,
    stream_id: str = DEFAULT_STREAM,
    reached: CrashHook = no_crash,
    holder: str | None = None,
    stop: threading.Event | None = None,
    backfill: BackfillSettings | None = None,
) -> Capture:
    """Capture into the landing zone of a store."""
    records = Records(store, root.LANDING, stream_id, reached)
    sink = LandingSink(source, records, settings, reached)
    return Capture(
        source,
        records,
        [sink],
        settings,
        clock,
        stop=stop,
        reached=reached,
        holder=holder,
        backfill=backfill,
    )


@dataclass(frozen=True)
class LandedFile:
    number: int
    footer: Footer
    changes: tuple[tuple[int | None, int], ...]

    @property
    def first(self) -> Position:
        return Position.parse(self.footer.first, Lsn.parse)

    @property
    def last(self) -> Position:
        return Position.parse(self.footer.last, Lsn.parse)


def landed(store: Store) -> list[LandedFile]:
    """The published files, by number."""
    return [_read(store, file.number, file.path) for file in data_files(FOLDER, store.list(FOLDER))]


def _read(store: Store, number: int, path: str) -> LandedFile:
    found = pq.ParquetFile(io.BytesIO(store.read(path)))
    facts = {k.decode(): v.decode() for k, v in found.metadata.metadata.items()}
    footer = Footer.decode(facts)
    assert footer is not None
    rows = found.read()
    changes = zip(rows[MARKER_COLUMN].to_pylist(), rows["id"].to_pylist(), strict=True)
    truncated = ((None, 0),) if footer.kind is FileKind.TRUNCATE else ()
    return LandedFile(number, footer, (*truncated, *changes))


def expected(stream: Iterable[Transaction], since: Position | None = None) -> list[Change]:
    """Every change of a stream that stands beyond a position."""
    return [
        (Position(transaction.end, event.ordinal), event.marker, event.value)
        for transaction in stream
        for event in transaction.events
        if since is None or event.ordinal > since.reaches(transaction.end)
    ]


def outbox(store: Store, otherwise: Position | None = None, file_bytes: int = 1 << 30) -> Outbox:
    """The outbox of a table, as a start finds its place."""
    publish.remove_staged(store, FOLDER)
    newest = publish.newest_file(store, FOLDER)
    if newest is None:
        return Outbox(ID, FOLDER, "stream", store, 0, otherwise, file_bytes, FOLDER)
    file = _read(store, newest.number, newest.path)
    unfinished = dict(file.last.partly)
    if not file.footer.complete:
        unfinished[file.last.of or file.last.point] = file.last.ordinal
    return Outbox(
        ID, FOLDER, "stream", store, newest.number, file.last, file_bytes, FOLDER, unfinished
    )


def take(box: Outbox, chunk: Chunk, now: float = 0.0) -> None:
    """What the capture loop does with a chunk, for one table."""
    told = chunk.transactions
    ended = Closed.of(told, 0) if chunk.opens else None
    if ended and box.has_open():
        box.close(ended, now)
    for part in chunk.parts:
        assert isinstance(part, Changes | Truncation)
        box.take(part, told, now)
    closed = told.closed()
    if closed and box.checkpoint and told.through(closed - 1).covers(box.checkpoint.point):
        box.pass_checkpoint()


def roll(box: Outbox) -> list[int]:
    """Publish what is closed; the numbers of the files."""
    box.seal()
    return list(box.publish())


def with_a_flipped_bit(content: bytes) -> bytes:
    """A Parquet file in which a bit of the first column has changed, behind the headers of its
    pages."""
    column = pq.read_metadata(io.BytesIO(content)).row_group(0).column(0)
    begin = column.dictionary_page_offset or column.data_page_offset
    damaged = bytearray(content)
    damaged[begin + column.total_compressed_size - 1] ^= 1
    return bytes(damaged)
