"""The commits of a table for its feed: times, positions, columns, coverage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from mirrorlake.delta.log.history import CommittedBatch, commit_time
from mirrorlake.delta.log.retention import RetentionTimes
from mirrorlake.delta.log.table_log import Action, BrokenLog, TableLog
from mirrorlake.delta.schema import TableSchema, has_feed, parse
from mirrorlake.feed.commits.coverage import Coverage, CoveredVersions
from mirrorlake.feed.commits.position_map import PositionMap, batches_in, unbroken

_IN_COMMIT, _SINCE = "delta.enableInCommitTimestamps", "delta.inCommitTimestampEnablementVersion"

REMEMBERED = 1_024
"""Number of commits whose files or actions are cached."""


@dataclass(frozen=True, slots=True)
class MetadataSince:
    """The metadata of a table from a version on."""

    version: int
    metadata: Mapping[str, Any]

    @property
    def has_feed(self) -> bool:
        return has_feed(self.metadata.get("configuration") or {})


class CommitHistory:
    """The commits of a table up to its latest version at the time of construction.

    positions: facts about commits that the log no longer has.

    Methods raise FileNotFoundError and BrokenLog for an incomplete log.
    """

    def __init__(self, log: TableLog, positions: PositionMap | None = None) -> None:
        snapshot = log.snapshot()
        self.latest, self._metadata = snapshot.version, snapshot.metadata
        self._properties = snapshot.properties
        self.table_id = str(snapshot.metadata.get("id", ""))
        self._log, self._positions = log, positions
        self._known: dict[int, bytes | list[Action]] = {}
        self._described: dict[int, Action] = {}
        self._metadata_of: dict[tuple[int, int], list[MetadataSince]] = {}

    def actions(self, version: int) -> list[Action]:
        """The actions of one commit, which are remembered."""
        known = self._known.get(version)
        if isinstance(known, list):
            return known
        actions = self._log.actions_in(version, self._content(version, known))
        if known is not None or len(self._known) < REMEMBERED:
            self._known[version] = actions
        return actions

    def changes(self, version: int) -> list[Action]:
        """The actions of one commit that tell its changes; see `TableLog.changes_in`. They are not
        remembered: Python's garbage collection takes longer for each object that is kept."""
        known = self._known.get(version)
        if isinstance(known, list):
            return known
        return self._log.changes_in(version, self._content(version, known))

    def _content(self, version: int, known: bytes | None) -> bytes:
        return self._log.content(version) if known is None else known

    @cached_property
    def oldest(self) -> int:
        """The version since which the log has every commit, with its columns; `latest` + 1 for
        none. It takes a listing of the whole log, and is therefore found when it is first
        needed."""
        versions = unbroken([v for v in self._log.versions() if v <= self.latest])
        is_whole = versions and versions[-1] == self.latest
        if not is_whole:
            return self.latest + 1
        return self._log.described_since(versions[0], self.latest)

    def readable_from(self, version: int) -> int:
        """The first version, from this one on, since which the log has every commit, with its
        columns."""
        if self._log.has_all(version, self.latest):
            # Without them the log begins between two checkpoints, and is listed.
            with suppress(FileNotFoundError, BrokenLog):
                self.metadata_at(version)
                return version
        return max(version, self.oldest)

    def schema(self) -> TableSchema:
        """The columns of the latest version. Raises UnknownColumnType."""
        return parse(self._metadata)

    @property
    def keeps(self) -> RetentionTimes:
        """The retention of files and commits."""
        return RetentionTimes.of(self._properties)

    def time(self, version: int) -> datetime:
        """The commit time of a version."""
        return datetime.fromtimestamp(commit_time(version, self.actions(version)) / 1000, UTC)

    def first_at(self, moment: datetime) -> int:
        """The first version committed at or after this time; `latest` + 1 for none."""
        return self._first(moment, is_after=False)

    def first_after(self, moment: datetime) -> int:
        """The first version committed after this time; `latest` + 1 for none."""
        return self._first(moment, is_after=True)

    def _first(self, moment: datetime, *, is_after: bool) -> int:
        def passes(version: int) -> bool:
            time = self.time(version)
            return time > moment or (time == moment and not is_after)

        if self._properties.get(_IN_COMMIT) != "true" or _SINCE in self._properties:
            # Times of such commits may decrease.
            found = (v for v in range(self.oldest, self.latest + 1) if passes(v))
            return next(found, self.latest + 1)
        low, high = self.oldest, self.latest + 1
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if passes(middle) else (middle + 1, high)
        return low

    def batches(self) -> Iterator[CommittedBatch]:
        """The batches of the mirror in all versions since `known_since`, newest first."""
        for _first, batches in self._known_ranges():
            yield from batches

    def known_since(self) -> int:
        """The version since which the facts of commits are known; `latest` + 1 for none."""
        return min((first for first, _batches in self._known_ranges()), default=self.latest + 1)

    def _known_ranges(self) -> Iterator[tuple[int, Iterable[CommittedBatch]]]:
        """Adjacent ranges of versions, newest first: the first version of each, and its batches,
        newest first. The log is read for ranges that are not stored."""
        end = self.latest + 1
        for part in self._positions.newest_first(self._log) if self._positions else ():
            if part.last + 1 < min(end, self.oldest):
                break
            yield min(part.last + 1, end), self._logged(part.last + 1, end)
            yield part.first, [batch for batch in reversed(part.batches) if batch.version < end]
            end = min(end, part.first)
        yield min(self.oldest, end), self._logged(self.oldest, end)

    def _logged(self, first: int, end: int) -> Iterator[CommittedBatch]:
        for version in range(end - 1, first - 1, -1):
            yield from batches_in(version, self.actions(version))

    def metadata_at(self, version: int) -> Action:
        """The metaData action of a version, which is remembered."""
        if version not in self._described:
            self._described[version] = self._log.metadata_at(version)
        return self._described[version]

    def metadata(self, first: int, last: int) -> list[MetadataSince]:
        """The metadata at version `first`, and each change of it up to `last`; remembered."""
        if (first, last) not in self._metadata_of:
            self._metadata_of[first, last] = self._find_metadata(first, last)
        return self._metadata_of[first, last]

    def _find_metadata(self, first: int, last: int) -> list[MetadataSince]:
        found = [MetadataSince(first, self.metadata_at(first))]
        for version in range(first + 1, last + 1):
            if not self._may_have(b"metaData", version):
                continue
            changed = [
                action["metaData"] for action in self.actions(version) if action.get("metaData")
            ]
            found += [MetadataSince(version, metadata) for metadata in changed[-1:]]
        return found

    def _may_have(self, kind: bytes, version: int) -> bool:
        """Whether a commit may contain an action of this kind. Commits are parsed when their files
        are read, so that reading those of the first commits begins before that."""
        known = self._known.get(version)
        if isinstance(known, list) or (known is None and len(self._known) >= REMEMBERED):
            return True
        content = self._known[version] = self._content(version, known)
        # A name may be written with escapes, and a damaged commit is reported at once.
        is_whole = content.startswith(b"{") and content.rstrip().endswith(b"}")
        return kind in content or b"\\u" in content or not is_whole

    def coverage(self, first: int) -> list[CoveredVersions]:
        """Which of the log's versions from `first` on are in the feed."""
        kept, versions = self._positions, range(self.oldest, self.latest + 1)
        known = kept.coverage.read(self._log, versions) if kept else None
        if known is not None and known.first <= first:
            return known.until(self, self.latest).within(first, self.latest)
        return list(Coverage.of(self, first, self.latest).stretches)

    def covered_since(self, first: int | None = None) -> int:
        """The first version, from `first` on, after which every version is in the feed; `latest` +
        1 for none."""
        begin = max(self.oldest, first or 0)
        if begin > self.latest:
            return self.latest + 1
        last = self.coverage(begin)[-1]
        return last.first if last.has_feed else self.latest + 1
