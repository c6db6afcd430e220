"""The steps of a plan: small facts that an engine executes and `mirrorlake plan` prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

import pyarrow as pa

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
    """Make the Delta table of a folder, or make it anew in the place of an older generation.

    required: the columns that its first file declares non-null, to be remembered (LZ-219).
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


@dataclass(frozen=True, slots=True)
class AddColumns:
    """Add columns that the next files bring (LZ-211)."""

    table: TableId
    path: str
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class AlterColumns:
    """Give the rows of a table what its columns have become before the first row of a file, in one
    commit which records the number of the file, so that it happens once.

    copied, filled: as in `Alteration`, by the names of the table's columns, all of which are there;
    types: wider ones of columns, by name.
    """

    table: TableId
    path: str
    number: int
    copied: Mapping[str, str]
    filled: pa.RecordBatch | None
    types: Mapping[str, DataType]

    @property
    def columns(self) -> tuple[str, ...]:
        filled = () if self.filled is None else tuple(self.filled.schema.names)
        return tuple(dict.fromkeys((*self.copied, *filled, *self.types)))


@dataclass(frozen=True, slots=True)
class SetKey:
    """Remember the key of a table that had none when it was made (LZ-039)."""

    table: TableId
    path: str
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the commit of a batch says of it, beside its number.

    positions: of its first and last change in the source; cut: the number of the cut at which the
    table is then; source_time: when the source committed the last change; landed_bytes: the size of
    all files; loading: whether first files are left after these (LZ-099); described: the ETag of
    `_metadata.json`.
    """

    positions: tuple[str, str] | None = None
    cut: int | None = None
    source_time: datetime | None = None
    landed_bytes: int = 0
    loading: bool = False
    described: str = ""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a batch is expected to be. rows, size: that its files hold, estimated unless is_exact;
    choice: by which strategy it will go. The engine looks again, on the version that the batch
    rests on."""

    rows: int = 0
    size: int = 0
    is_exact: bool = True
    choice: Choice | None = None


@dataclass(frozen=True, slots=True)
class ApplyFiles:
    """Apply the landed files first..last of one table in one commit: a batch.

    The commit happens only when the table has recorded first - 1. is_load: all rows are inserts of
    a load; truncated: the table was emptied by one of the files; `files` are those after it;
    appends: the files do nothing but insert, as far as can be told before they are read. In
    timestamp mode first and last are the number of the batch, and `names` are those of `files`, for
    the commit to record; otherwise there are none. The same where there is a sequence in each
    partition folder. backfill: the one file tells all rows that there are in a range of keys, and
    the table becomes what it tells: no row is touched that is so already. whole_rows: there is no
    key, and a deletion takes one of the rows that are equal to it in all columns.
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

    def __str__(self) -> str:
        """What it applies, in words."""
        if self.names:
            one = len(self.names) == 1
            some = f"file {printable(self.names[0])}" if one else f"{len(self.names)} files"
            return f"{some} of batch {self.last}"
        if self.last > self.first:
            return f"files {self.first} to {self.last}"
        return f"file {self.first}"


@dataclass(frozen=True, slots=True)
class Compact:
    """Write files of a table anew, together (CF-156), in one commit that leaves the rows as they
    are. rows: that are written, about; files: which, in words. The engine chooses again, on the
    version that the commit rests on."""

    table: TableId
    path: str
    rows: int = 0
    files: str = ""


@dataclass(frozen=True, slots=True)
class CleanUp:
    """Move applied files aside (LZ-244). folder: in which they lie, of the table or a partition."""

    table: TableId
    folder: str
    files: tuple[Landed, ...]


@dataclass(frozen=True, slots=True)
class Discard:
    """Remove the processed files of a folder that was recreated since.

    Before its table is made anew: their numbers are those of the new files, and a number that is
    missing is looked for among them.
    """

    table: TableId
    folder: str
    files: tuple[Landed, ...]


@dataclass(frozen=True, slots=True)
class DropTable:
    """Take the table of a folder that was deleted out of the mirror (LZ-231)."""

    table: TableId
    path: str
    folder: str
    generation: str


Step = (
    CreateTable
    | AddColumns
    | AlterColumns
    | SetKey
    | ApplyFiles
    | CleanUp
    | Compact
    | Discard
    | DropTable
)


@dataclass(frozen=True, slots=True)
class TablePlan:
    """What is to be done for one table, and how it stands.

    steps: in their order; error: why nothing, or nothing more, can be done; waiting: for what the
    table waits, in words; pending: how many readable files wait, those of the steps included;
    partition_folders: each has its own cleanup folder; exists: whether there is a Delta table.
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
    def is_idle(self) -> bool:
        return not any(isinstance(step, ApplyFiles | CreateTable) for step in self.steps)
