"""What the commits of a table say of its batches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from mirrorlake.delta.log.table_log import Action, TableLog
from mirrorlake.model.applied import FileRows, Totals
from mirrorlake.model.landed import NamedBatch, parse_time


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """One commit of ours. position: of its last change, in the source's words; cut: the cut that
    it completes for its table, when it does; duplicates: rows beyond the first that a key had
    (LZ-088, LZ-089); total: of the table up to this commit, itself included; source_time: when the
    source committed the last change; loading: the first files were not all applied yet (LZ-099);
    files: the rows read, by file or by run of files; names: of the files, in timestamp mode, where
    first and last are the number of the batch, and `files` counts the names from 1 on.
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


def batch_of(version: int, info: Action) -> CommittedBatch | None:
    """The batch that a commitInfo describes; None for a commit of somebody else."""
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
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def named_batches(log: TableLog, application: str, after: int) -> list[NamedBatch]:
    """The batches beyond number `after` of a table in timestamp mode, ascending (LZ-258).

    Read from the newest commit back, as far as needed. Those are missing whose commits the log no
    longer has, or whose commits were not made in timestamp mode. Raises BrokenLog.
    """
    found: list[NamedBatch] = []
    for version in range(log.snapshot().version, -1, -1):
        try:
            actions = log.actions(version)
        except FileNotFoundError:
            break  # the log keeps no commit that is older than this one
        batch = _named(version, actions, application)
        if batch and batch.number > after:
            found.append(batch)
        if batch and batch.number <= after + 1:
            break
    return found[::-1]


def _named(version: int, actions: list[Action], application: str) -> NamedBatch | None:
    """What a commit of ours recorded; what others write into their commits does not matter."""
    said = {
        kind: action[kind] for action in actions for kind in ("txn", "commitInfo") & action.keys()
    }
    txn, info = said.get("txn", {}), said.get("commitInfo", {})
    if txn.get("appId") != application:
        return None
    try:
        names = tuple(map(str, json.loads(info["userMetadata"])["names"]))
    except (ValueError, KeyError, TypeError):
        return None
    return NamedBatch(txn["version"], version, names)


def batches(log: TableLog, after: int = -1) -> Iterator[CommittedBatch]:
    """Our commits beyond version `after`, as far as the log still has them."""
    for version in log.versions():
        if version > after:
            for action in log.actions(version):
                if (info := action.get("commitInfo")) and (batch := batch_of(version, info)):
                    yield batch
