"""What the commits of a table say about its feed: times, positions, columns, coverage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from mirrorlake.delta.log.history import CommittedBatch
from mirrorlake.delta.log.retention import KeepTimes
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.delta.schema import TableSchema, parse
from mirrorlake.feed.change_files import commit_time
from mirrorlake.feed.position_map import PositionMap, batches_in, unbroken

_ENABLED = ("delta.enableChangeDataFeed", "delta.enableChangeDataCapture")
_IN_COMMIT, _SINCE = "delta.enableInCommitTimestamps", "delta.inCommitTimestampEnablementVersion"

REMEMBERED = 1_024
"""Commits whose actions are not read a second time."""


@dataclass(frozen=True, slots=True)
class MetadataSince:
    """The metadata of a table from a version on."""

    version: int
    metadata: Mapping[str, Any]

    @property
    def has_feed(self) -> bool:
        configuration = self.metadata.get("configuration") or {}
        return any(str(configuration.get(name)).lower() == "true" for name in _ENABLED)


class CommitHistory:
    """The commits of a table up to its latest version, as it was when this was made.

    positions: what is known of commits that the log no longer has. Methods raise FileNotFoundError
    and BrokenLog where the log is not whole.
    """

    def __init__(self, log: TableLog, positions: PositionMap | None = None) -> None:
        snapshot = log.snapshot()
        self.latest, self._metadata = snapshot.version, snapshot.metadata
        self._properties = snapshot.properties
        self.table_id = str(snapshot.metadata.get("id", ""))
        versions = unbroken([v for v in log.versions() if v <= self.latest])
        is_whole = versions and versions[-1] == self.latest
        self.oldest = versions[0] if is_whole else self.latest + 1
        self._log, self.actions, self._positions = (
            log,
            lru_cache(REMEMBERED)(log.actions),
            positions,
        )

    def schema(self) -> TableSchema:
        """The columns of the latest version. Raises UnknownColumnType."""
        return parse(self._metadata)

    @property
    def keeps(self) -> KeepTimes:
        """How long files and commits are kept."""
        return KeepTimes.of(self._properties)

    def time(self, version: int) -> datetime:
        """When a version was committed."""
        return datetime.fromtimestamp(commit_time(version, self.actions(version)) / 1000, UTC)

    def first_at(self, moment: datetime) -> int:
        """The first version that was committed at this time or later; `latest` + 1 for none."""
        return self._first(moment, is_after=False)

    def first_after(self, moment: datetime) -> int:
        """The first version that was committed later than this; `latest` + 1 for none."""
        return self._first(moment, is_after=True)

    def _first(self, moment: datetime, *, is_after: bool) -> int:
        def passes(version: int) -> bool:
            time = self.time(version)
            return time > moment or (time == moment and not is_after)

        if self._properties.get(_IN_COMMIT) != "true" or _SINCE in self._properties:
            # Times of such commits need not ascend.
            found = (v for v in range(self.oldest, self.latest + 1) if passes(v))
            return next(found, self.latest + 1)
        low, high = self.oldest, self.latest + 1
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if passes(middle) else (middle + 1, high)
        return low

    def batches(self) -> Iterator[CommittedBatch]:
        """The batches of the mirror, from the newest back, of all versions since `told_since`."""
        for _first, batches in self._told():
            yield from batches

    def told_since(self) -> int:
        """The version since which what commits say is known; `latest` + 1 for none."""
        return min((first for first, _batches in self._told()), default=self.latest + 1)

    def _told(self) -> Iterator[tuple[int, Iterable[CommittedBatch]]]:
        """Runs of versions, from the newest back and with no version between them: the first one
        of each, and its batches, the newest first. Of what is not kept the log is read."""
        end = self.latest + 1
        for one in self._positions.newest_first(self._log) if self._positions else ():
            if one.last + 1 < min(end, self.oldest):
                break
            yield min(one.last + 1, end), self._logged(one.last + 1, end)
            yield one.first, [batch for batch in reversed(one.batches) if batch.version < end]
            end = min(end, one.first)
        yield min(self.oldest, end), self._logged(self.oldest, end)

    def _logged(self, first: int, end: int) -> Iterator[CommittedBatch]:
        for version in range(end - 1, first - 1, -1):
            yield from batches_in(version, self.actions(version))

    def metadata(self, first: int, last: int) -> list[MetadataSince]:
        """The metadata that holds at version `first`, and each change of it up to `last`."""
        found = [MetadataSince(first, self._log.metadata_at(first))]
        for version in range(first + 1, last + 1):
            changed = [one["metaData"] for one in self.actions(version) if one.get("metaData")]
            found += [MetadataSince(version, metadata) for metadata in changed[-1:]]
        return found

    def covered_since(self) -> int:
        """The first version since which every version is in the feed; `latest` + 1 for none."""
        since = self.latest + 1
        for one in reversed(self.metadata(self.oldest, self.latest)):
            if not one.has_feed:
                break
            since = one.version
        return since
