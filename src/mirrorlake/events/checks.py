"""What an event says that it is, and which events cannot be applied (ST-034, ST-110, ST-253)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.events import envelope
from mirrorlake.events.change_types import ChangeType
from mirrorlake.events.decode.batch import EventBatch
from mirrorlake.events.envelope import EventSource, ReadKind, ReadMethod
from mirrorlake.events.metadata import CHANGE_TYPE, IS_DELETED, PRIMARY_KEYS, REPLICATION_INDEX
from mirrorlake.model import keys

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CheckedEvents:
    """n events of one source.

    backfill, deletion: n bool. change_type: n texts, as ST-240 lists them. rejected: by the number
    of the event, why it is a dead letter; what else is said of it means nothing.
    """

    source: EventSource
    backfill: np.ndarray
    deletion: np.ndarray
    change_type: pa.Array
    rejected: Mapping[int, str]


def check(batch: EventBatch, configured: EventSource | None = None) -> CheckedEvents:
    """Classify the events of a batch, whose source is the configured one, or that of the first
    event that names one. Raises ValueError when none does."""
    head, rejected = batch.head, dict(batch.rejected)
    methods = _each(
        head.column(envelope.READ_METHOD),
        lambda text: ReadMethod.parse(text or "", configured),
        np.ones(len(batch), bool),
        rejected,
    )
    source = configured or next((one.source for one in methods if one is not None), None)
    if source is None:
        raise ValueError("no event has a read_method that names its source")
    for row, method in enumerate(methods):
        if method is not None and method.source is not source:
            rejected.setdefault(row, f"the event is of {method.source}, others are of {source}")
    backfill = np.array([one is not None and one.kind is ReadKind.BACKFILL for one in methods])
    given = head.column(CHANGE_TYPE)
    change = _each(given, ChangeType.parse, ~backfill, rejected)
    filled = _each(given, lambda text: ChangeType.parse(text, is_backfill=True), backfill, rejected)
    types = [one or two for one, two in zip(change, filled, strict=True)]
    deletion = np.array([one is not None and one.is_deletion for one in types])
    _contradicting(head.column(IS_DELETED), deletion, rejected)
    for row in np.flatnonzero(batch.empty & ~deletion).tolist():
        rejected.setdefault(row, "the event has no payload, and is no deletion")
    timeless = head.column(envelope.SOURCE_TIMESTAMP).is_null().to_numpy()
    for row in np.flatnonzero(timeless).tolist():
        rejected.setdefault(row, "the event has no source_timestamp")
    for row in np.flatnonzero(backfill & deletion).tolist():
        rejected.setdefault(row, "an event of a backfill deletes a row")
    names = pa.array([one and _LISTED[one] for one in types], pa.string())
    return CheckedEvents(source, backfill, deletion, names, rejected)


def key_names(batch: EventBatch, configured: Sequence[str] = ()) -> Sequence[frozenset[str]]:
    """The sets of columns that the events name as their key, in the order in which they occur:
    `primary_keys`, else `replication_index`, else what is configured (ST-250). Names are a set,
    whose order says nothing (ST-095); a set of none is that of a table without a key."""
    both = batch.head.select([PRIMARY_KEYS, REPLICATION_INDEX])
    # Lists cannot be compared as such; texts of their names and their lengths can.
    told = [pc.binary_join(column.combine_chunks(), "\x1f") for column in both.columns]
    told += [pc.list_value_length(column) for column in both.columns]
    rows = keys.encode(pa.table(told, names=list("abcd"))).first
    named = both.take(pa.array(rows)).to_pylist()
    sets = (one[PRIMARY_KEYS] or one[REPLICATION_INDEX] or configured for one in named)
    return list(dict.fromkeys(frozenset(names) for names in sets))


def missing_key(batch: EventBatch, key: Sequence[str]) -> Mapping[int, str]:
    """The events that have no value in some column of the key (ST-253)."""
    found: dict[int, str] = {}
    for name in key:
        if name not in batch.payload.column_names:
            return dict.fromkeys(range(len(batch)), f"the event has no key column {name}")
        lacking = batch.payload.column(name).is_null().to_numpy()
        found |= dict.fromkeys(np.flatnonzero(lacking).tolist(), f"the key column {name} is null")
    return found


_LISTED = {
    ChangeType.INSERT: "INSERT",
    ChangeType.CREATE: "INSERT",
    ChangeType.READ: "INSERT",
    ChangeType.UPDATE: "UPDATE-INSERT",
    ChangeType.UPDATE_INSERT: "UPDATE-INSERT",
    ChangeType.UPDATE_DELETE: "UPDATE-DELETE",
    ChangeType.DELETE: "DELETE",
}


def _each(
    column: pa.ChunkedArray,
    parse: Callable[[str | None], T],
    wanted: np.ndarray,
    rejected: dict[int, str],
) -> list[T | None]:
    """What each text means, of the rows that are wanted; of most texts there are many. A text
    without a meaning is the reason why its event is rejected, where there is none yet."""
    codes = pc.dictionary_encode(column.combine_chunks(), null_encoding="encode")
    meanings: list[T | None] = []
    errors: list[str] = []
    for text in codes.dictionary.to_pylist():
        try:
            meanings.append(parse(text))
            errors.append("")
        except ValueError as error:
            meanings.append(None)
            errors.append(str(error))
    numbers = codes.indices.to_numpy()
    wrong = np.array([bool(error) for error in errors], bool)
    for row in np.flatnonzero(wrong[numbers] & wanted).tolist():
        rejected.setdefault(row, errors[numbers[row]])
    found = zip(numbers.tolist(), wanted.tolist(), strict=True)
    return [meanings[number] if is_wanted else None for number, is_wanted in found]


def _contradicting(
    is_deleted: pa.ChunkedArray, deletion: np.ndarray, rejected: dict[int, str]
) -> None:
    """`is_deleted` and `change_type` say the same, or one of them is wrong."""
    said = is_deleted.combine_chunks()
    told = pc.fill_null(pc.not_equal(said, pa.array(deletion)), False)
    for row in np.flatnonzero(told.to_numpy(zero_copy_only=False)).tolist():
        rejected.setdefault(row, "is_deleted and change_type contradict each other")
