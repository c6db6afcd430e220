"""The change feed of a table, folded: what it makes of nothing, commit by commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from mirrorlake import read_feed
from mirrorlake.delta.feed_columns import COMMIT_VERSION, METADATA
from mirrorlake.feed.rows import AFTER, BEFORE, DELETE, INSERT

Row = dict[str, Any]


def folded(
    path: Path,
    key: Sequence[str],
    plain: Callable[[str, Any], Any] = lambda _column, value: value,
    without: Sequence[str] = (),
) -> list[Row]:
    """The rows that the feed of a table makes from its first version on. Each commit changes a key
    once, and its old images are what is there. plain: the value of a column to compare; without:
    columns that are not compared."""
    rows: dict[tuple[Any, ...], Row] = {}
    told = read_feed(path, from_version=0).to_arrow().to_pylist()
    of_commit = itemgetter(COMMIT_VERSION)
    for version, changes in groupby(sorted(told, key=of_commit), of_commit):
        kinds: dict[tuple[Any, ...], list[str]] = {}
        images: dict[tuple[tuple[Any, ...], str], Row] = {}
        for change in changes:
            at, kind = tuple(change[name] for name in key), change[METADATA[0]]
            kinds.setdefault(at, []).append(kind)
            images[at, kind] = {
                name: plain(name, value)
                for name, value in change.items()
                if name not in METADATA and name not in without
            }
        for at, found in kinds.items():
            assert sorted(found) in ([INSERT], [DELETE], [AFTER, BEFORE]), (version, at)
            assert (at in rows) is (found != [INSERT]), (version, at)
            if found != [INSERT]:
                old = DELETE if found == [DELETE] else BEFORE
                assert images[at, old] == rows.pop(at), (version, at)
            if found != [DELETE]:
                rows[at] = images[at, INSERT if found == [INSERT] else AFTER]
    return list(rows.values())
