"""Decodes events from lines of JSON (ST-019, ST-025 to ST-028)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.events.avro_schema import is_payload, payload_columns, record_columns
from mirrorlake.events.decode.avro_file import MOST_HEADER
from mirrorlake.events.decode.batch import EventBatch, Unfit, head_of, is_list, is_text
from mirrorlake.events.decode.errors import UnreadableEvents
from mirrorlake.events.decode.json.fractions import with_fractions
from mirrorlake.events.decode.json.lines import NESTED, json_lines, parsed, text_of
from mirrorlake.events.decode.json.marked_texts import MarkedTexts
from mirrorlake.events.decode.json.parsed_events import ParsedEvents
from mirrorlake.events.decode.json.scan import Field, LineScanner, ScannedEvents
from mirrorlake.events.decode.json.values import column_of, flaw_of, inferred, texts_of
from mirrorlake.events.envelope import EventSource
from mirrorlake.events.metadata import OBJECT_PARTS, PRIMARY_KEYS, REPLICATION_INDEX
from mirrorlake.events.rows import payload_type
from mirrorlake.events.types import JSON, EventColumn, UnifiedType
from mirrorlake.model import keys
from mirrorlake.model.arrow import contiguous

_TOGETHER = 8 << 20
_MOST_TOGETHER = 20_000
_FEWEST_TO_SCAN = 64
"""Lines that are worth a call of Arrow's reader."""

_OBJECT_NAMES = [
    sorted(set(names), reverse=True) for names in zip(*OBJECT_PARTS.values(), strict=True)
]
"""The fields with the namespace of an object, the schema before the database, and with its name."""
_, _COLLECTION = OBJECT_PARTS[EventSource.MONGODB]
_DOCUMENT_KEY = "_id"

Types = Mapping[str, UnifiedType]
"""Types of columns, by name."""

Events = ParsedEvents | ScannedEvents

Known = Callable[[pa.Table], Types]
"""The known types of the columns of an object, of which HEAD of some events is given."""


def schema_columns(text: bytes) -> list[EventColumn]:
    """The columns of a schema file (ST-175), which may be that of payloads alone. One byte more
    than MOST_HEADER of it is enough. Raises UnreadableEvents."""
    if len(text) > MOST_HEADER:
        raise UnreadableEvents(f"the schema file is larger than {MOST_HEADER} bytes")
    try:
        told = json.loads(text)
        columns = record_columns(told) if is_payload(told) else payload_columns(told)
        for column in columns:
            payload_type(column.type)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnreadableEvents(f"the schema file is none of events: {str(error)[:200]}") from None
    return columns


def json_events(
    file: BinaryIO,
    columns: Sequence[EventColumn] | None = None,
    known: Known | None = None,
) -> Iterator[EventBatch]:
    """The events of a file, in batches of bounded size, each of one object.

    columns: of the schema file, if there is one.
    known: the types of columns that the schema file does not contain. A column in neither gets the
        type that fits all its values in the batch; of a known one, numbers with a fraction are in
        batches of their own where its type has none (`fractions`).

    Raises UnreadableEvents, as `avro_events` does.
    """
    given = {column.name: column.type for column in columns or ()}

    def types(head: pa.Table) -> Types:
        return {**(known(head) if known else {}), **given}

    fixed = frozenset(given)
    scanner = LineScanner()
    first, size = 0, 0
    together: list[tuple[bytes, int]] = []
    for line in json_lines(file):
        together.append(line)
        size += line[1]
        del line
        if size > _TOGETHER or len(together) == _MOST_TOGETHER:
            count = len(together)
            yield from _read(first, together, types, fixed, scanner)
            first, size, together = first + count, 0, []
    if together:
        yield from _read(first, together, types, fixed, scanner)


def _read(
    first: int,
    lines: list[tuple[bytes, int]],
    known: Known,
    fixed: Set[str],
    scanner: LineScanner,
) -> Iterator[EventBatch]:
    """The events of some lines, object by object. Takes the lines.

    first: the number of the first line in the file; fixed: the columns that a schema file has.
    """
    at = np.arange(first, first + len(lines))
    yield from _batches(at, _events(lines, scanner), known, fixed)


def _events(lines: list[tuple[bytes, int]], scanner: LineScanner) -> Events:
    """The events of some lines. Takes the lines."""
    if len(lines) >= _FEWEST_TO_SCAN:
        scanner.learn([parsed(*lines[0]).event])
        if (scanned := scanner.scan([line for line, _ in lines])) is not None:
            lines.clear()
            return scanned
    events = []
    for row in range(len(lines)):
        events.append(parsed(*lines[row]))
        lines[row] = (b"", 0)  # its text is not needed any more
    scanner.learn(one.event for one in events)
    return ParsedEvents(events)


def _batches(at: np.ndarray, events: Events, known: Known, fixed: Set[str]) -> Iterator[EventBatch]:
    """The events, object by object. at: their numbers in the file."""
    found = _batch(at, events, known, fixed)
    if isinstance(found, EventBatch):
        del events
        yield found
        del found  # before the next lines are read
        return
    for rows, wider in found:
        yield from _batches(at[rows], events.take(rows), _widened(known, wider), fixed)


def _widened(known: Known, wider: Types) -> Known:
    return (lambda head: {**known(head), **wider}) if wider else known


def _batch(
    at: np.ndarray, events: Events, known: Known, fixed: Set[str]
) -> EventBatch | Sequence[tuple[np.ndarray, Types]]:
    """The events in columns; or the rows of each batch, if there are several: of each object, or
    of some with wider types of columns."""
    rejected = dict(events.rejected)
    head, misread = head_of(
        len(at), _fields(events.generic, rejected), _fields(events.metadata, rejected)
    )
    if objects := _objects(head):
        return [(rows, {}) for rows in objects]
    rejected = {**events.misnamed, **rejected}  # of one object, which has bounded columns
    types = known(head)
    # Only MongoDB has collections.
    has_documents = head.column(_COLLECTION).null_count < len(at)
    columns, payload, unfit = [], [], Unfit()
    # Of a column that was renamed in upper and lower case alone, which stays what it is.
    alike = {name.casefold(): kind for name, kind in types.items()}
    key = set() if has_documents else _key_columns(head)
    apart, wider = set[int](), dict[str, UnifiedType]()
    for name, values in events.payload.items():
        if name in key and name not in types and isinstance(values, list):
            _reject_nested(name, values, rejected)
        # A key of MongoDB may be of any type (ST-160), and 17 is another one than "17".
        is_any = has_documents and name == _DOCUMENT_KEY
        told = types.get(name) or alike.get(name.casefold())
        kind = told or (JSON if is_any else inferred(values))
        found, bad = column_of(values, kind, has_documents=has_documents)
        if bad and told and name not in fixed | key:
            wide, rows = with_fractions(values, bad, kind)
            if rows:
                wider[name] = wide
                apart.update(rows)
        columns.append(EventColumn(name, kind))
        payload.append(found)
        unfit.add(bad, columns[-1], {row: flaw_of(values[row], kind) for row in bad})
    if apart:
        is_apart = np.isin(np.arange(len(at)), list(apart))
        parts: list[tuple[np.ndarray, Types]] = [(~is_apart, {}), (is_apart, wider)]
        return [(np.flatnonzero(which), kinds) for which, kinds in parts if which.any()]
    names = [column.name for column in columns]
    # A table without columns does not keep its number of rows.
    table = pa.table(payload, names=names) if names else head.select([])
    return unfit.batch(at, head, columns, table, events.empty, {**misread, **rejected})


def _key_columns(head: pa.Table) -> set[str]:
    """The names of the key columns of any event."""
    named = (contiguous(head.column(name)) for name in (PRIMARY_KEYS, REPLICATION_INDEX))
    return {
        name
        for lists in named
        if pa.types.is_list(lists.type)
        for name in pc.unique(lists.flatten()).to_pylist()
        if name is not None
    }


def _reject_nested(name: str, values: list[Any], rejected: dict[int, str]) -> None:
    """Refuse objects and arrays among other values of a key. The type that fits all of them would
    be text, so that such an event decided the type of a new table."""
    if all(one is None or isinstance(one, NESTED) for one in values):
        return
    for row, value in enumerate(values):
        if isinstance(value, NESTED):
            rejected.setdefault(
                row, f"the value of its key column {name:.80} is an object or array"
            )
            values[row] = None


def _objects(head: pa.Table) -> list[np.ndarray]:
    """The events of each object, if there are several; those that name none are with the first."""
    parts = [
        contiguous(pc.fill_null(pc.coalesce(*(head.column(name) for name in names)), ""))
        for names in _OBJECT_NAMES
    ]
    if all(pc.count_distinct(one).as_py() == 1 for one in parts):
        return []
    code = keys.encode(pa.table(parts, names=["namespace", "table"])).code
    named = pc.not_equal(parts[1], "").to_numpy(zero_copy_only=False)
    if named.any():
        code = np.where(named, code, code[named][0])
    found = [np.flatnonzero(code == one) for one in dict.fromkeys(code.tolist())]
    return found if len(found) > 1 else []


def _fields(
    columns: Mapping[str, Field | Sequence[Any]], rejected: dict[int, str]
) -> dict[str, pa.Array]:
    """The fields of the envelope or of the metadata as texts, or as lists of texts."""
    found = {}
    for name, column in columns.items():
        values = column.by_value if isinstance(column, MarkedTexts) else column
        if isinstance(values, pa.ListArray):
            if values.null_count == len(values):  # arrays elsewhere in the file say nothing
                found[name] = pa.nulls(len(values), pa.string())
                continue
            flat = MarkedTexts.of(values.flatten()).texts
            lists = pa.ListArray.from_arrays(
                _offsets(pc.fill_null(pc.list_value_length(values), 0)), flat, mask=values.is_null()
            )
            if not is_list(name):
                single = _without_lists(name, lists.to_pylist(), rejected)
                lists = pa.array(single, pa.string())
            found[name] = lists
            continue
        has_lists = not isinstance(values, MarkedTexts) and any(
            isinstance(one, list) for one in values
        )
        if has_lists and not is_list(name):
            found[name], rows = texts_of(_without_lists(name, values, rejected))
        elif has_lists:
            lists = [
                value if value is None or isinstance(value, list) else [value] for value in values
            ]
            flat, bad = texts_of([one for value in lists if value is not None for one in value])
            offsets = _offsets([0 if value is None else len(value) for value in lists])
            rows = [int(np.searchsorted(offsets, at, "right")) - 1 for at in bad]
            mask = pa.array([value is None for value in lists])
            found[name] = pa.ListArray.from_arrays(offsets, flat, mask=mask)
        else:
            found[name], rows = texts_of(values)
        for row in rows:
            rejected.setdefault(row, f"the value of {name} is no text")
    return found


def _without_lists(
    name: str, values: Sequence[Any], rejected: dict[int, str]
) -> Sequence[str | None]:
    """The values of a field that is no list; a text may be written as a list of one (ST-075)."""
    found = list(values)
    for row, value in enumerate(values):
        if isinstance(value, list):
            found[row] = text_of(value[0]) if len(value) == 1 and is_text(name) else None
            if found[row] is None:
                rejected.setdefault(row, f"the value of {name} is a list")
    return found


def _offsets(lengths: Any) -> pa.Array:
    return pa.array(np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))), pa.int32())
