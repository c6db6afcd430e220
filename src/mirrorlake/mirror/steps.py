"""The steps of a plan: small facts that an engine executes and `mirrorlake plan` prints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from mirrorlake.errors import TableError, printable
from mirrorlake.landing.metadata import SEQUENTIAL
from mirrorlake.landing.scan import Landed
from mirrorlake.mirror.row_checks import RowChecks
from mirrorlake.mirror.strategy import Choice
from mirrorlake.model.change import Marker
from mirrorlake.model.state import TableState
from mirrorlake.model.table import Column, Schema, TableId


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
class SetKey:
    """Remember the key of a table that had none when it was made (LZ-039)."""

    table: TableId
    path: str
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ApplyFiles:
    """Apply the landed files first..last of one table in one commit.

    The commit happens only when the table has recorded first - 1. truncated: the table was emptied
    by one of the files; `files` are those after it. rows, size: what the files hold, estimated
    unless is_exact. In timestamp mode first and last are the number of the batch, and `names` are
    those of `files`, for the commit to record; otherwise there are none. The same where there is a
    sequence in each partition folder.

    For the commit's metadata: positions, cut; source_time, when the source committed the last
    change; landed_bytes, the size of all files; loading, whether first files are left after these
    (LZ-099); described, the ETag of `_metadata.json`.

    appends: the files do nothing but insert, as far as can be told before they are read; choice: by
    which way they will go. The engine looks again, on the version that the batch rests on.
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
    positions: tuple[str, str] | None = None
    cut: int | None = None
    rows: int = 0
    size: int = 0
    row_checks: RowChecks = field(default_factory=RowChecks)
    is_exact: bool = True
    names: tuple[str, ...] = ()
    source_time: datetime | None = None
    landed_bytes: int = 0
    loading: bool = False
    described: str = ""
    appends: bool = False
    choice: Choice | None = None

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
    """Look whether files of a table should be written anew together, and do it (CF-156)."""

    table: TableId
    path: str
    key: tuple[str, ...]


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


Step = CreateTable | AddColumns | SetKey | ApplyFiles | CleanUp | Discard | DropTable


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


def as_fact(step: Step) -> dict[str, Any]:
    """A step as plain data, for `plan --json`."""
    facts: dict[str, Any]
    match step:
        case CreateTable():
            facts = {
                "step": "recreate" if step.replace else "create",
                "path": step.path,
                "columns": {column.name: str(column.type) for column in step.schema},
                "key": list(step.key),
            }
        case AddColumns():
            columns = {column.name: str(column.type) for column in step.columns}
            facts = {"step": "add_columns", "columns": columns}
        case SetKey():
            facts = {"step": "set_key", "key": list(step.key)}
        case ApplyFiles():
            facts = {
                "step": "apply",
                "first": step.first,
                "last": step.last,
                "rows": step.rows,
                "rows_exact": step.is_exact,
                "truncate": step.truncated,
            }
            facts |= {"names": list(step.names)} if step.names else {}
            facts |= step.choice.as_fact() if step.choice else {}
        case CleanUp():
            facts = {"step": "clean_up", "files": [str(file.name) for file in step.files]}
        case Discard():
            facts = {"step": "discard", "files": [str(file.name) for file in step.files]}
        case DropTable():
            facts = {"step": "drop", "path": step.path}
    return {"step": facts.pop("step"), "table": str(step.table)} | facts


def explain(plan: Sequence[TablePlan]) -> list[str]:
    """The plan in sentences, one per step, error or wait."""
    lines = []
    for table in plan:
        lines += [_sentence(step) for step in table.steps]
        if table.error:
            lines.append(f"{table.table}: stops: {table.error}")
        elif table.waiting:
            lines.append(f"{table.table}: waits: {table.waiting}")
    return lines


def _way(choice: Choice | None) -> str:
    """How a batch goes, and why."""
    if choice is None:
        return ""
    added = ", added without a look at the rows there" if choice.appends else ""
    large = ", beside the other tables because it is large" if choice.large else ""
    return f"{added}{large}, by {choice.way}: {choice.reason}"


def _sentence(step: Step) -> str:
    match step:
        case CreateTable(replace=False):
            told = f"create {step.path} with {len(step.schema)} columns"
        case CreateTable():
            told = f"make {step.path} anew, its folder was recreated"
        case AddColumns():
            told = "add " + ", ".join(f"{c.name} {c.type}" for c in step.columns)
        case SetKey():
            told = f"from now on its key is {', '.join(step.key)}"
        case ApplyFiles():
            about = "" if step.is_exact else "about "
            told = f"apply {step} ({about}{step.rows:,} rows) in one commit{_way(step.choice)}"
        case CleanUp():
            told = f"move {len(step.files)} applied files aside"
        case Discard():
            told = f"remove {len(step.files)} files that were applied before it was recreated"
        case _:
            told = f"drop {step.path}, its folder was deleted"
    return f"{step.table}: {told}"
