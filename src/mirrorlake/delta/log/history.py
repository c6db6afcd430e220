"""The batches of a table, as recorded in its commits."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from mirrorlake.delta.log.table_log import Action, BrokenLog, TableLog
from mirrorlake.model.applied import FileRows, Totals
from mirrorlake.model.landed import NamedBatch, parse_time


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """A batch that a mirror committed.

    time: of the commit, in UTC.
    first, last: numbers of its files; in timestamp mode both are the number of the batch.
    position: of its last change, as printed by the source.
    cut: the cut that it completes for its table, if any.
    inserts, updates, deletes: changed rows.
    duplicates: rows of a key beyond its first (LZ-088, LZ-089).
    total: of the table, up to and including this commit.
    source_time: when the source committed the last change.
    loading: whether the initial load is still incomplete (LZ-099).
    files: the number of rows read, by file or run of files; in timestamp mode, files are numbered
        from 1 in the order of `names`.
    names: of the files, in timestamp mode.
    is_backfill: whether it applied a chunk of a backfill.
    """

    version: int
    time: datetime
    first: int
    last: int
    position: str | None
    cut: int | None
    inserts: int
    updates: int
    deletes: int
    duplicates: int = 0
    total: Totals = field(default_factory=Totals)
    source_time: datetime | None = None
    loading: bool = False
    files: tuple[FileRows, ...] = ()
    names: tuple[str, ...] = ()
    is_backfill: bool = False


def batch_of(version: int, info: Action) -> CommittedBatch | None:
    """The batch that a commitInfo describes; None if the commit is not one of a mirror."""
    try:
        metadata = json.loads(info.get("userMetadata") or "{}")
        if metadata.get("mirrorlake") != 1:
            return None
        rows = metadata["rows"]
        positions = metadata.get("positions")
        committed = metadata.get("source_time")
        return CommittedBatch(
            version=version,
            time=datetime.fromtimestamp(info["timestamp"] / 1000, UTC),
            first=metadata["files"][0],
            last=metadata["files"][1],
            position=positions[1] if positions else None,
            cut=metadata.get("cut"),
            inserts=rows["insert"],
            updates=rows["update"],
            deletes=rows["delete"],
            duplicates=int(metadata.get("duplicates", 0)),
            total=Totals.parse(metadata.get("total", {})),
            source_time=parse_time(committed) if committed else None,
            loading=bool(metadata.get("loading", False)),
            files=tuple(FileRows.parse(record) for record in metadata.get("read", ())),
            names=tuple(map(str, metadata.get("names", ()))),
            is_backfill="backfill" in metadata,
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def named_batches(log: TableLog, application: str, after: int) -> list[NamedBatch]:
    """The batches of a table in timestamp mode with a number greater than `after`, ascending
    (LZ-258).

    Commits are read from the newest backwards, as far as needed. Batches are missing if the log no
    longer has their commits, or if they were not committed in timestamp mode. Raises BrokenLog.
    """
    found: list[NamedBatch] = []
    for version in range(log.snapshot().version, -1, -1):
        try:
            actions = log.actions(version)
        except FileNotFoundError:
            break  # the log has no older commits
        batch = _named_batch(version, actions, application)
        if batch and batch.number > after:
            found.append(batch)
        if batch and batch.number <= after + 1:
            break
    return found[::-1]


def _named_batch(version: int, actions: list[Action], application: str) -> NamedBatch | None:
    """The batch that a commit records; None if it is not a commit of this application."""
    found = {
        kind: action[kind] for action in actions for kind in ("txn", "commitInfo") & action.keys()
    }
    txn, info = found.get("txn", {}), found.get("commitInfo", {})
    if txn.get("appId") != application:
        return None
    try:
        names = tuple(map(str, json.loads(info["userMetadata"])["names"]))
    except (ValueError, KeyError, TypeError):
        return None
    return NamedBatch(txn["version"], version, names)


def batches(log: TableLog, after: int = -1) -> Iterator[CommittedBatch]:
    """The batches committed after version `after`, as far as the log still has their commits."""
    for version in log.versions():
        if version > after:
            for action in log.actions(version):
                if (info := action.get("commitInfo")) and (batch := batch_of(version, info)):
                    yield batch


def commit_time(version: int, actions: Sequence[Action]) -> int:
    """The time of a commit, Unix time in milliseconds (CF-143)."""
    for action in actions:
        info = action.get("commitInfo") or {}
        for name in ("inCommitTimestamp", "timestamp"):
            if info.get(name) is not None:
                return int(info[name])
    raise BrokenLog(f"commit {version} does not contain its time")
