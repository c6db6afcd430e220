"""Scenarios of a mirrored table as data: what lands, batch by batch, and what must become of it.

All scenarios of a suite are played together (`player.py`). What holds of each of them, whatever it
is about, stands in `checks.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from mirrorlake.errors import TableError
from mirrorlake.landing.metadata import SEQUENTIAL
from mirrorlake.mirror.engine import (
    AlreadyApplied,
    Applied,
    Conflicted,
    Counts,
    Failed,
    MirrorEngine,
    Outcome,
)
from mirrorlake.mirror.steps import ApplyFiles
from mirrorlake.mirror.table.progress import Progress
from mirrorlake.model import types
from mirrorlake.model.change import Marker
from mirrorlake.model.table import Column
from mirrorlake.model.types import DataType
from tests.conformance.mirrored import Feeds, File, Mirrored
from tests.histories import Shape
from tests.reference import Row

ORDERS = Shape.of(["id"], id=types.LONG, name=types.STRING, note=types.STRING)

Change = tuple[Marker, Row]
Images = Mapping[str, Sequence[Row]]
"""The change feed of one batch: by change type, its rows."""

MODELLED: list[Row] = [("what the model has",)]
"""Stands for the rows that `tests/reference.py` has at the end."""


def insert(*row: Any) -> Change:
    return Marker.INSERT, row


def update(*row: Any) -> Change:
    return Marker.UPDATE, row


def upsert(*row: Any) -> Change:
    return Marker.UPSERT, row


def delete(*row: Any) -> Change:
    return Marker.DELETE, row


@dataclass(frozen=True)
class Refused:
    """A batch that fails whole: the error, and what of the batch it names.

    file: which of its files, from 1.
    """

    error: type[TableError]
    row: int | None = None
    column: str | None = None
    file: int | None = 1


@dataclass(frozen=True)
class Lands:
    """Files land, and are applied as one batch. Files with names are those of timestamp mode.

    first: the number of the first file, where it is not the next one; step: further fields of the
    step. Expected are its outcome, what it counted, and its part of the feed.
    """

    files: Sequence[File] | Mapping[str, File]
    truncated: bool = False
    first: int | None = None
    outcome: type[Applied | AlreadyApplied | Conflicted] | Refused = Applied
    counts: Counts | None = None
    feed: Images | None = None
    step: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> type:
        """Of the outcome."""
        return Failed if isinstance(self.outcome, Refused) else self.outcome


def lands(
    *files: File,
    truncated: bool = False,
    first: int | None = None,
    outcome: type[Applied | AlreadyApplied | Conflicted] | Refused = Applied,
    counts: Counts | None = None,
    feed: Images | None = None,
    **step: Any,
) -> Lands:
    return Lands(files, truncated, first, outcome, counts, feed, step)


@dataclass(frozen=True)
class Adds:
    """Columns are added to the table."""

    columns: tuple[Column, ...]


def adds(**columns: DataType) -> Adds:
    return Adds(tuple(Column(name, kind) for name, kind in columns.items()))


@dataclass(frozen=True)
class Made:
    """The table is to be made once more, for another generation of files.

    anew: of this shape, in the place of the one that is there, which stays otherwise.
    """

    anew: Shape | None = None


@dataclass(frozen=True)
class Restarts:
    """From here on another engine has the table."""


@dataclass(frozen=True)
class Compacts:
    """The files of the table are compacted, if there is a need."""

    outcome: type[Applied] | None = Applied


Act = Lands | Adds | Made | Restarts | Compacts


@dataclass(frozen=True)
class Scenario:
    """A table, what is done with it, and the rows that it has at the end.

    required: columns that were declared non-null; detection: how files are found; soft: with soft
    deletes, the last column says which rows are deleted, and is not in the files; version: that
    the table has at the end; mapping: how Delta finds its columns in data files; then: what else
    must hold.
    """

    name: str
    clauses: Sequence[str]
    shape: Shape
    acts: Sequence[Act]
    rows: Sequence[Row]
    path: str = ""
    required: tuple[str, ...] = ()
    detection: str = SEQUENTIAL
    soft: bool = False
    version: int | None = None
    mapping: str | None = None
    then: Callable[[Played], None] | None = None


@dataclass
class Played:
    """What became of a scenario.

    outcomes: of each batch and each compaction; step: the last batch that was applied; again: what
    became of it when it came once more, by the same engine and by another; progress: what that
    other engine knows of the table.
    """

    scenario: Scenario
    table: Mirrored
    outcomes: list[Outcome | None] = field(default_factory=list)
    step: ApplyFiles | None = None
    again: list[Outcome] = field(default_factory=list)
    another: MirrorEngine | None = None
    progress: Progress = field(default_factory=Progress)
    rows: list[Row] = field(default_factory=list)
    feed: Feeds = field(default_factory=dict)
    error: Exception | None = None

    @property
    def applied(self) -> Applied:
        """The last outcome."""
        last = self.outcomes[-1]
        assert isinstance(last, Applied), last
        return last


def parameters(scenarios: Iterable[Scenario], mark: pytest.MarkDecorator) -> list[Any]:
    """Of a test for each scenario, which proves its clauses. mark: another of each."""
    found = list(scenarios)
    assert len({one.name for one in found}) == len(found), "two scenarios have one name"
    return [
        pytest.param(one, id=one.name, marks=[pytest.mark.clause(*one.clauses), mark])
        for one in found
    ]
