"""Settings of a database in memory as a source. Available in Python only, not in the
configuration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from mirrorlake.sources.memory.database import MemoryDatabase
from mirrorlake.sources.selection import Selection


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """The database and the tables selected from it.

    slot: the name under which the database keeps the reader's position; None to keep none, then the
        log is kept until `forget`.
    is_consistent: whether a snapshot shows one moment; otherwise each batch shows the moment when
        it is read, as with a server that has no consistent view of a whole table.
    recognises: whether columns are recognised whatever their names are, so that the stream says
        what became of earlier rows when a table was altered; otherwise it only describes the table.
    has_versions: whether rows have versions, by which a snapshot recognises those that an earlier
        one has read; it `is_consistent` then.
    messages: changes and commits in a chunk.
    parts: parts of a table in a snapshot.
    rows: the size of the next batch, given the rows that are left.
    before_read: called before each read of the stream, which fails when it raises.
    """

    product: ClassVar[str] = "memory"
    monitored_as: ClassVar[str] = "GenericMirror"

    database: MemoryDatabase = field(repr=False)
    selection: Selection = field(default_factory=lambda: Selection(("*",)))
    slot: str | None = "mirrorlake"
    is_consistent: bool = True
    recognises: bool = True
    has_versions: bool = False
    load_workers: int = 1
    messages: Callable[[], int] = lambda: 1_000
    parts: Callable[[], int] = lambda: 1
    rows: Callable[[int], int] = lambda left: left
    before_read: Callable[[], None] = lambda: None
