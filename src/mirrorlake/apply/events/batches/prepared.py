"""What was computed of a batch of events, before anything of it is committed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from mirrorlake.apply.events.columns import EventTableColumns
from mirrorlake.apply.events.reading import DeadLetter
from mirrorlake.apply.events.remembered.keyed_files import KeyedFiles
from mirrorlake.apply.events.remembered.state import EventTableState
from mirrorlake.delta.log.table_log import TableSnapshot
from mirrorlake.delta.schema import TableSchema, parse
from mirrorlake.errors import EventTableError
from mirrorlake.events.types import UnifiedType
from mirrorlake.mirror.engine import Counts
from mirrorlake.model.table import TableId


@dataclass(frozen=True, slots=True)
class EventTableVersion:
    """A table and its state at one version."""

    snapshot: TableSnapshot
    state: EventTableState

    @property
    def schema(self) -> TableSchema:
        return parse(self.snapshot.metadata)

    @property
    def files(self) -> list[Mapping[str, Any]]:
        return list(self.snapshot.files.values())


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """A batch whose files are written and durable, of the table and of the state.

    version: of the table that it becomes.
    actions: of its commit, without the number of the state.
    state: after the batch, without a number of its own.
    every_change: name of the file with every change of the keys that it changes several times; ""
        if there are none, None if they are not kept.
    """

    version: int
    operation: str
    actions: Sequence[Mapping[str, Any]]
    state: EventTableState
    counts: Counts
    letters: Sequence[DeadLetter]
    every_change: str | None = None


@dataclass(frozen=True, slots=True)
class NewTruncations:
    """A batch with truncations that rows of the table are older than. Deleting these takes commits
    of their own, before the batch is prepared again.

    keys, changes: what the state has of each key.
    truncations: of the batch and before; ORDER.
    """

    keys: KeyedFiles
    changes: KeyedFiles | None
    truncations: pa.Table


@dataclass(frozen=True, slots=True)
class WiderColumns:
    """A batch with events of wider types than columns of the table have. These get their types in a
    commit of their own, before the batch is prepared again.

    columns: all of the table, with the types that they get. widened: those that get another one, by
        name in the table, each with both types.
    """

    columns: EventTableColumns
    widened: Mapping[str, tuple[UnifiedType, UnifiedType]]


def event_table_error(table: TableId, what: str, hint: str = "") -> EventTableError:
    """Why a table of events stops."""
    hint = hint or f"Make it anew from the files: mirrorlake reset {table}."
    return EventTableError(what, table=str(table), hint=hint)
