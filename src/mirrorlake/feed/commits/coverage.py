"""The versions of a table that its change feed covers (CF-017, CF-171).

This follows only from the commits, of which a log can have a million. Therefore the result is
stored below the root of the mirror, in one small file per table, and only later commits are read.
The file identifies the last commit it covers: it is not used for a table that was recreated or
replaced by a copy.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Protocol, Self

from mirrorlake.delta.log.table_log import Action, TableLog
from mirrorlake.delta.schema import has_feed
from mirrorlake.storage.store import Store, UnsafePath

FORMAT = 1


class Commits(Protocol):
    """The commits of a table; a log, or whoever remembers what it read of one."""

    def actions(self, version: int) -> list[Action]:
        """The actions of one commit. Raises FileNotFoundError, BrokenLog."""
        ...

    def metadata_at(self, version: int) -> Action:
        """The metaData action of a version. Raises FileNotFoundError, BrokenLog."""
        ...


@dataclass(frozen=True, slots=True)
class CoveredVersions:
    """The versions `first` to `last`, either all in the change feed or all not."""

    first: int
    last: int
    has_feed: bool

    def facts(self) -> list[int]:
        return [self.first, self.last]


@dataclass(frozen=True, slots=True)
class Coverage:
    """Consecutive stretches, ascending. commit: identity of the last commit."""

    stretches: tuple[CoveredVersions, ...]
    commit: str

    @property
    def first(self) -> int:
        return self.stretches[0].first

    @property
    def last(self) -> int:
        return self.stretches[-1].last

    @classmethod
    def of(cls, commits: Commits, first: int, last: int) -> Self:
        """The coverage according to the commits of a log. Raises FileNotFoundError, BrokenLog."""
        start = CoveredVersions(first, first, _has_feed(commits.metadata_at(first)))
        return cls((start,), identity(commits.actions(first))).until(commits, last)

    def until(self, commits: Commits, last: int) -> Self:
        """Extended by the commits up to a version."""
        found = list(self.stretches)
        for version in range(self.last + 1, last + 1):
            before = found[-1]
            metadata = [
                action["metaData"] for action in commits.actions(version) if action.get("metaData")
            ]
            now = _has_feed(metadata[-1]) if metadata else before.has_feed
            if now == before.has_feed:
                found[-1] = CoveredVersions(before.first, version, now)
            else:
                found.append(CoveredVersions(version, version, now))
        commit = identity(commits.actions(last)) if last > self.last else self.commit
        return type(self)(tuple(found), commit)

    def within(self, first: int, last: int) -> list[CoveredVersions]:
        """The stretches of a range of versions."""
        return [
            CoveredVersions(max(covered.first, first), min(covered.last, last), covered.has_feed)
            for covered in self.stretches
            if covered.first <= last and first <= covered.last
        ]

    def content(self) -> bytes:
        stretches = [[covered.first, covered.last, covered.has_feed] for covered in self.stretches]
        return json.dumps(
            {"format": FORMAT, "commit": self.commit, "stretches": stretches}
        ).encode()

    @classmethod
    def parse(cls, content: bytes) -> Self:
        """Raises ValueError for damaged content, and for another format."""
        try:
            record = json.loads(content)
            if record["format"] != FORMAT:
                raise ValueError(f"not of format {FORMAT}")
            stretches = tuple(
                CoveredVersions(int(a), int(b), bool(c)) for a, b, c in record["stretches"]
            )
            if not stretches:
                raise ValueError("no versions")
            return cls(stretches, str(record["commit"]))
        except (KeyError, TypeError) as error:
            raise ValueError(str(error)) from error


class CoverageFile:
    """The stored coverage of one table. Many processes may read it; only the mirror writes it."""

    def __init__(self, store: Store, path: str) -> None:
        self._store, self._path = store, path

    def read(self, log: TableLog, versions: Sequence[int]) -> Coverage | None:
        """The stored coverage; None if there is none for the table with this log. versions: of the
        log."""
        try:
            found = Coverage.parse(self._store.read(self._path))
            is_known = found.last in range(versions[0], versions[-1] + 1)
            if is_known and identity(log.actions(found.last)) == found.commit:
                return found
        except (OSError, UnsafePath, ValueError):
            pass  # it is computed again
        return None

    def keep(self, log: TableLog, versions: Sequence[int]) -> None:
        """Store the coverage according to the log. Raises OSError, BrokenLog."""
        first, last = versions[0], versions[-1]
        known = self.read(log, versions)
        found = known.until(log, last) if known else Coverage.of(log, first, last)
        if found != known:
            self._store.replace(self._path, found.content())


def identity(actions: Sequence[Action]) -> str:
    """Distinguishes a commit from another one of the same version."""
    infos = [action["commitInfo"] for action in actions if "commitInfo" in action]
    return hash_of(infos or list(actions))


def hash_of(value: Any) -> str:
    """A hash of plain data."""
    return sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]


def _has_feed(metadata: Action) -> bool:
    return has_feed(metadata.get("configuration") or {})
