"""What the commits of a table say of its batches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from mirrorlake.lake.log import Action, TableLog


@dataclass(frozen=True, slots=True)
class Batch:
    """One commit of ours. position: of its last change, in the source's words; cut: the cut that
    it completes for its table, when it does."""

    version: int
    time: datetime
    first: int
    last: int
    position: str | None
    cut: int | None
    inserts: int
    updates: int
    deletes: int


def batch_of(version: int, info: Action) -> Batch | None:
    """The batch that a commitInfo describes; None for a commit of somebody else."""
    try:
        metadata = json.loads(info.get("userMetadata") or "{}")
        if metadata.get("mirrorlake") != 1:
            return None
        rows = metadata["rows"]
        positions = metadata.get("positions")
        return Batch(
            version=version,
            time=datetime.fromtimestamp(info["timestamp"] / 1000, UTC),
            first=metadata["files"][0],
            last=metadata["files"][1],
            position=positions[1] if positions else None,
            cut=metadata.get("cut"),
            inserts=rows["insert"],
            updates=rows["update"],
            deletes=rows["delete"],
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def batches(log: TableLog, after: int = -1) -> Iterator[Batch]:
    """Our commits beyond version `after`, as far as the log still has them."""
    for version in log.versions():
        if version > after:
            for action in log.actions(version):
                if (info := action.get("commitInfo")) and (batch := batch_of(version, info)):
                    yield batch
