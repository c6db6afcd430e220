"""Reads event files and determines the column types of those that do not contain them.

An Avro file contains its types; for JSON, the schema file beside it does (ST-175). Without one, a
column has its type in the table; in a new table, it has the type that fits all values of the files
that are read together. A file that cannot be read completely is a dead letter as a whole, and
nothing of it is applied; therefore a file that does not fit in memory is read twice.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import cache
from threading import Lock
from typing import BinaryIO, Self

import pyarrow as pa
import structlog

from mirrorlake.apply.events.columns import wider_type
from mirrorlake.apply.events.listing import FoundFile
from mirrorlake.apply.events.reading import (
    WHOLE_FILE,
    DeadLetter,
    FileEvents,
    KnownTypes,
    TableEvents,
    Types,
    event_parts,
)
from mirrorlake.apply.events.remembered.key_values import key_types
from mirrorlake.apply.events.settings import EventInput
from mirrorlake.apply.task.errors import fault
from mirrorlake.errors import TableError
from mirrorlake.events import types
from mirrorlake.events.decode.avro_file import MAGIC, MOST_HEADER
from mirrorlake.events.decode.errors import UnreadableEvents
from mirrorlake.events.decode.json.events import schema_columns
from mirrorlake.events.decode.json.lines import GZIP
from mirrorlake.events.types import EventColumn, UnifiedKind, UnifiedType
from mirrorlake.model.table import TableId
from mirrorlake.storage.store import Store

MOST_TOGETHER = 64 << 20
"""Maximum bytes of the events of one file that are in memory at once."""
MOST_OF_FILES = 384 << 20
"""The same of several files, if they contain their types."""
READERS = 2
"""How many files are read at once, if none of them is large."""
FILE_FAULT = "event_file_fault"
_FAULTS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
    pa.ArrowException,
)
"""What a bug in reading may raise. One file must not stop the others."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Read:
    """The content of a file.

    types: the types with which it was read, or has to be read again.
    has_types: whether the file contains its types.
    is_large: whether its events were left out because they do not fit in memory.
    """

    events: FileEvents
    types: KnownTypes
    has_types: bool = True
    is_large: bool = False

    @classmethod
    def of(cls, parts: Iterable[FileEvents], types: KnownTypes, *, has_types: bool) -> Self:
        held, size = list[FileEvents](), 0
        for part in parts:
            held.append(part)
            size += part.size
            if size > MOST_TOGETHER:
                held = [FileEvents.together(held).without_rows()]
            del part  # before the next one is read
        return cls(FileEvents.together(held), types, has_types, size > MOST_TOGETHER)


class FileReader:
    """Reads the files of a store.

    known: returns the types of a table; may raise TableError.
    go_on: called after each part of a file; raises to stop.
    must_exist: what is wrong with a file beside its content is raised, as FileNotFoundError, for
        it may be wrong only here; otherwise it makes the file a dead letter.
    """

    def __init__(
        self,
        store: Store,
        settings: EventInput,
        known: Callable[[TableId], Types],
        go_on: Callable[[], None],
        *,
        must_exist: bool = False,
    ) -> None:
        self._store, self._settings, self._known, self._go_on = store, settings, known, go_on
        self._must_exist = must_exist
        self._likely: dict[str, KnownTypes] = {}  # by the folder of an object

    def parts(self, files: Sequence[FoundFile]) -> Iterator[Sequence[FileEvents]]:
        """The events of the files, in groups with one entry per file: consecutive files that fit in
        memory together, then each large file among them in parts. Raises OSError.

        Memory: the returned group.
        """
        for first, found in self._groups(files):
            large = {number: one for number, one in enumerate(found, first) if one.is_large}
            events = [FileEvents() if one.is_large else one.events for one in found]
            yield _placed(events, first, len(files))
            events.clear()
            found.clear()  # before the next ones are read
            for number, one in large.items():
                for part in self._again(files[number], one.types):
                    yield _placed([part], number, len(files))
                    del part

    def together(self, files: Sequence[FoundFile]) -> list[FileEvents] | None:
        """The events of each of the files; None if they do not fit in memory together. Raises
        OSError."""
        _first, found = next(self._groups(files, is_one=True), (0, list[_Read]()))
        if len(found) < len(files) or any(one.is_large for one in found):
            return None
        return [one.events for one in found]

    def _groups(
        self, files: Sequence[FoundFile], *, is_one: bool = False
    ) -> Iterator[tuple[int, list[_Read]]]:
        """Consecutive files, with the number of the first. Files that do not contain their types
        are in one group, because they are read with the types of all of them. is_one: all that fits
        in memory is one group, and there is none if that is not all."""
        of_table = _one_by_one(cache(self._of_table))
        given: dict[TableId, dict[str, UnifiedType]] = {}
        found, first, size = list[_Read](), 0, 0
        for number, (read, finish) in enumerate(self._read_ahead(files, of_table)):
            size += read.events.size
            if read.has_types:
                for part in read.events.tables:
                    _add_types(given.setdefault(part.table, {}), part)
            if is_one and size > MOST_OF_FILES:
                return
            if found and size > MOST_OF_FILES and all(one.has_types for one in found):
                finish()
                yield first, found
                found, first, size = [], number, read.events.size
            found.append(read)
        yield first, self._agreed(files[first:], found, of_table, given)

    def _read_ahead(
        self, files: Sequence[FoundFile], of_table: Callable[[TableId], Types]
    ) -> Iterator[tuple[_Read, Callable[[], object]]]:
        """Each file, in order, while the next one is read; and a function that waits for that, to
        be called before anything changes that files are read with."""
        readers = 1 if any(file.size > MOST_TOGETHER for file in files) else READERS
        with ThreadPoolExecutor(readers, thread_name_prefix="events") as pool:
            ahead = deque[Future[_Read]]()
            for file in files:
                ahead.append(pool.submit(self._first, file, of_table))
                if len(ahead) == readers:
                    yield ahead.popleft().result(), lambda: wait(ahead)
            while ahead:
                yield ahead.popleft().result(), lambda: wait(ahead)

    def _agreed(
        self,
        files: Sequence[FoundFile],
        found: list[_Read],
        of_table: Callable[[TableId], Types],
        given: KnownTypes,
    ) -> list[_Read]:
        """The same files, with the same types in all that do not contain them: those of the table,
        else `given` by files that do, else what fits all values."""
        wanted: dict[TableId, dict[str, UnifiedType]] = {}
        for read in (one for one in found if not one.has_types):
            for part in read.events.tables:
                known = wanted.setdefault(part.table, {})
                for name, kind in part.columns.items():
                    known[name] = _both(known.get(name, types.UNSUPPORTED), kind)
        for table in wanted:
            wanted[table] |= {**given.get(table, {}), **of_table(table)}
        for number, (file, read) in enumerate(zip(files, found, strict=True)):
            if read.has_types:
                continue
            types_ = {part.table: wanted[part.table] for part in read.events.tables}
            self._likely[self._object(file)] = {
                **self._likely.get(self._object(file), {}),
                **types_,
            }
            if read.is_large:
                found[number] = replace(read, types=types_)
            elif any(_differ(part.columns, types_[part.table]) for part in read.events.tables):
                found[number] = self._read(file, types_)
        return found

    def _first(self, file: FoundFile, of_table: Callable[[TableId], Types]) -> _Read:
        """Read a file with the types of earlier files of the same object, if these are the types of
        its tables; otherwise with inferred types."""
        likely = self._likely.get(self._object(file), {})
        read = self._read(file, likely)
        if read.has_types or not likely:
            return read
        guessed = (
            name in likely.get(part.table, {}) and name not in of_table(part.table)
            for part in read.events.tables
            for name in part.columns
        )
        return self._read(file, {}) if read.events.letters or any(guessed) else read

    def _read(self, file: FoundFile, likely: KnownTypes) -> _Read:
        try:
            columns = self._schema(file)
            with self._store.open(file.path) as opened:
                start = opened.read(len(MAGIC))
                if _is_no_avro(file.path, start):
                    reason = "it is no Avro file: it does not begin with `Obj` and the byte 1"
                    return _Read(_dead(file, reason), likely)
                has_types = start == MAGIC or columns is not None
                opened.seek(0)
                parts = self._parts(opened, file, columns, likely)
                return _Read.of(parts, likely, has_types=has_types)
        except FileNotFoundError:
            if self._must_exist:
                raise
            return _Read(_dead(file, "the file is gone"), likely)
        except PermissionError as error:
            if self._must_exist:
                raise
            return _Read(self._refused(file, error), likely)
        except UnreadableEvents as error:
            return _Read(_dead(file, str(error)), likely)
        except MemoryError:
            raise
        except _FAULTS as error:
            if self._must_exist:
                raise
            reason = f"reading it met a fault, {fault('', error).what}: please report it"
            log.error(FILE_FAULT, file=file.path, reason=reason)
            return _Read(_dead(file, reason), likely)

    def _again(self, file: FoundFile, known: KnownTypes) -> Iterator[FileEvents]:
        """The events of a file that was already read completely, in parts."""
        held, size = list[FileEvents](), 0
        try:
            with self._store.open(file.path) as opened:
                columns = self._schema(file)
                for part in self._parts(opened, file, columns, known):
                    held.append(part)
                    size += part.size
                    if size > MOST_TOGETHER:
                        together, held, size = FileEvents.together(held), [], 0
                        yield together
                        del together
                    del part  # before the next ones are read
        except (FileNotFoundError, UnreadableEvents) as error:
            yield _dead(file, f"it was replaced while it was read: {error}")
        except PermissionError as error:
            yield self._refused(file, error)
        else:
            yield FileEvents.together(held)

    def _refused(self, file: FoundFile, error: PermissionError) -> FileEvents:
        """What a file comes to that may not be read. Raises OSError where that is not its own
        fault, but that of the credentials, with which its folder may not be listed either."""
        self._store.list(file.path.rpartition("/")[0])
        return _dead(file, f"it may not be read: {(error.strerror or 'access denied').lower()}")

    def _parts(
        self,
        opened: BinaryIO,
        file: FoundFile,
        columns: Sequence[EventColumn] | None,
        known: KnownTypes,
    ) -> Iterator[FileEvents]:
        for part in event_parts(opened, file.path, self._settings, columns, known):
            self._go_on()
            yield part
            del part

    def _schema(self, file: FoundFile) -> list[EventColumn] | None:
        if not file.schema:
            return None
        with self._store.open(file.schema) as opened:
            return schema_columns(opened.read(MOST_HEADER + 1))

    def _of_table(self, table: TableId) -> Types:
        try:
            return self._known(table)
        except TableError:
            return {}  # applying events to the table reports the error

    def _object(self, file: FoundFile) -> str:
        return self._settings.inside(file.path).partition("/")[0]


def _one_by_one(function: Callable[[TableId], Types]) -> Callable[[TableId], Types]:
    """A function that several threads may call."""
    lock = Lock()

    def locked(table: TableId) -> Types:
        with lock:
            return function(table)

    return locked


def _is_no_avro(path: str, start: bytes) -> bool:
    """Whether a file with the name of an Avro file begins neither as one, nor as lines of JSON or
    gzip, which are read under any name: its lines would be told as no UTF-8."""
    if not path.endswith((".avro", ".avro.gz")) or start.startswith((MAGIC, GZIP, BOM_UTF8)):
        return False
    return not start.isspace() and not start.lstrip().startswith(b"{")


def _dead(file: FoundFile, reason: str) -> FileEvents:
    return FileEvents((), [DeadLetter(file.path, WHOLE_FILE, reason)])


def _add_types(known: dict[str, UnifiedType], part: TableEvents) -> None:
    """Add the types that the columns of a new table get."""
    key = {name for one in part.keys for name in one}
    for name, kind in {**part.columns, **key_types(part)}.items():
        before = known.setdefault(name, kind)
        known[name] = wider_type(before, kind, is_key=name in key, by_value=True)


def _differ(columns: Types, wanted: Types) -> bool:
    return any(wanted.get(name, kind) != kind for name, kind in columns.items())


def _both(first: UnifiedType, second: UnifiedType) -> UnifiedType:
    """The type for values of both types, as `events.decode.json.values.inferred` determines it."""
    if UnifiedKind.UNSUPPORTED in {first.kind, second.kind}:
        return second if first.kind is UnifiedKind.UNSUPPORTED else first
    if first == second:
        return first
    return types.NUMBER if {first, second} == {types.LONG, types.NUMBER} else types.STRING


def _placed(events: Sequence[FileEvents], first: int, count: int) -> list[FileEvents]:
    """An entry for each of `count` files; `events` are those from the file number `first` on."""
    after = count - first - len(events)
    return [*[FileEvents()] * first, *events, *[FileEvents()] * after]
