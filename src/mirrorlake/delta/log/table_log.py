"""The transaction log of a Delta table, read from its files.

Delta Lake protocol, "Delta Log Entries", "Checkpoints" and "Action Reconciliation". A snapshot is
replayed from the newest checkpoint and the commits after it, and carried forward commit by commit.
Nothing is written here.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from mirrorlake.delta.log.files import FOLDER, log_files
from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.store import Store

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(
    r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})|\.[0-9a-f-]{36})?\.(parquet|json)"
)
_TYPED = ("add.stats_parsed.", "add.partitionValues_parsed.")

_KINDS = frozenset(
    {
        "add",
        "cdc",
        "checkpointMetadata",
        "commitInfo",
        "domainMetadata",
        "metaData",
        "protocol",
        "remove",
        "sidecar",
        "txn",
    }
)
"""Of actions, as the protocol names them."""

APPLICATION = "mirrorlake/"
"""What the application ids of mirrors begin with."""

LOOK_BACK = 1_000
"""How many commits are read at most in search of the last batch."""

Action = dict[str, Any]


class BrokenLog(ValueError):
    """The log cannot be replayed: a part of it is missing, or is not what it should be."""


@dataclass(slots=True)
class TableSnapshot:
    """A table at one version.

    files: the add actions of the live files by (path, id of the deletion vector), in no order;
    transactions: application id to recorded version; recorded_in: application id to the version of
    the table that recorded it last, where a commit that was read says so; commits: what was done,
    by version, since the last batch of a mirror; unknown: kinds of actions that the protocol does
    not name.
    """

    version: int = -1
    protocol: Action = field(default_factory=dict)
    metadata: Action = field(default_factory=dict)
    transactions: dict[str, int] = field(default_factory=dict)
    files: dict[tuple[str, str], Action] = field(default_factory=dict)
    recorded_in: dict[str, int] = field(default_factory=dict)
    commits: dict[int, Action] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)

    @property
    def exists(self) -> bool:
        return self.version >= 0

    @property
    def properties(self) -> Mapping[str, str]:
        return self.metadata.get("configuration") or {}

    @property
    def features(self) -> frozenset[str]:
        """Reader and writer features of the table."""
        named = [*self.protocol.get("readerFeatures", ()), *self.protocol.get("writerFeatures", ())]
        return frozenset(named)


class TableLog:
    """The log of the table at `path`, a folder or a URL; `snapshot` follows it.

    options: how a URL is reached.
    """

    def __init__(self, path: str | Path, options: ObjectOptions | None = None) -> None:
        self.path = path
        self._folder = f"{path}/{FOLDER}"
        self._files = log_files(path, options)
        self._snapshot = TableSnapshot()
        self._known: object = None

    @classmethod
    def below(cls, store: Store, path: str) -> TableLog:
        """The log of the table at a path of a store."""
        return cls(store.location(path), store.options(path))

    @property
    def state(self) -> object:
        """What was last read, to be compared: another after whatever `snapshot` has followed."""
        return self._snapshot.version, self._known

    def snapshot(self) -> TableSnapshot:
        """The newest version. Cheap when nothing happened since the last call: two looks at files.

        Raises FileNotFoundError, once, when the table that was here is gone; BrokenLog.
        """
        try:
            return self._newest()
        except (AttributeError, KeyError, TypeError) as error:
            self.forget()  # what was replayed before it may be half of a commit
            raise BrokenLog(f"{self._folder} contains an action of an unknown form") from error
        except BrokenLog:
            self.forget()
            raise

    def _newest(self) -> TableSnapshot:
        if self._snapshot.exists and self._identity() != self._known:
            self.forget()  # another table was made in this place, and has other versions
            if not self._files.names():
                raise FileNotFoundError(f"the table at {self.path} no longer exists")
        if self._snapshot.exists and not self._follow(self._snapshot):
            return self._snapshot
        if not self._snapshot.exists:
            self._snapshot = self._load()
        self._known = self._identity() if self._snapshot.exists else None
        return self._snapshot

    def forget(self) -> None:
        """Read everything anew next time."""
        self._snapshot = TableSnapshot()

    def commit_file(self, version: int) -> Path:
        """Of a table in a folder."""
        return Path(self._folder, _commit(version))

    def has(self, version: int) -> bool:
        """Whether there is a commit of this version."""
        return self.identity(version) is not None

    def identity(self, version: int) -> object | None:
        """What tells the commit of this version from that of another table in its place; None when
        there is none."""
        return self._files.identity(_commit(version))

    def actions(self, version: int) -> list[Action]:
        """The actions of one commit. Raises FileNotFoundError."""
        name = _commit(version)
        return self._json_actions(name, self._files.read(name))

    def versions(self) -> list[int]:
        """The versions whose commits the log still has, ascending."""
        return _versions(self._files.names())

    def metadata_at(self, version: int) -> Action:
        """The metaData action that holds at a version: of the newest checkpoint up to it, or of a
        commit since. Raises FileNotFoundError, BrokenLog when the log no longer has it."""
        checkpoint = _newest_checkpoint(self._files.names(), version)
        start, parts = checkpoint or (-1, [])
        for older in range(version, start, -1):
            if found := [one for one in self.actions(older) if one.get("metaData")]:
                return found[-1]["metaData"]  # type: ignore[no-any-return]
        for part in parts:
            for action in self._checkpoint_actions(part, "metaData"):
                if action.get("metaData"):
                    return action["metaData"]  # type: ignore[no-any-return]
        raise BrokenLog(f"the log of {self.path} does not contain the columns of version {version}")

    def snapshot_at(self, version: int) -> TableSnapshot:
        """The table as it was at a version. Raises FileNotFoundError and BrokenLog when the log no
        longer has it."""
        snapshot = TableSnapshot()
        checkpoint = _newest_checkpoint(self._files.names(), version)
        if checkpoint is not None:
            for part in checkpoint[1]:
                replay(snapshot, self._checkpoint_actions(part), checkpoint[0])
        for later in range(snapshot.version + 1, version + 1):
            replay(snapshot, self.actions(later), later)
        return snapshot

    def basis(self) -> tuple[tuple[int, list[str]] | None, int]:
        """The newest checkpoint, if any, as its version and the names of its parts, and the newest
        version: -1 for none. Raises BrokenLog when a commit between them is missing."""
        names = self._files.names()
        checkpoint = _newest_checkpoint(names)
        start = checkpoint[0] if checkpoint else -1
        versions = [version for version in _versions(names) if version > start]
        self._check_whole(versions, start)
        return checkpoint, versions[-1] if versions else start

    def _check_whole(self, versions: Sequence[int], after: int) -> None:
        for expected, version in enumerate(versions, start=after + 1):
            if version != expected:
                raise BrokenLog(f"commit {expected} of {self.path} is missing")

    def _follow(self, snapshot: TableSnapshot) -> bool:
        """Replay the commits since. Returns whether there were any."""
        before = snapshot.version
        while self.has(snapshot.version + 1):
            replay(snapshot, self.actions(snapshot.version + 1), snapshot.version + 1)
        return snapshot.version > before

    def _identity(self) -> object:
        """What tells the newest commit that was read from another of the same version."""
        return self.identity(self._snapshot.version)

    def _load(self) -> TableSnapshot:
        snapshot, names = TableSnapshot(), self._files.names()
        checkpoint = _newest_checkpoint(names)
        if checkpoint is not None:
            version, parts = checkpoint
            for part in parts:
                replay(snapshot, self._checkpoint_actions(part), version, from_checkpoint=True)
            snapshot.version = version
        versions = [v for v in _versions(names) if v > snapshot.version]
        self._check_whole(versions, snapshot.version)
        commits = [_commit(version) for version in versions]
        for name, version, content in zip(
            commits, versions, self._files.reads(commits), strict=True
        ):
            replay(snapshot, self._json_actions(name, content), version)
        if snapshot.exists and not snapshot.metadata:
            raise BrokenLog(f"no commit in {self._folder} contains the columns of the table")
        self._look_back(snapshot, _versions(names))
        return snapshot

    def _look_back(self, snapshot: TableSnapshot, versions: list[int]) -> None:
        """Read commits before the checkpoint too, back to the last batch of any mirror: what was
        done to the table since then matters, and a checkpoint does not tell it."""
        known = snapshot.commits
        for version in reversed(versions[-LOOK_BACK:]):
            if _last_batch(snapshot) >= 0:
                return
            if version <= snapshot.version and version not in known:
                for action in self.actions(version):
                    _note(snapshot, action, version)

    def _checkpoint_actions(self, name: str, kind: str = "") -> Iterator[Action]:
        """kind: of actions that are wanted, none of which lie in sidecars; all without one."""
        if name.endswith(".json"):
            rows = self._json_actions(name, self._files.read(name))
        else:
            rows = self._parquet_actions(name, kind)
        for row in rows:
            if (sidecar := row.get("sidecar")) and not kind:
                yield from self._parquet_actions(f"_sidecars/{sidecar['path']}")
            else:
                yield row

    def _json_actions(self, name: str, content: bytes) -> list[Action]:
        """The actions of a commit file. Raises BrokenLog, without quoting what stands there."""
        try:
            # Lines of bytes: a text ends its lines at characters too that stand in JSON as they
            # are.
            actions = [json.loads(line) for line in content.splitlines() if line]
        except ValueError:
            raise BrokenLog(f"{self._folder}/{name} is damaged: it is not JSON") from None
        if not all(isinstance(action, dict) for action in actions):
            raise BrokenLog(
                f"{self._folder}/{name} is damaged: it contains a line that is not an action"
            )
        if not actions:  # as a power failure may leave it, where who wrote it did not flush it
            raise BrokenLog(f"{self._folder}/{name} is damaged: it is empty")
        return actions

    def _parquet_actions(self, name: str, kind: str = "") -> list[Action]:
        try:
            with self._files.open(name) as file:
                return _parquet_actions(file, kind)
        except (pa.ArrowException, OSError) as error:
            if "CRC checksum" in str(error):
                what = "a page does not match its checksum"
            elif isinstance(error, pa.ArrowException):
                what = "it is not a complete Parquet file"
            else:
                raise
            raise BrokenLog(f"{self._folder}/{name} is damaged: {what}") from error


def _commit(version: int) -> str:
    return f"{version:020d}.json"


def _versions(names: Iterable[str]) -> list[int]:
    """The versions of the commits among some names, ascending."""
    found = (_COMMIT.fullmatch(name) for name in names)
    return sorted(int(match[1]) for match in found if match)


def _newest_checkpoint(
    names: Iterable[str], upto: int = sys.maxsize
) -> tuple[int, list[str]] | None:
    """The version of the newest complete checkpoint up to a version, and the names of its parts."""
    found: dict[tuple[int, int], list[str]] = {}
    for name in names:
        if (match := _CHECKPOINT.fullmatch(name)) and int(match[1]) <= upto:
            found.setdefault((int(match[1]), int(match[3] or 1)), []).append(name)
    # Parts of another number of parts, of one that was not finished, may lie beside a whole one.
    whole = [(version, count) for version, count in found if len(found[version, count]) >= count]
    if not whole:
        return None
    version = max(version for version, _count in whole)
    count = min(count for at, count in whole if at == version)
    return version, sorted(found[version, count])[:count]


def replay(
    snapshot: TableSnapshot,
    actions: Iterable[Action],
    version: int,
    *,
    from_checkpoint: bool = False,
) -> None:
    """Carry a snapshot to the version of these actions."""
    for action in actions:
        if add := action.get("add"):
            snapshot.files[file_id(add)] = add
        elif remove := action.get("remove"):
            snapshot.files.pop(file_id(remove), None)
        elif action.get("metaData"):
            snapshot.metadata = action["metaData"]
        elif action.get("protocol"):
            snapshot.protocol = action["protocol"]
        elif txn := action.get("txn"):
            snapshot.transactions[txn["appId"]] = txn["version"]
        else:
            snapshot.unknown |= action.keys() - _KINDS
        if not from_checkpoint:
            _note(snapshot, action, version)
    snapshot.version = version
    last = _last_batch(snapshot)
    for old in [v for v in snapshot.commits if v < last]:
        del snapshot.commits[old]


def _last_batch(snapshot: TableSnapshot) -> int:
    """The version that holds the last batch of a mirror, as far as is known; -1 for none. What
    others record in a table says nothing of that."""
    found = (v for app, v in snapshot.recorded_in.items() if app.startswith(APPLICATION))
    return max(found, default=-1)


def file_id(action: Mapping[str, Any]) -> tuple[str, str]:
    """What tells a live file from others: its path and its deletion vector."""
    vector = action.get("deletionVector")
    return action["path"], vector_id(vector) if vector else ""


def vector_id(vector: Mapping[str, Any]) -> str:
    offset = vector.get("offset")
    suffix = "" if offset is None else f"@{offset}"
    return f"{vector['storageType']}{vector['pathOrInlineDv']}{suffix}"


def _note(snapshot: TableSnapshot, action: Action, version: int) -> None:
    """Remember what a commit says of itself."""
    if info := action.get("commitInfo"):
        if not isinstance(info, dict):
            raise TypeError("commitInfo")
        snapshot.commits[version] = info
    elif txn := action.get("txn"):
        known = snapshot.recorded_in.get(txn["appId"], -1)
        snapshot.recorded_in[txn["appId"]] = max(known, version)


def _parquet_actions(source: BinaryIO, kind: str = "") -> list[Action]:
    """The rows of a checkpoint, with maps as dictionaries and absent members left out."""
    with pq.ParquetFile(source, page_checksum_verification=True) as file:
        leaves = [file.schema.column(index).path for index in range(len(file.schema.names))]
        # What says in typed columns what `stats` says as JSON is no part of an action.
        said = [x for x in leaves if x.startswith(kind) and not x.startswith(_TYPED)]
        rows = file.read(columns=said).to_pylist(maps_as_pydicts="lossy")
    return [_present(row) for row in rows]


def _present(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            # A value that is NULL is one, of which the log has an entry.
            name: member if name == "partitionValues" else _present(member)
            for name, member in value.items()
            if member is not None
        }
    return value
