"""What the intervals of a history are told in: versions, times or positions (CF-204)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from mirrorlake.delta.log.history import batch_of
from mirrorlake.errors import FeedTargetError
from mirrorlake.feed.history.settings import IntervalBounds
from mirrorlake.feed.targets.build import Basis
from mirrorlake.model.arrow import arrow_type

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class CommitBounds:
    """values: one for each commit; clock: the latest time, in microseconds, for the next ones."""

    values: pa.Array
    clock: int | None = None


def bounds_of(
    kind: IntervalBounds,
    basis: Basis,
    commits: Sequence[tuple[int, datetime | None]],
) -> CommitBounds:
    """The bound of each commit, given by version and time, ascending by version.

    A time that is before that of an earlier version counts as that one: intervals never overlap,
    and versions of one time stay in their order. Raises FeedTargetError for a commit that does not
    name its source.
    """
    if kind is IntervalBounds.VERSION:
        return CommitBounds(pa.array([version for version, _time in commits], pa.int64()))
    values = [_told(kind, version, time, basis) for version, time in commits]
    if kind is IntervalBounds.SOURCE_POSITION:
        return CommitBounds(pa.array(values, pa.string()))
    latest = -(1 << 62) if basis.state.built is None else basis.state.clock
    micros = []
    for value in values:
        latest = max(latest, (value - _EPOCH) // timedelta(microseconds=1))
        micros.append(latest)
    return CommitBounds(pa.array(micros, pa.int64()).cast(arrow_type(kind.type)), latest)


def _told(kind: IntervalBounds, version: int, time: datetime | None, basis: Basis) -> Any:
    if kind is IntervalBounds.COMMIT_TIME:
        return time or basis.source.time(version)
    batch = batch_of(version, basis.source.commit_info(version))
    found = batch and (batch.source_time if kind is IntervalBounds.SOURCE_TIME else batch.position)
    if not found:
        raise FeedTargetError(
            f"version {version} of its source does not name a {kind.replace('_', ' ')}",
            where=basis.where,
            hint="Build it with --bounds version or --bounds commit_time.",
        )
    return found
