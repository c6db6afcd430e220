"""Classifies events and finds those that cannot be applied (ST-034, ST-110, ST-253)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.events import envelope
from mirrorlake.events.change_types import ChangeType
from mirrorlake.events.decode.batch import EventBatch
from mirrorlake.events.envelope import EventSource, ReadKind, ReadMethod
from mirrorlake.events.metadata import CHANGE_TYPE, IS_DELETED, PRIMARY_KEYS, REPLICATION_INDEX
from mirrorlake.model import keys
from mirrorlake.model.arrow import rows_of_elements

T = TypeVar("T")
S = TypeVar("S", bound=Hashable)


@dataclass(frozen=True, slots=True)
class CheckedEvents:
    """n events of one source.

    backfill, deletion: n bool.
    change_type: n strings, from the list of ST-240, or TRUNCATE.
    rejected: maps the number of a dead letter in the batch to its reason; its other values are
        undefined.
    """

    source: EventSource
    backfill: np.ndarray
    deletion: np.ndarray
    change_type: pa.Array
    rejected: Mapping[int, str]


def check(batch: EventBatch, configured: EventSource | None = None) -> CheckedEvents:
    """Classify the events of a batch. Their source is the configured one, or the one that most of
    them name. Raises ValueError when none does."""
    head, rejected = batch.head, dict(batch.rejected)
    every = np.ones(len(batch), bool)
    methods = _methods(head, configured)
    methods.reject(every, rejected)
    source = configured or methods.most(lambda one: one.source)
    if source is None:
        raise ValueError("no event has a read_method that names its source")
    for row in np.flatnonzero(methods.flags(lambda one: one.source is not source)).tolist():
        other = methods.at(row).source
        rejected.setdefault(row, f"the event is of {other}, others are of {source}")
    backfill = methods.flags(lambda one: one.kind is ReadKind.BACKFILL)
    given = _encoded(head.column(CHANGE_TYPE))
    changes = _Meanings.of(given, ChangeType.parse)
    fills = _Meanings.of(given, lambda text: ChangeType.parse(text, is_backfill=True))
    changes.reject(~backfill, rejected)
    fills.reject(backfill, rejected)
    deletion = np.where(backfill, *(one.flags(_is_deletion) for one in (fills, changes)))
    _contradicting(head.column(IS_DELETED), deletion, rejected)
    for row in np.flatnonzero(batch.empty & ~deletion).tolist():
        rejected.setdefault(row, "the event has no payload, and is no deletion")
    timeless = head.column(envelope.SOURCE_TIMESTAMP).is_null().to_numpy()
    for row in np.flatnonzero(timeless).tolist():
        rejected.setdefault(row, "the event has no source_timestamp")
    for row in np.flatnonzero(backfill & deletion).tolist():
        rejected.setdefault(row, "an event of a backfill deletes a row")
    for name in (PRIMARY_KEYS, REPLICATION_INDEX):
        for row in _with_null(head.column(name).combine_chunks()):
            rejected.setdefault(row, f"a name in {name} is null")
    names = pc.if_else(pa.array(backfill), *(one.texts(_LISTED.get) for one in (fills, changes)))
    return CheckedEvents(source, backfill, deletion, names, rejected)


def source_of(head: pa.Table, configured: EventSource | None = None) -> EventSource | None:
    """The source of some events, as in `check`; None if none of them names it."""
    return configured or _methods(head, None).most(lambda one: one.source)


def key_names(batch: EventBatch, configured: Sequence[str] = ()) -> Sequence[frozenset[str]]:
    """The distinct sets of key columns of the events, in order of occurrence: `primary_keys`, else
    `replication_index`, else the configured key (ST-250). The order of the names has no meaning
    (ST-095); an empty set is that of a table without a key."""
    both = batch.head.select([PRIMARY_KEYS, REPLICATION_INDEX])
    comparable = [values for column in both.columns for values in _of_lists(column)]
    if comparable:
        rows = keys.encode(pa.table(comparable, names=list("abcd"[: len(comparable)]))).first
    else:
        rows = np.zeros(min(len(batch), 1), np.int64)
    named = both.take(pa.array(rows)).to_pylist()
    sets = (one[PRIMARY_KEYS] or one[REPLICATION_INDEX] or configured for one in named)
    return list(dict.fromkeys(frozenset(names) for names in sets))


def _of_lists(column: pa.ChunkedArray) -> list[pa.Array]:
    """Columns that are equal where lists of names are, which cannot be compared directly."""
    lists = column.combine_chunks()
    if lists.null_count == len(lists):
        return []
    length = pc.list_value_length(lists)
    if not lists.null_count and pc.all(pc.equal(length, 1)).as_py():
        return [lists.flatten()]
    return [pc.binary_join(lists, "\x1f"), length]


def missing_key(batch: EventBatch, key: Sequence[str]) -> Mapping[int, str]:
    """The events in which a key column has no value, with the reason (ST-253)."""
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
    ChangeType.TRUNCATE: str(ChangeType.TRUNCATE),
}


@dataclass(frozen=True, slots=True)
class _Meanings(Generic[T]):
    """The parsed values of a column with few distinct strings.

    number: for each row, the index of its value.
    errors: why a string has no value, which is None then.
    """

    number: np.ndarray
    meanings: Sequence[T | None]
    errors: Sequence[str]

    @classmethod
    def of(cls, column: pa.DictionaryArray, parse: Callable[[str | None], T]) -> _Meanings[T]:
        meanings, errors = list[T | None](), list[str]()
        for text in column.dictionary.to_pylist():
            try:
                meanings.append(parse(text))
                errors.append("")
            except ValueError as error:
                meanings.append(None)
                errors.append(str(error))
        return cls(column.indices.to_numpy(), meanings, errors)

    def reject(self, wanted: np.ndarray, rejected: dict[int, str]) -> None:
        """Reject those of the wanted rows whose string has no value, unless they already have a
        reason."""
        wrong = np.array([bool(error) for error in self.errors], bool)
        for row in np.flatnonzero(wrong[self.number] & wanted).tolist():
            rejected.setdefault(row, self.errors[self.number[row]])

    def flags(self, about: Callable[[T], bool]) -> np.ndarray:
        """`about` of the value of each row; false for a row without a value."""
        flags = np.array([value is not None and about(value) for value in self.meanings], bool)
        found: np.ndarray = flags[self.number]
        return found

    def texts(self, about: Callable[[T], str | None]) -> pa.Array:
        reasons = [None if one is None else about(one) for one in self.meanings]
        return pa.array(reasons, pa.string()).take(pa.array(self.number))

    def most(self, about: Callable[[T], S]) -> S | None:
        """`about` of the values of most rows; of as many, the first."""
        counts = Counter[S]()
        rows = np.bincount(self.number, minlength=len(self.meanings)).tolist()
        for one, count in zip(self.meanings, rows, strict=True):
            if one is not None:
                counts[about(one)] += count
        return max(counts, key=counts.__getitem__, default=None)

    def at(self, row: int) -> T:
        found: T | None = self.meanings[int(self.number[row])]
        assert found is not None
        return found


def _methods(head: pa.Table, configured: EventSource | None) -> _Meanings[ReadMethod]:
    return _Meanings.of(
        _encoded(head.column(envelope.READ_METHOD)),
        lambda text: ReadMethod.parse(text or "", configured),
    )


def _encoded(column: pa.ChunkedArray) -> pa.DictionaryArray:
    return pc.dictionary_encode(column.combine_chunks(), null_encoding="encode")


def _is_deletion(one: ChangeType) -> bool:
    return one.is_deletion


def _with_null(lists: pa.ListArray) -> list[int]:
    """The rows whose list has a null element."""
    names = lists.flatten()
    if not names.null_count:
        return []
    lacking = names.is_null()
    lacks = lacking.to_numpy(zero_copy_only=False)
    rows: list[int] = np.unique(rows_of_elements(lists)[lacks]).tolist()
    return rows


def _contradicting(
    is_deleted: pa.ChunkedArray, deletion: np.ndarray, rejected: dict[int, str]
) -> None:
    """Reject events whose `is_deleted` and `change_type` differ."""
    flags = is_deleted.combine_chunks()
    different = pc.fill_null(pc.not_equal(flags, pa.array(deletion)), False)
    for row in np.flatnonzero(different.to_numpy(zero_copy_only=False)).tolist():
        rejected.setdefault(row, "is_deleted and change_type contradict each other")
