"""The meaning of a landing zone in the plainest words: rows in a list, applied one after another.

This is the reference for fold, for every way of applying, and for the change feed. It is slow and
obviously right; it shares no code with what it judges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

UNCHANGED = "<unchanged>"
"""Stands where the source did not send a value."""

Row = tuple[Any, ...]
Limits = tuple[int, Any, Any]


@dataclass(frozen=True)
class Change:
    """A row of a landed file: its marker and its values."""

    marker: int
    row: Row


@dataclass
class Table:
    """A mirrored table: its rows in no order, where its key columns stand, which columns are those
    of metadata, and which one says that a row is deleted, where deletes are soft."""

    key: tuple[int, ...]
    rows: list[Row] = field(default_factory=list)
    metadata: tuple[int, ...] = ()
    soft: int | None = None

    def apply(self, batch: Sequence[Change]) -> Counter[tuple[str, Row]]:
        """Apply a batch; returns its change feed: how often each (change type, plain row)."""
        before = list(self.rows)
        touched: set[Row] = set()
        deleted_before: Row | None = None
        for change in batch:
            deleted_before = self._apply_one(change, deleted_before, touched)
        return self._feed(before, touched)

    def truncate(self, said: Mapping[int, Any] = MappingProxyType({})) -> Counter[tuple[str, Row]]:
        """Empty it. said: values that rows get where deletes are soft, by column."""
        if self.soft is not None:
            return self._mark_all(said)
        feed = Counter(("delete", plain(row)) for row in self.rows)
        self.rows = []
        return feed

    def backfill(
        self,
        batch: Sequence[Change],
        low: Row | None,
        high: Row | None,
        *,
        is_closed: bool,
        limits: Limits = (0, None, None),
        is_of: Callable[[Row], bool] | None = None,
    ) -> Counter[tuple[str, Row]]:
        """Let the rows with keys in a range be those that a batch leaves of nothing; returns the
        feed, which has nothing of a row that was there once and stays. Metadata makes no row
        another one. limits: the place of a column, its least value, and one that it is less
        than. is_of: which rows are meant, where these have no range."""

        def is_inside(row: Row) -> bool:
            if is_of is not None:
                return is_of(row)
            place, least, below = limits
            is_limited = (least is None or row[place] >= least) and (
                below is None or row[place] < below
            )
            return is_limited and self._is_inside(row, low, high, is_closed=is_closed)

        inside = [row for row in self.rows if is_inside(row)]
        if self.soft is not None:
            inside = [row for row in inside if row in self.alike(row)]
        told, there = (
            Table(self.key, soft=self.soft, metadata=self.metadata),
            Table(self.key, inside),
        )
        told.apply(batch)
        assert all(map(is_inside, told.rows))
        stays = [
            row
            for row in inside
            if self._bare(told.alike(row)) == self._bare(there.alike(row)) == self._bare([row])
        ]
        before, same = list(self.rows), self._bare(stays)
        if self.soft is not None:
            self._delete_all([row for row in inside if not told.alike(row)])
            inside = [row for row in inside if told.alike(row)]
        self.rows = [row for row in self.rows if row not in inside or row in stays]
        new = [row for row in told.rows if self._bare([row])[0] not in same]
        self.rows += new
        changed = [*(row for row in inside if row not in stays), *new]
        changed += [row for row in self.rows if row not in before and row not in changed]
        return self._feed(before, {identity(self._key_of(row)) for row in changed})

    # -- whole rows -----------------------------------------------------------------------------

    def apply_whole(self, batch: Sequence[Change]) -> Counter[tuple[str, Row]]:
        """Apply a batch to a table of which all columns are the key: a deletion is of one of the
        rows that are equal."""
        before = list(self.rows)
        for change in batch:
            if change.marker == 0:
                self.rows.append(change.row)
            else:
                assert change.marker == 2, "whole rows are not updated"
                self._remove_equal(change.row)
        return _difference(before, self.rows)

    def backfill_whole(
        self, batch: Sequence[Change], is_of: Callable[[Row], bool] | None
    ) -> Counter[tuple[str, Row]]:
        """As `backfill`: of rows that are equal there are then as many as the batch leaves."""
        told = Table((), metadata=self.metadata)
        told.apply_whole(batch)
        assert is_of is None or all(map(is_of, told.rows))
        before, self.rows = self.rows, []
        for row in before:
            is_there = self._equal(row, told.rows) is not None
            if is_there:
                told._remove_equal(row)
            if is_there or not (is_of is None or is_of(row)):
                self.rows.append(row)
        self.rows += told.rows
        return _difference(before, self.rows)

    def _remove_equal(self, row: Row) -> None:
        number = self._equal(row, self.rows)
        if number is None:
            raise LookupError(f"no row to delete: {row}")
        del self.rows[number]

    def _equal(self, row: Row, rows: Sequence[Row]) -> int | None:
        """The number of a row that equals one but for metadata."""
        wanted = identity(self._bare([row])[0])
        found = (n for n, one in enumerate(rows) if identity(self._bare([one])[0]) == wanted)
        return next(found, None)

    def _bare(self, rows: Sequence[Row]) -> list[Row]:
        """The rows without metadata."""
        return [
            tuple(value for index, value in enumerate(row) if index not in self.metadata)
            for row in rows
        ]

    def _is_inside(self, row: Row, low: Row | None, high: Row | None, *, is_closed: bool) -> bool:
        def placed(key: Row) -> Row:
            """NULL is greater than every value."""
            return tuple((value is None, value) for value in key)

        key = placed(self._key_of(row))
        if low is not None:
            first, least = key[: len(low)], placed(low)
            if not (first > least or (is_closed and first == least)):
                return False
        return high is None or key[: len(high)] <= placed(high)

    def alike(self, row: Row) -> list[Row]:
        """The rows that have the key of this one, without deleted rows beside others; none in a
        table without a key."""
        key = self._key_of(row)
        found = [one for one in self.rows if self.key and same_key(self._key_of(one), key)]
        return [one for one in found if not self._is_deleted(one)] or found

    def _apply_one(self, change: Change, deleted: Row | None, touched: set[Row]) -> Row | None:
        """One row; returns the row that it deleted, for a change of the key that follows."""
        key = self._key_of(change.row)
        alike = self.alike(change.row)
        if self.soft is not None and change.marker == 2:
            return self._mark(change.row, alike, touched)
        if self.soft is not None and change.marker == 0 and alike and self._is_deleted(alike[0]):
            touched.add(identity(key))
            self.rows = [row for row in self.rows if row not in alike]
        if change.marker == 0:
            self.rows.append(filled(change.row, deleted))
            return None
        touched.add(identity(key))
        self.rows = [row for row in self.rows if not any(row is one for one in alike)]
        if change.marker == 2:
            return alike[0] if len(alike) == 1 else None
        self.rows.append(filled(change.row, alike[0] if len(alike) == 1 else None))
        return None

    # -- soft deletes ---------------------------------------------------------------------------

    def _is_deleted(self, row: Row) -> bool:
        return self.soft is not None and bool(row[self.soft])

    def _mark(self, by: Row, alike: list[Row], touched: set[Row]) -> Row | None:
        """The rows of a key are deleted; returns the row as it was, for a change of the key."""
        if any(not self._is_deleted(row) for row in alike):
            touched.add(identity(self._key_of(by)))
        said = {index: by[index] for index in self.metadata}
        self.rows = [self._deleted(row, said) if row in alike else row for row in self.rows]
        return alike[0] if len(alike) == 1 else None

    def _deleted(self, row: Row, said: Mapping[int, Any]) -> Row:
        if self._is_deleted(row):
            return row
        now: dict[Any, Any] = {**said, self.soft: True}
        return tuple(now.get(index, value) for index, value in enumerate(row))

    def _delete_all(self, gone: list[Row]) -> None:
        unknown = dict.fromkeys(self.metadata)
        self.rows = [self._deleted(row, unknown) if row in gone else row for row in self.rows]

    def _mark_all(self, said: Mapping[int, Any]) -> Counter[tuple[str, Row]]:
        feed: Counter[tuple[str, Row]] = Counter()
        for row in self.rows:
            if not self._is_deleted(row):
                feed["update_preimage", plain(row)] += 1
                feed["update_postimage", plain(self._deleted(row, said))] += 1
        self.rows = [self._deleted(row, said) for row in self.rows]
        return feed

    def _feed(self, before: list[Row], touched: set[Row]) -> Counter[tuple[str, Row]]:
        """What became of the rows: one for one of a touched key is an update (CF-144)."""
        feed: Counter[tuple[str, Row]] = Counter()
        keys = {identity(self._key_of(row)) for row in [*before, *self.rows]} if self.key else set()
        for key in keys:
            old = [row for row in before if identity(self._key_of(row)) == key]
            new = [row for row in self.rows if identity(self._key_of(row)) == key]
            if not all(map(self._is_deleted, old)):
                stays = [row for row in old if self._is_deleted(row)]
                old, new = ([row for row in some if row not in stays] for some in (old, new))
            if key not in touched:
                for row in new[len(old) :]:
                    feed["insert", plain(row)] += 1
            elif len(old) == 1 and new:
                feed["update_preimage", plain(old[0])] += 1
                feed["update_postimage", plain(new[0])] += 1
                feed.update(("insert", plain(row)) for row in new[1:])
            else:
                feed.update(("delete", plain(row)) for row in old)
                feed.update(("insert", plain(row)) for row in new)
        if not self.key:
            feed.update(("insert", plain(row)) for row in self.rows[len(before) :])
        return feed

    def _key_of(self, row: Row) -> Row:
        return tuple(row[index] for index in self.key)


def _difference(before: Sequence[Row], after: Sequence[Row]) -> Counter[tuple[str, Row]]:
    old, new = Counter(map(plain, before)), Counter(map(plain, after))
    feed = Counter({("delete", row): count for row, count in (old - new).items()})
    feed.update({("insert", row): count for row, count in (new - old).items()})
    return feed


def filled(row: Row, base: Row | None) -> Row:
    """The row with every value, taken from the row that it was before where it was not sent."""
    if UNCHANGED not in row:
        return row
    if base is None:
        raise LookupError("a value that did not change has no earlier row")
    return tuple(old if new == UNCHANGED else new for new, old in zip(row, base, strict=True))


def same_key(one: Row, other: Row) -> bool:
    return identity(one) == identity(other)


def identity(key: Row) -> Row:
    """Equal for equal keys: floating point by bits, every NaN the same, NULL like NULL."""
    return tuple((type(v).__name__, repr(v)) for v in key)


def plain(row: Row) -> Row:
    """The row in values that can be counted: floating point as text, because -0.0 equals 0.0 and
    no NaN equals another; everything else as it is."""
    return tuple(repr(value) if isinstance(value, float) else value for value in row)


def without_equal(feed: Counter[tuple[str, Row]]) -> Counter[tuple[str, Row]]:
    """A feed without the updates that change nothing."""
    found = Counter(feed)
    for kind, row in feed:
        if kind == "update_preimage":
            same = min(feed[kind, row], feed["update_postimage", row])
            found[kind, row] -= same
            found["update_postimage", row] -= same
    return +found
