"""The bounds of a history's intervals: versions, times or positions (CF-204)."""

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
    """Bounds of commits. values: one per commit; clock: the latest time, in microseconds, for the
    next ones."""

    values: pa.Array
    clock: int | None = None


def bounds_of(
    kind: IntervalBounds,
    basis: Basis,
    commits: Sequence[tuple[int, datetime | None]],
) -> CommitBounds:
    """The bound of each commit, given by version and time, ascending by version. A commit without a
    time is the version of a snapshot: its rows are of the newest batch up to it, because later
    commits, such as a vacuum, have no source position.

    A time earlier than that of a previous version is replaced by that time: intervals never
    overlap, and versions with equal times keep their order. Raises FeedTargetError for a commit
    without its source position or time.
    """
    if kind is IntervalBounds.VERSION:
        return CommitBounds(pa.array([version for version, _time in commits], pa.int64()))
    values = [_bound_of(kind, version, time, basis) for version, time in commits]
    if kind is IntervalBounds.SOURCE_POSITION:
        return CommitBounds(pa.array(values, pa.string()))
    latest = -(1 << 62) if basis.state.built is None else basis.state.clock
    micros = []
    for value in values:
        latest = max(latest, (value - _EPOCH) // timedelta(microseconds=1))
        micros.append(latest)
    return CommitBounds(pa.array(micros, pa.int64()).cast(arrow_type(kind.type)), latest)


def _bound_of(kind: IntervalBounds, version: int, time: datetime | None, basis: Basis) -> Any:
    if kind is IntervalBounds.COMMIT_TIME:
        return time or basis.source.time(version)
    batch, at = None, version
    while batch is None and at >= (0 if time is None else version):
        batch, at = batch_of(at, basis.source.commit_info(at)), at - 1
    found = batch and (batch.source_time if kind is IntervalBounds.SOURCE_TIME else batch.position)
    if not found:
        raise FeedTargetError(
            f"version {version} of its source does not name a {kind.replace('_', ' ')}",
            where=basis.where,
            hint="Build it with --bounds version or --bounds commit_time.",
        )
    return found
