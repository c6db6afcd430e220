"""The names of the files of a log: its commits and its checkpoints."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable

LAST = "_last_checkpoint"
"""Names the newest checkpoint, or an older one after a crash."""

_CHECKPOINT = re.compile(
    r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})|\.[0-9a-f-]{36})?\.(parquet|json)"
)


def commit(version: int) -> str:
    return f"{version:020d}.json"


def whole_checkpoint(version: int) -> str:
    """The name of a checkpoint in one file."""
    return f"{version:020d}.checkpoint.parquet"


def is_version(name: str) -> bool:
    """Whether a file is a commit or a checkpoint, and so a version of the table."""
    return name[:20].isdecimal() and (name.endswith(".json") or ".checkpoint." in name)


def versions_in(names: Iterable[str]) -> list[int]:
    """The versions of the commits among file names, ascending."""
    # Without a pattern: a log may have hundreds of thousands of commits.
    return sorted(
        int(name[:20])
        for name in names
        if len(name) == 25 and name.endswith(".json") and name[:20].isdecimal()
    )


def newest_checkpoint(
    names: Iterable[str], upto: int = sys.maxsize
) -> tuple[int, list[str]] | None:
    """The version of the newest complete checkpoint up to a version, and the names of its parts;
    None if there is none."""
    found = _whole_checkpoints(names)
    version = max((version for version, _count in found if version <= upto), default=None)
    if version is None:
        return None
    count = min(count for at, count in found if at == version)
    return version, sorted(found[version, count])[:count]


def oldest_checkpoint(names: Iterable[str], since: int) -> int | None:
    """The version of the oldest complete checkpoint from a version on; None if there is none."""
    found = _whole_checkpoints(names)
    return min((version for version, _count in found if version >= since), default=None)


def _whole_checkpoints(names: Iterable[str]) -> dict[tuple[int, int], list[str]]:
    """The names of the parts of each complete checkpoint, by its version and number of parts."""
    found: dict[tuple[int, int], list[str]] = {}
    for name in names:
        if ".checkpoint." in name and (match := _CHECKPOINT.fullmatch(name)):
            found.setdefault((int(match[1]), int(match[3] or 1)), []).append(name)
    # An incomplete checkpoint with another number of parts may exist beside a complete one.
    return {(version, count): of for (version, count), of in found.items() if len(of) >= count}


def named_checkpoint(content: bytes) -> tuple[int, list[str]] | None:
    """The checkpoint that the content of `_last_checkpoint` names, as `newest_checkpoint` returns
    it; None if the content is damaged. The files need not exist."""
    try:
        said = json.loads(content)
        version, parts = int(said["version"]), said.get("parts")
        if said.get("v2Checkpoint"):
            names = [str(said["v2Checkpoint"]["path"])]
        elif parts:
            names = [
                f"{version:020d}.checkpoint.{part:010d}.{int(parts):010d}.parquet"
                for part in range(1, int(parts) + 1)
            ]
        else:
            names = [whole_checkpoint(version)]
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return newest_checkpoint(names)
