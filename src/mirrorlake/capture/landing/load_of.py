"""The load of one table in progress: its parts, and its staged files with their names and order."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from mirrorlake.capture.landing.stage_part import STAGED
from mirrorlake.capture.records.stream import StreamRecord
from mirrorlake.capture.staged.parts import PartNote
from mirrorlake.model.position import LogPoint
from mirrorlake.sources.base import Snapshot
from mirrorlake.sources.table import SnapshotPart, SourceTable

Order = tuple[int, int, int]
"""Of a staged file in its load: the attempt that read its rows, so that points do not decrease; the
number of the part; and the number in it."""

LAST: Order = (1 << 60, 1 << 60, 0)
"""Of the file that marks the end of a load."""


@dataclass(frozen=True, slots=True)
class Loading:
    """What the loads of several tables share. guard: raises when this process may no longer
    write."""

    record: StreamRecord
    snapshot: Snapshot
    guard: Callable[[], None]

    @property
    def point(self) -> LogPoint:
        return self.snapshot.point


@dataclass(slots=True)
class LoadOf:
    """The load of one table in progress.

    parts: with the facts of those that are noted; notes: of an earlier attempt, those that hold;
    attempt: its number; token: distinguishes its files from those of every other attempt; staged:
    the names of files by their order; moved: why the table has to be read anew, because its rows
    were moved meanwhile; empty as long as not.
    """

    loading: Loading
    table: SourceTable
    folder: str
    parts: Sequence[SnapshotPart] = ()
    facts: Sequence[dict[str, Any] | None] = ()
    notes: Mapping[int, PartNote] = field(default_factory=dict)
    attempt: int = 1
    token: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    rows: int = 0
    staged: dict[Order, str] = field(default_factory=dict)
    uptos: list[LogPoint] = field(default_factory=list)
    pending: list[Future[int]] = field(default_factory=list)
    moved: str = ""

    def name(self, location: int, what: int | str, kind: str = ".parquet") -> str:
        """The name of a staged file of a part."""
        return f"{STAGED}{self.token}-{location}-{what}{kind}"
