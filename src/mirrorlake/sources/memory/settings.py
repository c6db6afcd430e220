"""What is said about a database in memory as a source; in Python, a file cannot name one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from mirrorlake.sources.memory.database import MemoryDatabase
from mirrorlake.sources.selection import Selection


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """The database itself, and what is mirrored of it.

    slot: what the database remembers of the reader under this name, None for nothing, so that its
    log keeps what it is not told to forget; is_consistent: whether a snapshot is of one moment, or
    each batch of the moment when it is read, as from a server without a view of a whole table.

    How it cuts what it delivers: messages: changes and commits in a chunk; parts: of a table in a
    snapshot; rows: in a batch of so many that are left; before_read: called before each read of the
    stream, which fails when that raises.
    """

    product: ClassVar[str] = "memory"
    monitored_as: ClassVar[str] = "GenericMirror"

    database: MemoryDatabase = field(repr=False)
    selection: Selection = field(default_factory=lambda: Selection(("*",)))
    slot: str | None = "mirrorlake"
    is_consistent: bool = True
    load_workers: int = 1
    messages: Callable[[], int] = lambda: 1_000
    parts: Callable[[], int] = lambda: 1
    rows: Callable[[int], int] = lambda left: left
    before_read: Callable[[], None] = lambda: None
