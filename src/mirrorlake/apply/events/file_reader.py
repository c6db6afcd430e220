"""Reads event files, and finds the types of those that do not say them.

An Avro file names its columns, and so does the schema file beside files of JSON (ST-175). Without
one a column has the type that its table has; in a new table, the one that holds all the values of
the files that are read together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mirrorlake.apply.events.listing import FoundFile
from mirrorlake.apply.events.reading import WHOLE_FILE, DeadLetter, FileEvents, events_of
from mirrorlake.apply.events.settings import EventInput
from mirrorlake.errors import TableError
from mirrorlake.events import types
from mirrorlake.events.decode.avro_file import MAGIC
from mirrorlake.events.decode.errors import UnreadableEvents
from mirrorlake.events.decode.json_events import schema_columns
from mirrorlake.events.types import EventColumn, UnifiedKind, UnifiedType
from mirrorlake.model.table import TableId
from mirrorlake.storage.store import Store

Types = Mapping[str, UnifiedType]
"""Of columns, by their names in events."""


@dataclass(frozen=True, slots=True)
class _Read:
    """What a file holds. is_told: whether it says its types."""

    events: FileEvents
    is_told: bool = True


class FileReader:
    """Reads the files of a store. known: the types of a table; it may raise TableError."""

    def __init__(
        self, store: Store, settings: EventInput, known: Callable[[TableId], Types]
    ) -> None:
        self._store, self._settings, self._known = store, settings, known
        self._likely: dict[str, Types] = {}  # by the folder of an object

    def read(self, files: Sequence[FoundFile]) -> list[FileEvents]:
        """The events of each file. Raises OSError.

        Memory: all of them.
        """
        found = [self._read(file, self._likely.get(self._object(file), {})) for file in files]
        wanted: dict[TableId, dict[str, UnifiedType]] = {}
        for read in (one for one in found if not one.is_told):
            for part in read.events.tables:
                known = wanted.setdefault(part.table, {})
                for name, kind in part.columns.items():
                    known[name] = _both(known.get(name, types.UNSUPPORTED), kind)
        for table in wanted:
            wanted[table] |= self._of_table(table)
        for number, (file, read) in enumerate(zip(files, found, strict=True)):
            if read.is_told:
                continue
            types_ = {k: v for part in read.events.tables for k, v in wanted[part.table].items()}
            self._likely[self._object(file)] = types_
            if any(_differ(part.columns, types_) for part in read.events.tables):
                found[number] = self._read(file, types_)
        return [read.events for read in found]

    def _read(self, file: FoundFile, likely: Types) -> _Read:
        try:
            columns = self._schema(file)
            with self._store.open(file.path) as opened:
                is_told = opened.read(len(MAGIC)) == MAGIC or columns is not None
                opened.seek(0)
                events = events_of(opened, file.path, self._settings, columns, likely)
                return _Read(events, is_told)
        except FileNotFoundError:
            reason = "the file is gone"
        except UnreadableEvents as error:
            reason = str(error)
        return _Read(FileEvents((), [DeadLetter(file.path, WHOLE_FILE, reason)]))

    def _schema(self, file: FoundFile) -> list[EventColumn] | None:
        return schema_columns(self._store.read(file.schema)) if file.schema else None

    def _of_table(self, table: TableId) -> Types:
        try:
            return self._known(table)
        except TableError:
            return {}  # it says so when events are applied to it

    def _object(self, file: FoundFile) -> str:
        return file.path.removeprefix(self._settings.path).strip("/").partition("/")[0]


def _differ(columns: Types, wanted: Types) -> bool:
    return any(wanted.get(name, kind) != kind for name, kind in columns.items())


def _both(one: UnifiedType, other: UnifiedType) -> UnifiedType:
    """The type of the values of both, as `events.decode.json_values.inferred` has it."""
    if UnifiedKind.UNSUPPORTED in {one.kind, other.kind}:
        return other if one.kind is UnifiedKind.UNSUPPORTED else one
    if one == other:
        return one
    return types.NUMBER if {one, other} == {types.LONG, types.NUMBER} else types.STRING
