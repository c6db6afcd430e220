"""The work of one batch, as it runs in a Spark task: read, fold, find, write.

A task needs nothing but its specification and the storage: it knows no driver and no other task.
What it returns is small, because it writes the files itself. Its errors are part of its result: a
table that fails must not fail the job in which others are carried.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from mirrorlake.errors import ForeignTable, MirrorlakeError, MissingBaseRow
from mirrorlake.lake import vectors
from mirrorlake.lake.compact import compact
from mirrorlake.lake.probe import path_of
from mirrorlake.lake.rewrite import NoBaseRow, rewrite
from mirrorlake.lake.schema import TableSchema
from mirrorlake.landing import delimited, parquet
from mirrorlake.landing.textformat import TextFormat
from mirrorlake.mirror.demands import Demands, check_rows
from mirrorlake.mirror.engine import Counts
from mirrorlake.mirror.faults import TableFault, UnreadableFile
from mirrorlake.mirror.fold import Batch, fold
from mirrorlake.mirror.receipt import Rows, by_marker
from mirrorlake.model.change import Marker
from mirrorlake.storage.urls import ObjectOptions, open_file


@dataclass(frozen=True, slots=True)
class LandedPath:
    """A landed file as a task reaches it. text: how it is written, None for Parquet; options: how
    its location is reached when that is a URL."""

    name: str
    location: str
    size: int
    text: TextFormat | None = None
    options: ObjectOptions | None = None


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """One batch, or a part of a load.

    files: the add actions of the table's live files; threads: how many the task may use; required:
    the columns that a file may lack only if all it does is delete.
    """

    table: str
    location: str
    schema: TableSchema
    key: tuple[str, ...]
    default: Marker
    landed: tuple[LandedPath, ...]
    truncate: bool
    files: Sequence[Mapping[str, Any]]
    threads: int = 1
    required: tuple[str, ...] = ()
    demands: Demands = field(default_factory=Demands)


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The actions to commit as JSON texts, or why there are none. read: rows of each file."""

    actions: tuple[str, ...] = ()
    counts: Counts = field(default_factory=Counts)
    error: MirrorlakeError | None = None
    read: tuple[Rows, ...] = ()


@dataclass(frozen=True, slots=True)
class CompactSpec:
    """Files of one table to write anew together, by their add actions."""

    table: str
    location: str
    schema: TableSchema
    key: tuple[str, ...]
    files: Sequence[Mapping[str, Any]]


def run(spec: TaskSpec | CompactSpec) -> TaskResult:
    """Do the work of one specification."""
    try:
        return _run(spec) if isinstance(spec, TaskSpec) else _compact(spec)
    except MirrorlakeError as error:
        return TaskResult(error=error)
    except Exception as error:  # noqa: BLE001  (it becomes the table's error)
        return TaskResult(error=_damage(spec) or _fault(spec, error))


def _fault(spec: TaskSpec | CompactSpec, error: Exception) -> TableFault:
    """Kind and place of what nobody foresaw. Its text may quote values of rows, and is not told."""
    return TableFault(
        f"{type(error).__name__} at {_place(error)}",
        table=spec.table,
        hint="It is tried again. Report this with the log if it stays.",
    )


def _damage(spec: TaskSpec | CompactSpec) -> ForeignTable | None:
    """The first file of the Delta table that is gone or no longer whole.

    Looked for only after a fault: it opens every file.
    """
    table = Path(spec.location)
    for add in spec.files:
        path = path_of(table, add)
        try:
            pq.read_metadata(path)
            if vector := add.get("deletionVector"):
                vectors.read(table, vector)
        except FileNotFoundError as error:
            return _lost(spec, f"{Path(error.filename or path).name} is missing")
        except (pa.ArrowException, OSError, ValueError) as error:
            return _lost(spec, f"{path.name} cannot be read ({type(error).__name__})")
    return None


def _lost(spec: TaskSpec | CompactSpec, what: str) -> ForeignTable:
    return ForeignTable(
        f"of the Delta table at {spec.location}, {what}",
        table=spec.table,
        hint="Put the file back, or start the table anew with "
        f"`mirrorlake reset {spec.table}`; it is tried again.",
    )


def _run(spec: TaskSpec) -> TaskResult:
    files = [(landed.name, _rows(spec, landed)) for landed in spec.landed]
    net = fold(Batch(spec.table, spec.schema.schema, spec.key, files, spec.truncate))
    try:
        done = rewrite(Path(spec.location), spec.files, spec.schema, net, spec.threads)
    except NoBaseRow:
        raise MissingBaseRow(
            "a value that did not change has no single row in the table to be taken from",
            table=spec.table,
            file=spec.landed[0].name,
            hint=f"Load the table anew with `mirrorlake reset {spec.table}`.",
        ) from None
    return TaskResult(
        tuple(json.dumps(action) for action in done.actions),
        Counts(done.inserted, done.updated, done.deleted, done.duplicates),
        read=tuple(by_marker(rows.marker) for _name, rows in files),
    )


def _compact(spec: CompactSpec) -> TaskResult:
    actions = compact(Path(spec.location), spec.files, spec.schema, spec.key)
    return TaskResult(tuple(json.dumps(action) for action in actions))


def _rows(spec: TaskSpec, landed: LandedPath) -> parquet.Rows:
    with _opened(spec, landed) as handle:
        rows = _read(spec, landed, handle)
    check_rows(
        rows,
        key=spec.key,
        required=spec.required,
        demands=spec.demands,
        table=spec.table,
        file=landed.name,
    )
    return rows


def _read(spec: TaskSpec, landed: LandedPath, handle: BinaryIO) -> parquet.Rows:
    schema, most = spec.schema.schema, spec.demands.file_bytes
    if landed.text is not None:
        return delimited.read(
            handle,
            landed.size,
            schema,
            spec.default,
            landed.text,
            table=spec.table,
            file=landed.name,
            key=spec.key,
            threads=spec.threads,
            most=most,
        )
    return parquet.read(
        handle, landed.size, schema, spec.default, table=spec.table, file=landed.name, most=most
    )


def _opened(spec: TaskSpec, landed: LandedPath) -> BinaryIO:
    try:
        return open_file(landed.location, landed.options)
    except OSError as error:
        raise UnreadableFile(
            f"cannot be opened: {error.strerror or type(error).__name__}",
            table=spec.table,
            file=landed.name,
            hint="Put it back or let this process read it; it is tried again.",
        ) from error


def _place(error: BaseException) -> str:
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    if frame is None:
        return ""
    code = frame.tb_frame.f_code
    return f"{Path(code.co_filename).name}:{frame.tb_lineno} in {code.co_name}"
