"""The changes of some commits by key: what each key had before and has after each version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.errors import FeedTargetError
from mirrorlake.feed.reader import FeedCommit
from mirrorlake.feed.rows import AFTER, BEFORE, DELETE, INSERT, METADATA
from mirrorlake.model import keys as codes
from mirrorlake.model.arrow import contiguous


@dataclass(frozen=True, slots=True)
class KeyedChanges:
    """n changes of k keys, ordered by key and then by version.

    rows: of the feed, without its own columns; keys: k rows, the keys. Of each change: key: int64,
    its row in `keys`; commit: int64, which of the commits made it; before, after: int64, the row in
    `rows` that the key had before and has after it, -1 for none. A delete and an insert of one key
    in one version are one change (CF-198); an update that changes the key is two (CF-199).
    apart: bool: a change that was told as a delete and an insert, and not as an update.
    first, last: int64, k: the changes of each key that come first and last.
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
        """bool, k: whether the key had a row before all of them."""
        found: np.ndarray = self.before[self.first] >= 0
        return found


def keyed(
    commits: Sequence[FeedCommit], key: Sequence[str], schema: pa.Schema, where: str
) -> KeyedChanges:
    """Order the changes of commits, which ascend, by key. schema: the columns of their rows.

    Raises FeedTargetError for a key that one version has twice (CF-200).
    """
    told = [commit.rows for commit in commits]
    rows = pa.concat_tables([schema.empty_table(), *(r.drop_columns(list(METADATA)) for r in told)])
    number = np.repeat(np.arange(len(told)), [one.num_rows for one in told])
    coded = codes.encode(rows.select(list(key)))
    place = coded.code * max(len(told), 1) + number
    changes = np.unique(place)
    kinds = pa.chunked_array([c for one in told for c in one[METADATA[0]].chunks], pa.string())
    sides = []
    for both in ((DELETE, BEFORE), (INSERT, AFTER)):
        at = np.flatnonzero(_is(kinds, *both))
        change = np.searchsorted(changes, place[at])
        _check_once(rows, at, change, key, [commits[n].version for n in number[at]], where)
        side = np.full(len(changes), -1)
        side[change] = at
        sides.append(side)
    keys = rows.select(list(key)).take(pa.array(coded.first))
    of_key, commit = changes // max(len(told), 1), changes % max(len(told), 1)
    before, after = sides
    again = (of_key[1:] == of_key[:-1]) & ((after[:-1] >= 0) != (before[1:] >= 0))
    if again.any():
        which = int(np.argmax(again)) + 1
        raise occurs_twice(keys, int(of_key[which]), where, commits[int(commit[which])].version)
    is_delete = _is(kinds, DELETE)[before] & (before >= 0)
    apart = is_delete & _is(kinds, INSERT)[after] & (after >= 0)
    return KeyedChanges(rows, keys, of_key, commit, before, after, apart)


def _is(kinds: pa.ChunkedArray, *wanted: str) -> np.ndarray:
    """Of each row whether it is of one of these kinds."""
    is_wanted = pc.is_in(kinds, value_set=pa.array(wanted, pa.string()))
    found: np.ndarray = contiguous(is_wanted).to_numpy(zero_copy_only=False)
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
    """The error for a key that several rows of the source have (CF-200)."""
    return FeedTargetError(
        f"key {named_key(keys, row)} occurs twice in version {version} of its source",
        where=where,
        hint="Name columns that identify a row: --key COLUMN, key=[...].",
    )


def named_key(keys: pa.Table, row: int) -> str:
    """A key as an error names it."""
    found = keys.slice(row, 1).to_pylist()[0]
    return ", ".join(f"{name} = {value!r}" for name, value in found.items())
