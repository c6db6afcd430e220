"""Groups the changes of some commits by key: the row before and after each version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.delta.feed_columns import METADATA
from mirrorlake.errors import FeedTargetError
from mirrorlake.feed.reader import FeedCommit
from mirrorlake.feed.rows import AFTER, BEFORE, DELETE, INSERT
from mirrorlake.model import keys as codes
from mirrorlake.model.arrow import contiguous, python_rows


@dataclass(frozen=True, slots=True)
class KeyedChanges:
    """n changes of k keys, ordered by key and then by version.

    rows: of the feed, without its own columns. keys: k rows, the keys.
    key: int64, n, the key of the change as a row of `keys`.
    commit: int64, n, the index of the commit.
    before, after: int64, n, the key's row in `rows` before and after the change, -1 for none. A
        delete and an insert of one key in one version are one change (CF-198); an update that
        changes the key is two (CF-199).
    apart: bool, n, a change that the feed has as a delete and an insert instead of an update.
    first, last: int64, k, the first and the last change of each key.
    """

    rows: pa.Table
    keys: pa.Table
    key: np.ndarray
    commit: np.ndarray
    before: np.ndarray
    after: np.ndarray
    apart: np.ndarray

    @property
    def first(self) -> np.ndarray:
        found: np.ndarray = np.searchsorted(self.key, np.arange(self.keys.num_rows))
        return found

    @property
    def last(self) -> np.ndarray:
        found: np.ndarray = np.searchsorted(self.key, np.arange(self.keys.num_rows), "right") - 1
        return found

    @property
    def existed(self) -> np.ndarray:
        """bool, k: whether the key had a row before all changes."""
        found: np.ndarray = self.before[self.first] >= 0
        return found


def keyed(
    commits: Sequence[FeedCommit], key: Sequence[str], schema: pa.Schema, where: str
) -> KeyedChanges:
    """Order the changes of ascending commits by key. schema: the columns of their rows.

    Raises FeedTargetError for a key that one version has twice (CF-200).
    """
    tables = [commit.rows for commit in commits]
    rows = pa.concat_tables(
        [schema.empty_table(), *(r.drop_columns(list(METADATA)) for r in tables)]
    )
    number = np.repeat(np.arange(len(tables)), [table.num_rows for table in tables])
    coded = codes.encode(rows.select(list(key)))
    place = coded.code * max(len(tables), 1) + number
    changes = np.unique(place)
    kinds = pa.chunked_array(
        [c for table in tables for c in table[METADATA[0]].chunks], pa.string()
    )
    sides = []
    for both in ((DELETE, BEFORE), (INSERT, AFTER)):
        at = np.flatnonzero(_is(kinds, *both))
        change = np.searchsorted(changes, place[at])
        _check_once(rows, at, change, key, [commits[n].version for n in number[at]], where)
        side = np.full(len(changes), -1)
        side[change] = at
        sides.append(side)
    keys = rows.select(list(key)).take(pa.array(coded.first))
    of_key, commit = changes // max(len(tables), 1), changes % max(len(tables), 1)
    before, after = sides
    again = (of_key[1:] == of_key[:-1]) & ((after[:-1] >= 0) != (before[1:] >= 0))
    if again.any():
        which = int(np.argmax(again)) + 1
        raise occurs_twice(keys, int(of_key[which]), where, commits[int(commit[which])].version)
    is_delete = _is(kinds, DELETE)[before] & (before >= 0)
    apart = is_delete & _is(kinds, INSERT)[after] & (after >= 0)
    return KeyedChanges(rows, keys, of_key, commit, before, after, apart)


def _is(kinds: pa.ChunkedArray, *any_of: str) -> np.ndarray:
    """Whether each row is of one of these kinds."""
    is_kind = pc.is_in(kinds, value_set=pa.array(any_of, pa.string()))
    found: np.ndarray = contiguous(is_kind).to_numpy(zero_copy_only=False)
    return found


def _check_once(
    rows: pa.Table,
    at: np.ndarray,
    change: np.ndarray,
    key: Sequence[str],
    version: Sequence[int],
    where: str,
) -> None:
    count = np.bincount(change)
    if len(count) and count.max() > 1:
        which = int(np.flatnonzero(count[change] > 1)[0])
        raise occurs_twice(rows.select(list(key)), int(at[which]), where, version[which])


def occurs_twice(keys: pa.Table, row: int, where: str, version: int) -> FeedTargetError:
    """The error for a key with several rows in the source (CF-200)."""
    return FeedTargetError(
        f"key {named_key(keys, row)} occurs twice in version {version} of its source",
        where=where,
        hint="Name columns that identify a row: --key COLUMN, key=[...].",
    )


def named_key(keys: pa.Table, row: int) -> str:
    """A key as shown in an error."""
    found = python_rows(keys.slice(row, 1))[0]
    return ", ".join(f"{name} = {value!r}" for name, value in found.items())
