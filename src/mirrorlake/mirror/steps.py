"""The steps of a plan: data that an engine executes and `mirrorlake plan` prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

import pyarrow as pa

from mirrorlake.delta.schema import FeedMode
from mirrorlake.errors import TableError, printable
from mirrorlake.landing.metadata import SEQUENTIAL
from mirrorlake.landing.scan import Landed
from mirrorlake.mirror.row_checks import RowChecks
from mirrorlake.mirror.strategy import Choice
from mirrorlake.model.change import Marker
from mirrorlake.model.landed import BackfillChunk
from mirrorlake.model.state import TableState
from mirrorlake.model.table import Column, Schema, TableId
from mirrorlake.model.types import DataType


@dataclass(frozen=True, slots=True)
class CreateTable:
    """Create the Delta table of a folder, or replace the table of an older generation.

    required: the columns that its first file declares non-null, to be recorded (LZ-219); soft: with
    soft deletes; feed: what its commits record.
    """

    table: TableId
    path: str
    folder: str
    schema: Schema
    key: tuple[str, ...]
    generation: str
    replace: bool = False
    required: tuple[str, ...] = ()
    detection: str = SEQUENTIAL
    soft: bool = False
    feed: FeedMode = FeedMode.IMAGES


@dataclass(frozen=True, slots=True)
class AddColumns:
    """Add the new columns of the next files (LZ-211)."""

    table: TableId
    path: str
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class RenameColumns:
    """Rename columns of a table before the first row of a file, by column mapping: no row is
    rewritten. One commit records the names and the number of the file, so that it is done once.

    names: the new names by the present ones, given at once, so that two columns can exchange their
    names; key: the present key, if one of its columns is renamed: `_metadata.json` may still have
    its former name; whole_rows: as of the table; maps: turn on column mapping first.
    """

    table: TableId
    path: str
    number: int
    names: Mapping[str, str]
    key: tuple[str, ...] | None = None
    whole_rows: bool = False
    maps: bool = False


@dataclass(frozen=True, slots=True)
class AlterColumns:
    """Alter the columns of the existing rows of a table, before the first row of a file, in one
    commit that records the number of the file, so that it is done once.

    copied, filled: as in `Alteration`, with the names of existing columns of the table; types: new
    types of columns, by name; converted: columns whose values are converted to the new type where
    possible, and NULL otherwise; widened: columns that get a wider type without rewriting data
    files, by type widening; dropped: columns to drop; maps: turn on column mapping first; key,
    whole_rows: as in `Alteration`.
    """

    table: TableId
    path: str
    number: int
    copied: Mapping[str, str]
    filled: pa.RecordBatch | None
    types: Mapping[str, DataType]
    converted: frozenset[str] = frozenset()
    widened: frozenset[str] = frozenset()
    dropped: tuple[str, ...] = ()
    maps: bool = False
    key: tuple[str, ...] | None = None
    whole_rows: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        filled = () if self.filled is None else tuple(self.filled.schema.names)
        return tuple(dict.fromkeys((*self.copied, *filled, *self.types, *self.dropped)))


@dataclass(frozen=True, slots=True)
class SetKey:
    """Record the key of a table that was created without one (LZ-039)."""

    table: TableId
    path: str
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetFeed:
    """Let the commits of a table record something else from here on."""

    table: TableId
    path: str
    feed: FeedMode


@dataclass(frozen=True, slots=True)
class Evidence:
    """The facts about a batch that its commit records in addition to its numbers.

    positions: of its first and last change in the source; cut: the number of the cut that the table
    reaches with it; source_time: when the source committed the last change; landed_bytes: the size
    of all files; loading: whether files of the initial load remain after it (LZ-099); described:
    the ETag of `_metadata.json`.
    """

    positions: tuple[str, str] | None = None
    cut: int | None = None
    source_time: datetime | None = None
    landed_bytes: int = 0
    loading: bool = False
    described: str = ""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The expected size and strategy of a batch. rows, size: of its files; estimates unless
    is_exact. choice: the engine chooses again, for the version that it commits on."""

    rows: int = 0
    size: int = 0
    is_exact: bool = True
    choice: Choice | None = None


@dataclass(frozen=True, slots=True)
class ApplyFiles:
    """Apply a batch, the landed files first..last of one table, in one commit.

    The commit succeeds only if the table has recorded first - 1. In timestamp mode, and with a
    sequence in each partition folder, first and last are the number of the batch.

    files: if a file truncates the table, only those after it.
    default: the operation of rows without a marker.
    is_load: whether all rows are inserts of a load.
    truncated: whether a file truncates the table.
    appends: whether the files only insert, as far as known from their footers.
    names: of the files, to be recorded by the commit, if first and last are the number of a batch.
    backfill: the chunk that the only file contains. Rows of its key range that are not in the file
        are deleted; rows that do not change are not rewritten.
    whole_rows: there is no key, and a delete removes one row that equals it in all columns.
    soft: the table has soft deletes.
    suppress_unchanged: updates that change no value are left out.
    creates: the table, if the batch creates it: if possible, in the same commit.
    """

    table: TableId
    path: str
    folder: str
    files: tuple[Landed, ...]
    first: int
    last: int
    key: tuple[str, ...]
    default: Marker
    is_load: bool = False
    truncated: bool = False
    appends: bool = False
    names: tuple[str, ...] = ()
    row_checks: RowChecks = field(default_factory=RowChecks)
    evidence: Evidence = field(default_factory=Evidence)
    estimate: Estimate = field(default_factory=Estimate)
    backfill: BackfillChunk | None = None
    whole_rows: bool = False
    soft: bool = False
    suppress_unchanged: bool = False
    creates: CreateTable | None = None

    @property
    def skip_equal(self) -> bool:
        """Whether rows that are already as they are to be are left alone."""
        return self.suppress_unchanged or self.backfill is not None

    @property
    def marks(self) -> bool:
        """Whether the batch may mark rows as deleted; the initial load does not."""
        return self.soft and not self.is_load

    def __str__(self) -> str:
        """The files of the batch, for messages."""
        if self.names:
            is_single = len(self.names) == 1
            files = f"file {printable(self.names[0])}" if is_single else f"{len(self.names)} files"
            return f"{files} of batch {self.last}"
        if self.last > self.first:
            return f"files {self.first} to {self.last}"
        return f"file {self.first}"


@dataclass(frozen=True, slots=True)
class Compact:
    """Compact files of a table (CF-156) in one commit that does not change rows. rows: approximate
    number of rows to write; files: description for messages; clusters: by key; overlap: average
    number of files in whose bounds a key is, if known. The engine chooses the files again, for the
    version that it commits on."""

    table: TableId
    path: str
    rows: int = 0
    files: str = ""
    clusters: bool = False
    overlap: float = 0.0


@dataclass(frozen=True, slots=True)
class CleanUp:
    """Move applied files to the cleanup folder (LZ-244). folder: the table or partition folder."""

    table: TableId
    folder: str
    files: tuple[Landed, ...]


@dataclass(frozen=True, slots=True)
class Discard:
    """Delete the processed files of a folder that was recreated.

    This precedes the creation of its new table, because a missing number is searched among
    processed files, and the new files have the same numbers.
    """

    table: TableId
    folder: str
    files: tuple[Landed, ...]


@dataclass(frozen=True, slots=True)
class DropTable:
    """Remove the table of a deleted folder from the mirror (LZ-231)."""

    table: TableId
    path: str
    folder: str
    generation: str


Step = (
    CreateTable
    | AddColumns
    | RenameColumns
    | AlterColumns
    | SetKey
    | SetFeed
    | ApplyFiles
    | CleanUp
    | Compact
    | Discard
    | DropTable
)


@dataclass(frozen=True, slots=True)
class TablePlan:
    """The steps and the state of one table.

    steps: in order of execution; error: why the table stops, before or after the steps; waiting:
    what the table waits for, as text; pending: number of readable files that are not applied yet,
    including those of the steps; partition_folders: each has its own cleanup folder; exists:
    whether the Delta table exists.
    """

    table: TableId
    path: str
    folder: str
    state: TableState
    steps: tuple[Step, ...] = ()
    error: TableError | None = None
    waiting: str = ""
    pending: int = 0
    partition_folders: tuple[str, ...] = ()
    exists: bool = False

    @property
    def creates(self) -> CreateTable | None:
        """The step that creates its table, unless it replaces another one."""
        found = (step for step in self.steps if isinstance(step, CreateTable) and not step.replace)
        return next(found, None)

    @property
    def batch(self) -> ApplyFiles | None:
        """Its batch, which creates the table if that is new."""
        found = next((step for step in self.steps if isinstance(step, ApplyFiles)), None)
        return found and replace(found, creates=self.creates)

    @property
    def is_idle(self) -> bool:
        return not any(isinstance(step, ApplyFiles | CreateTable | SetFeed) for step in self.steps)
