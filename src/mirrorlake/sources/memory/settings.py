"""What is said about a database in memory as a source; in Python, a file cannot name one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from mirrorlake.sources.memory.database import MemoryDatabase
from mirrorlake.sources.memory.snapshot import Delivery
from mirrorlake.sources.selection import Selection


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """The database itself, and what is mirrored of it.

    slot: what the database remembers of the reader under this name, None for nothing, so that its
    log keeps what it is not told to forget; is_consistent: whether a snapshot is of one moment.
    """

    product: ClassVar[str] = "memory"
    monitored_as: ClassVar[str] = "GenericMirror"

    database: MemoryDatabase = field(repr=False)
    selection: Selection = field(default_factory=lambda: Selection(("*",)))
    slot: str | None = "mirrorlake"
    is_consistent: bool = True
    delivery: Delivery = field(default_factory=Delivery)
    load_workers: int = 1
