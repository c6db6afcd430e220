"""The keys that a backfill reads."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pyarrow as pa

from mirrorlake.capture.backfill.jobs import BackfillJob, BackfillRequest
from mirrorlake.capture.backfill.reading import hashes_of
from mirrorlake.errors import CannotBackfill
from mirrorlake.model.arrow import arrow_type
from mirrorlake.model.keys import KeyRange
from mirrorlake.model.landed import parse_time
from mirrorlake.sources.ordered import has_ranges, no_ranges
from mirrorlake.sources.table import SourceTable


def remaining(table: SourceTable, job: BackfillJob, left: KeyRange | None) -> KeyRange:
    """The keys that are still to be read: `left`, unless the table has another key by now, so that
    it is to be read from the beginning. Raises CannotBackfill."""
    kinds = {name: arrow_type(table.schema[name].type) for name in table.key}
    if left is None:
        return _asked(table, job.request)
    if left.hashes is not None:
        every = hashes_of(table)
        there = replace(left.hashes, first=every.first, end=every.end)
        return left if not has_ranges(table) and there == every else _asked(table, job.request)
    if not has_ranges(table):
        return _asked(table, job.request)
    ends = [bound.schema for bound in (left.low, left.high) if bound is not None]
    limits = [bound.schema for bound in (left.least, left.below) if bound is not None]
    leading = [list(kinds.items())[: len(end)] for end in ends]
    if leading != [[(field.name, field.type) for field in end] for end in ends]:
        return _asked(table, job.request)
    if any(kinds.get(field.name) != field.type for limit in limits for field in limit):
        return _asked(table, job.request)
    return left


def _asked(table: SourceTable, request: BackfillRequest) -> KeyRange:
    """The keys that a request is for. Raises CannotBackfill."""
    found, within = requested_range(table, request.keys), request.within
    if within is None or within.column not in table.key or not has_ranges(table):
        return found  # with another key by now
    least, below = (
        None if text is None else _value(table, within.column, text)
        for text in (within.least, within.below)
    )
    return replace(found, least=least, below=below)


def requested_range(table: SourceTable, keys: tuple[str, str] | None) -> KeyRange:
    """The requested range of keys: of the first key column, both ends with it.

    Raises CannotBackfill for a text that is no value of the column, for an end before the start in
    the order of `KeyRange`, and for a table without ranges.
    """
    if keys is None:
        return KeyRange()
    if not has_ranges(table):
        raise CannotBackfill(
            f"{no_ranges(table)}, so that only all of the table can be read again",
            table=str(table.table),
            hint=f"Run `mirrorlake backfill {table.table}` without a range.",
        )
    name = table.key[0]
    low, high = (_value(table, name, text) for text in keys)
    if not KeyRange(low, is_closed=True).contains(high).all():
        raise CannotBackfill(
            f"the end is before the start in the order of the key column {name}, which is a "
            f"{_type_there(table, name)}: swap the bounds",
            table=str(table.table),
            column=name,
        )
    return KeyRange(low, high, is_closed=True)


def _value(table: SourceTable, name: str, text: str) -> pa.Table:
    kind, there = arrow_type(table.schema[name].type), _type_there(table, name)
    try:
        if _is_uuid(there):
            value = pa.array([str(UUID(text))], kind)  # as the rows have it
        elif pa.types.is_timestamp(kind):
            value = pa.array([parse_time(text)], kind)
        elif pa.types.is_binary(kind):
            value = pa.array([bytes.fromhex(text.removeprefix("\\x"))], kind)
        else:
            value = pa.array([text]).cast(kind)
    except (pa.ArrowInvalid, ValueError) as error:
        raise CannotBackfill(
            f"a bound is no value of its key column {name}, which is a {there}",
            table=str(table.table),
            column=name,
        ) from error
    return pa.table([value], names=[name])


def _type_there(table: SourceTable, name: str) -> str:
    return str(table.source_types.get(name, table.schema[name].type))


def _is_uuid(there: str) -> bool:
    """Whether a type is `uuid`, or a domain of it."""
    return there.rpartition("(")[2].rstrip(")") == "uuid"
