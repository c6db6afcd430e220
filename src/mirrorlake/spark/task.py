"""The work of one batch, as it runs in a Spark task: read, fold, find, write.

A task needs nothing but its specification and the storage: it knows no driver and no other task.
What it returns is small, because it writes the files itself. Its errors are part of its result: a
table that fails must not fail the job in which others are carried.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirrorlake import version
from mirrorlake.apply.commit_metadata import Rows, by_marker
from mirrorlake.apply.fold import Batch, fold
from mirrorlake.delta import deletion_vectors
from mirrorlake.delta.lookup.key_lookup import path_of
from mirrorlake.delta.partitions import NullText
from mirrorlake.delta.schema import TableSchema
from mirrorlake.delta.workspace import LostFile, Unreachable, at_hand
from mirrorlake.delta.write import flush
from mirrorlake.delta.write.append import append
from mirrorlake.delta.write.compact import compact
from mirrorlake.delta.write.rewrite import NoBaseRow, rewrite
from mirrorlake.errors import BadValue, ForeignTable, MirrorlakeError, MissingBaseRow
from mirrorlake.landing import text as delimited
from mirrorlake.landing.parquet import reader as parquet
from mirrorlake.landing.parquet.bounded import Share
from mirrorlake.landing.scan import Landed
from mirrorlake.landing.text.format import TextFormat
from mirrorlake.landing.text.splits import Part
from mirrorlake.mirror.engine import Counts
from mirrorlake.mirror.faults import TableFault, UnreachableTable, UnreadableFile
from mirrorlake.mirror.row_checks import RowChecks, check_rows
from mirrorlake.model.change import Marker
from mirrorlake.storage.store import StorageFailed, Store
from mirrorlake.storage.urls import ObjectOptions, is_url, open_file, options_of

_OURS = Path(version.__file__).parent


@dataclass(frozen=True, slots=True)
class LandedPath:
    """A landed file as a task reaches it.

    text: how it is written, None for Parquet; part: the rows of a text to read, None for all;
    options: how its location is reached when that is a URL.
    """

    name: str
    location: str
    size: int
    text: TextFormat | None = None
    options: ObjectOptions | None = None
    part: Part | None = None


def landed_paths(store: Store, files: Iterable[Landed]) -> list[LandedPath]:
    """Landed files of a batch as tasks reach them, wherever these run."""
    return [
        LandedPath(
            str(file.name),
            store.location(file.path),
            file.size,
            file.text,
            options_of(store, file.path),
        )
        for file in files
    ]


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """One batch, or a part of a load.

    files: the add actions of the table's live files; threads: how many the task may use; required:
    the columns that a file may lack only if all it does is delete; appends: texts whose rows are
    taken for inserts, and written as they are read; joins: small ones of the files, which are
    written anew with the batch; options: how the location of the table is reached when that is a
    URL.
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
    row_checks: RowChecks = field(default_factory=RowChecks)
    appends: bool = False
    joins: Sequence[Mapping[str, Any]] = ()
    options: ObjectOptions | None = None


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The actions to commit as JSON texts, or why there are none.

    read: rows of each file; continues: the first of these files is the last one of the task before;
    touches: a row was met that is no insert, so that one task has to read the whole batch; again:
    landed files were opened more than once; handed: what a piece hands to those who go on.
    """

    actions: tuple[str, ...] = ()
    counts: Counts = field(default_factory=Counts)
    error: MirrorlakeError | None = None
    read: tuple[Rows, ...] = ()
    continues: bool = False
    touches: bool = False
    again: bool = False
    handed: Any = None


@dataclass(frozen=True, slots=True)
class CompactSpec:
    """Files of one table to write anew together, by their add actions."""

    table: str
    location: str
    schema: TableSchema
    key: tuple[str, ...]
    files: Sequence[Mapping[str, Any]]
    options: ObjectOptions | None = None


def rows_of_files(results: Iterable[TaskResult]) -> list[Rows]:
    """The rows of each file of a batch, whose parts several tasks may have read."""
    files: list[Rows] = []
    for result in results:
        read = list(result.read)
        if result.continues and files:
            insert, update, delete, upsert = zip(files.pop(), read.pop(0), strict=True)
            files.append((sum(insert), sum(update), sum(delete), sum(upsert)))
        files += read
    return files


@dataclass(frozen=True, slots=True)
class Piece(ABC):
    """A piece of the work on a batch that is spread. folder: for what it hands on."""

    batch: TaskSpec
    folder: str

    @property
    def table(self) -> str:
        return self.batch.table

    @abstractmethod
    def work(self) -> Any:
        """What it hands on."""


Spec = TaskSpec | CompactSpec | Piece


def run(spec: Spec) -> TaskResult:
    """Do the work of one specification."""
    if isinstance(spec, Piece):
        return _piece(spec)
    if isinstance(spec, TaskSpec):
        pa.set_cpu_count(spec.threads)  # of a process that is a task's own
    try:
        with flush.behind():
            return _run(spec) if isinstance(spec, TaskSpec) else _compact(spec)
    except MirrorlakeError as error:
        return TaskResult(error=error)
    except NullText as error:
        return TaskResult(error=null_text(spec, error))
    except Exception as error:  # noqa: BLE001  (it becomes the table's error)
        return TaskResult(error=_foreign(spec, error) or fault(spec.table, error))


def _piece(spec: Piece) -> TaskResult:
    pa.set_cpu_count(spec.batch.threads)
    try:
        with flush.behind():
            return TaskResult(handed=spec.work())
    except MirrorlakeError as error:
        return TaskResult(error=error)
    except Exception as error:  # noqa: BLE001  (the batch is then done in one piece)
        return TaskResult(error=fault(spec.batch.table, error))


def fault(table: str, error: Exception) -> TableFault:
    """Kind and place of what nobody foresaw. Its text may quote values of rows, and is not told."""
    return TableFault(
        f"{type(error).__name__} at {_place(error)}",
        table=table,
        hint="It is tried again. Report this with the log if it stays.",
    )


def _foreign(spec: TaskSpec | CompactSpec, error: Exception) -> ForeignTable | None:
    """What is wrong with the table or its storage, if that is why there was an error."""
    if isinstance(error, LostFile):
        return _lost(spec, f"{Path(str(error)).name} is missing")
    if isinstance(error, Unreachable):
        return UnreachableTable(
            f"its storage failed: {error}",
            table=spec.table,
            hint="Look whether the storage answers, and lets this mirror write; it is tried again.",
        )
    with at_hand(spec.location, spec.options) as table:
        return _damage(spec, table.folder)


def _damage(spec: TaskSpec | CompactSpec, table: Path) -> ForeignTable | None:
    """The first file of the Delta table that is gone or no longer whole.

    Looked for only after a fault: it opens every file, of a table on objects those that are here.
    """
    for add in spec.files:
        path, vector = path_of(table, add), add.get("deletionVector")
        try:
            if _is_here(spec, path):
                pq.read_metadata(path)
            if vector and _has_vector(spec, table, vector):
                deletion_vectors.read(table, vector)
        except FileNotFoundError as error:
            return _lost(spec, f"{Path(error.filename or path).name} is missing")
        except (pa.ArrowException, OSError, ValueError) as error:
            return _lost(spec, f"{path.name} cannot be read ({type(error).__name__})")
    return None


def _is_here(spec: TaskSpec | CompactSpec, path: Path) -> bool:
    """Of a table on objects only some files are."""
    return not is_url(spec.location) or path.exists()


def _has_vector(spec: TaskSpec | CompactSpec, table: Path, vector: Mapping[str, Any]) -> bool:
    return vector["storageType"] == "i" or _is_here(spec, deletion_vectors.path_of(table, vector))


def null_text(spec: Spec, found: NullText) -> BadValue:
    """The error of a value that Delta does not keep."""
    return BadValue(
        "the table is partitioned by this text, and Delta would make it NULL",
        table=spec.table,
        column=found.column,
        value=found.value,
        hint="Send another value or NULL, or begin the table anew without partitions.",
    )


def _lost(spec: TaskSpec | CompactSpec, what: str) -> ForeignTable:
    return ForeignTable(
        f"of the Delta table at {spec.location}, {what}",
        table=spec.table,
        hint="Put the file back, or start the table anew with "
        f"`mirrorlake reset {spec.table}`; it is tried again.",
    )


def _run(spec: TaskSpec) -> TaskResult:
    return _append(spec) if spec.appends else _apply(spec)


class _Touches(Exception):
    """A row is no insert."""


def _append(spec: TaskSpec) -> TaskResult:
    read: list[Rows] = []
    try:
        with at_hand(spec.location, spec.options) as table:
            actions = append(table.folder, spec.schema, _inserted(spec, read), keys=list(spec.key))
            table.keep(actions)
    except _Touches:
        return TaskResult(touches=True)
    part = spec.landed[0].part
    return TaskResult(
        tuple(json.dumps(action) for action in actions),
        Counts(insert=sum(insert for insert, *_none in read)),
        read=tuple(read),
        continues=part is not None and part.begin > 0,
    )


def _inserted(spec: TaskSpec, read: list[Rows]) -> Iterator[pa.Table]:
    """The rows of texts, piece by piece. Raises _Touches when one of them is no insert.

    read: gets the rows of each file.
    """
    for landed in spec.landed:
        assert landed.text is not None
        count = 0
        with _opened(spec, landed) as handle:
            for rows in delimited.read_blocks(
                handle,
                landed.size,
                spec.schema.schema,
                spec.default,
                landed.text,
                table=spec.table,
                file=landed.name,
                key=spec.key,
                part=landed.part,
            ):
                if not pc.all(
                    pc.equal(rows.marker, pa.scalar(int(Marker.INSERT), pa.int8()))
                ).as_py():
                    raise _Touches
                _check(spec, landed, rows, count + (landed.part.row if landed.part else 0))
                count += rows.data.num_rows
                yield rows.data
        read.append((count, 0, 0, 0))


def _apply(spec: TaskSpec) -> TaskResult:
    files = [(landed.name, rows(spec, landed)) for landed in spec.landed]
    net = fold(Batch(spec.table, spec.schema.schema, spec.key, files, spec.truncate))
    try:
        with at_hand(spec.location, spec.options) as table:
            done = rewrite(
                table.folder,
                spec.files,
                spec.schema,
                net,
                spec.threads,
                spec.joins,
                table.fetch,
            )
            table.keep(done.actions)
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
        read=tuple(by_marker(some.marker) for _name, some in files),
    )


def _compact(spec: CompactSpec) -> TaskResult:
    with at_hand(spec.location, spec.options) as table:
        table.fetch(spec.files)
        actions = compact(table.folder, spec.files, spec.schema, spec.key)
        table.keep(actions)
    return TaskResult(tuple(json.dumps(action) for action in actions))


def rows(spec: TaskSpec, landed: LandedPath) -> parquet.Rows:
    """The rows of a landed file, as they must be."""
    with _opened(spec, landed) as handle:
        found = _read(spec, landed, handle)
    _check(spec, landed, found)
    return found


def row_blocks(
    spec: TaskSpec, landed: LandedPath, share: Share, only: Sequence[str] | None = None
) -> Iterator[parquet.Rows]:
    """The rows of a share of a Parquet file, a piece of bounded size at a time.

    They are as they must be, unless `only` some columns are wanted: then nobody looks at the
    others. An error says only that there is one: it counts the rows of its piece.
    """
    with _opened(spec, landed) as handle:
        for found in parquet.read_blocks(
            handle,
            landed.size,
            spec.schema.schema,
            spec.default,
            table=spec.table,
            file=landed.name,
            most=spec.row_checks.file_bytes,
            share=share,
            only=only,
        ):
            if only is None:
                _check(spec, landed, found)
            yield found


def _check(spec: TaskSpec, landed: LandedPath, found: parquet.Rows, before: int = 0) -> None:
    check_rows(
        found,
        key=spec.key,
        required=spec.required,
        row_checks=spec.row_checks,
        table=spec.table,
        file=landed.name,
        before=before,
    )


def _read(spec: TaskSpec, landed: LandedPath, handle: BinaryIO) -> parquet.Rows:
    schema, most = spec.schema.schema, spec.row_checks.file_bytes
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
        handle,
        landed.size,
        schema,
        spec.default,
        table=spec.table,
        file=landed.name,
        most=most,
    )


@contextmanager
def _opened(spec: TaskSpec, landed: LandedPath) -> Iterator[BinaryIO]:
    """A landed file to read. A storage that fails meanwhile is no fault of the file either."""
    try:
        handle = open_file(landed.location, landed.options)
    except OSError as error:
        raise _unreadable(spec, landed, "opened", error) from error
    with handle:
        try:
            yield handle
        except StorageFailed as error:
            raise _unreadable(spec, landed, "read", error) from error


def _unreadable(spec: TaskSpec, landed: LandedPath, action: str, error: OSError) -> UnreadableFile:
    return UnreadableFile(
        f"cannot be {action}: {error.strerror or type(error).__name__}",
        table=spec.table,
        file=landed.name,
        hint="Put it back or let this process read it; it is tried again.",
    )


def _place(error: BaseException) -> str:
    frame = error.__traceback__
    last = frame
    while frame is not None:
        if _OURS in Path(frame.tb_frame.f_code.co_filename).parents:
            last = frame  # a place of ours says more than that of a library
        frame = frame.tb_next
    if last is None:
        return ""
    frame, code = last, last.tb_frame.f_code
    return f"{Path(code.co_filename).name}:{frame.tb_lineno} in {code.co_name}"
