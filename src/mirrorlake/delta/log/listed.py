"""The newest commit in a local log folder, which is listed once until it changes.

Where a log ends is only known from a listing of the whole folder: any number of commits may be
missing before a later one. Listing 100,000 names takes 40 ms, several times as long as reading the
last ten versions. Therefore the result is remembered until the folder changes, as the time of its
last change tells.
"""

from __future__ import annotations

import os
import time
from functools import lru_cache

from mirrorlake.delta.log.names import versions_in

SETTLED = 2_000_000_000
"""Nanoseconds after the last change of a folder from which on the next one has another time: file
systems count in steps of up to two seconds, and a server of files has a clock of its own."""

FOLDERS = 4_096
"""Maximum number of folders that are remembered."""


def newest_commit(folder: str, end: int) -> int:
    """The version of the newest commit in a folder; -1 if there is none.

    end: the first version that was not found by its name. Where the time of a folder does not
    change, as in some mounted buckets, a result is not remembered for another end of the log.
    """
    facts = os.stat(folder)  # noqa: PTH116  (as texts)
    # Not the modification time, which programs that restore folders set to an earlier one.
    changed = facts.st_ctime_ns
    if time.time_ns() - changed < SETTLED:
        return _listed(folder)
    return _remembered(folder, facts.st_dev, facts.st_ino, changed, end)


@lru_cache(FOLDERS)
def _remembered(folder: str, _device: int, _inode: int, _changed: int, _end: int) -> int:
    return _listed(folder)


def _listed(folder: str) -> int:
    versions = versions_in(os.listdir(folder))  # noqa: PTH208  (as texts)
    return versions[-1] if versions else -1
