"""The transaction log of a Delta table, read from its files.

Delta Lake protocol, "Delta Log Entries", "Checkpoints" and "Action Reconciliation". A snapshot is
built from the newest checkpoint and the commits after it, and then updated commit by commit. This
module only reads.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirrorlake.delta.log.files import FOLDER, log_files
from mirrorlake.delta.log.names import (
    LAST,
    commit,
    named_checkpoint,
    newest_checkpoint,
    oldest_checkpoint,
    versions_in,
)
from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.store import Store

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
"""The kinds of actions in the protocol."""

_OF_FEED = ("metaData", "protocol")

APPLICATION = "mirrorlake/"
"""Prefix of the application ids of mirrors."""

LOOK_BACK = 1_000
"""Maximum number of commits that are read to find the last batch."""

LONG = 1_000
"""Versions from which on a log is not listed as a whole if a part of it is enough."""

MANY = 1_000
"""Number of commits from which on they are listed, and not searched for one by one."""

NEAR = 128
"""Number of versions among which the checkpoint before a version is searched for first."""

Action = dict[str, Any]


class BrokenLog(ValueError):
    """The log cannot be replayed, because a part of it is missing or damaged."""


@dataclass(slots=True)
class TableSnapshot:
    """A table at one version.

    version: -1 if there is no table.
    files: the add actions of the live files by `file_id`, in no order.
    transactions: the recorded version by application id.
    recorded_in: the table version that last recorded a transaction, by application id, as far as
        its commit was read.
    commits: the commitInfo by version, since the last batch of a mirror.
    unknown: kinds of actions that are not in the protocol.
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
    """The log of the table at `path`, a folder or a URL; caches the newest snapshot.

    options: how to access a URL. for_feed: for a reader of the feed, which needs neither the files
    of the table nor the batches nor the older commits: a long log is read from the checkpoint that
    `_last_checkpoint` names, of which only the protocol and the metadata are read, so that `files`,
    `transactions`, `commits` and `recorded_in` of its snapshot are incomplete.
    """

    def __init__(
        self, path: str | Path, options: ObjectOptions | None = None, *, for_feed: bool = False
    ) -> None:
        self.path, self._for_feed = path, for_feed
        self._folder = f"{path}/{FOLDER}"
        self._files = log_files(path, options)
        self._snapshot = TableSnapshot()
        self._newest_identity: object = None

    @classmethod
    def below(cls, store: Store, path: str) -> TableLog:
        """The log of the table at a path of a store."""
        return cls(store.location(path), store.options(path))

    @property
    def state(self) -> object:
        """A value that changes whenever `snapshot` has read a newer version or another table."""
        return self._snapshot.version, self._newest_identity

    def snapshot(self) -> TableSnapshot:
        """The newest version. Costs two checks of files if nothing has changed since the last call.

        Raises FileNotFoundError, once, if the table was removed since the last call; BrokenLog.
        """
        try:
            return self._newest()
        except (AttributeError, KeyError, TypeError) as error:
            self.forget()  # the snapshot may contain half of a commit
            raise BrokenLog(f"{self._folder} contains an action of an unknown form") from error
        except BrokenLog:
            self.forget()
            raise

    def _newest(self) -> TableSnapshot:
        if self._snapshot.exists and self._identity() != self._newest_identity:
            self.forget()  # the table was replaced by another, which has other versions
            if not self._files.names():
                raise FileNotFoundError(f"the table at {self.path} no longer exists")
        if self._snapshot.exists and not self._follow(self._snapshot):
            return self._snapshot
        if not self._snapshot.exists:
            self._snapshot = self._load()
        self._newest_identity = self._identity() if self._snapshot.exists else None
        return self._snapshot

    def forget(self) -> None:
        """Drop the cached snapshot, so that the next call reads the whole log."""
        self._snapshot = TableSnapshot()

    def commit_file(self, version: int) -> Path:
        """The path of a commit of a local table."""
        return Path(self._folder, commit(version))

    def has(self, version: int) -> bool:
        """Whether there is a commit of this version."""
        return self.identity(version) is not None

    def identity(self, version: int) -> object | None:
        """The identity of the commit of this version, which differs if the table was replaced; None
        if there is no such commit."""
        return self._files.identity(commit(version))

    def actions(self, version: int) -> list[Action]:
        """The actions of one commit. Raises FileNotFoundError."""
        return self.actions_in(version, self.content(version))

    def content(self, version: int) -> bytes:
        """The file of one commit. Raises FileNotFoundError."""
        return self._files.read(commit(version))

    def actions_in(self, version: int, content: bytes) -> list[Action]:
        """The actions of one commit, from its file. Raises BrokenLog."""
        return self._json_actions(commit(version), _lines(content))

    def changes_in(self, version: int, content: bytes) -> list[Action]:
        """The actions of one commit, without those of data files if the commit has change files,
        which contain all that it changed. Raises BrokenLog."""
        lines = _lines(content)
        if any(line.startswith(b'{"cdc":') for line in lines):
            lines = [line for line in lines if not line.startswith((b'{"add":', b'{"remove":'))]
        return self._json_actions(commit(version), lines)

    def versions(self) -> list[int]:
        """The versions of the commits in the log, ascending."""
        return versions_in(self._files.names())

    def has_all(self, first: int, last: int) -> bool:
        """Whether the commits of a few versions of a long log are all there, without listing the
        others; False if that is not known."""
        if first < LONG or not 0 <= last - first < MANY:
            return False
        found = versions_in(self._files.names_between(first, last))
        return found == list(range(first, last + 1))

    def described_since(self, first: int, last: int) -> int:
        """The first version from `first` to `last` whose columns the log has, where the commits
        before `first` are missing: that of a metaData action or a checkpoint. `last` + 1 for
        none."""
        if first == 0 or newest_checkpoint(self._files.names_between(first - 1, first)):
            return first
        checkpoint = oldest_checkpoint(self._files.names(), first - 1)
        end = last + 1 if checkpoint is None else max(checkpoint, first)
        undescribed = range(first, end)
        return next((v for v in undescribed if self._describes(v)), end)

    def _describes(self, version: int) -> bool:
        return any(action.get("metaData") for action in self.actions(version))

    def metadata_at(self, version: int) -> Action:
        """The metaData action of a version. Raises FileNotFoundError or BrokenLog if the log no
        longer has it."""
        if version >= LONG:
            near = self._files.names_between(version - NEAR, version)
            if checkpoint := newest_checkpoint(near, version):
                with suppress(FileNotFoundError, BrokenLog):
                    return self._metadata_since(checkpoint, version)
        return self._metadata_since(newest_checkpoint(self._files.names(), version), version)

    def _metadata_since(self, checkpoint: tuple[int, list[str]] | None, version: int) -> Action:
        start, parts = checkpoint or (-1, [])
        for older in range(version, start, -1):
            if found := [action for action in self.actions(older) if action.get("metaData")]:
                return found[-1]["metaData"]  # type: ignore[no-any-return]
        for part in parts:
            for action in self._checkpoint_actions(part, "metaData"):
                if action.get("metaData"):
                    return action["metaData"]  # type: ignore[no-any-return]
        raise BrokenLog(f"the log of {self.path} does not contain the columns of version {version}")

    def snapshot_at(self, version: int) -> TableSnapshot:
        """The snapshot of a version. Raises FileNotFoundError or BrokenLog if the log no longer
        has it."""
        snapshot = TableSnapshot()
        checkpoint = newest_checkpoint(self._files.names(), version)
        if checkpoint is not None:
            for part in checkpoint[1]:
                replay(snapshot, self._checkpoint_actions(part), checkpoint[0])
        for later in range(snapshot.version + 1, version + 1):
            replay(snapshot, self.actions(later), later)
        return snapshot

    def basis(self) -> tuple[tuple[int, list[str]] | None, int]:
        """The newest checkpoint (version and names of its parts, None if there is none), and the
        newest version (-1 if there is none). Raises BrokenLog if a commit between them is
        missing."""
        names = self._files.names()
        checkpoint = newest_checkpoint(names)
        start = checkpoint[0] if checkpoint else -1
        versions = [version for version in versions_in(names) if version > start]
        self._check_whole(versions, start)
        return checkpoint, versions[-1] if versions else start

    def _check_whole(self, versions: Sequence[int], after: int) -> None:
        for expected, version in enumerate(versions, start=after + 1):
            if version != expected:
                raise BrokenLog(f"commit {expected} of {self.path} is missing")

    def _follow(self, snapshot: TableSnapshot) -> bool:
        """Replay the commits after a snapshot. Returns whether there were any."""
        before = snapshot.version
        while self.has(snapshot.version + 1):
            replay(snapshot, self.actions(snapshot.version + 1), snapshot.version + 1)
        return snapshot.version > before

    def _identity(self) -> object:
        """The identity of the newest commit that was read."""
        return self.identity(self._snapshot.version)

    def _load(self) -> TableSnapshot:
        if self._for_feed and (newest := self._newest_part()):
            # Whatever is wrong with a part is reported as the whole log shows it.
            with suppress(FileNotFoundError, BrokenLog):
                return self._load_part(*newest)
        names = self._files.names()
        snapshot = self._load_part(newest_checkpoint(names), versions_in(names))
        if not self._for_feed:
            self._look_back(snapshot, versions_in(names))
        return snapshot

    def _newest_part(self) -> tuple[tuple[int, list[str]], list[int]] | None:
        """The checkpoint that `_last_checkpoint` names and the versions from it on; None if the log
        is short or only a listing of all of it tells.

        The commit of the checkpoint must exist: a log is cleaned from its beginning, so that later
        commits were not removed either, even if the name of the checkpoint is not up to date.
        """
        try:
            named = named_checkpoint(self._files.read(LAST))
        except OSError:
            return None
        if named is None or named[0] < LONG:
            return None
        version, parts = named
        names = self._files.names_from(version, MANY) or []
        versions, newest = versions_in(names), newest_checkpoint({*names, *parts})
        return (newest, versions) if newest and versions[:1] == [version] else None

    def _load_part(
        self, checkpoint: tuple[int, list[str]] | None, versions: Sequence[int]
    ) -> TableSnapshot:
        """The snapshot of a checkpoint and the commits after it."""
        snapshot = TableSnapshot()
        if checkpoint is not None:
            version, parts = checkpoint
            for part in parts:
                actions = self._checkpoint_actions(part, _OF_FEED if self._for_feed else "")
                replay(snapshot, actions, version, from_checkpoint=True)
            snapshot.version = version
        versions = [version for version in versions if version > snapshot.version]
        self._check_whole(versions, snapshot.version)
        commits = [commit(version) for version in versions]
        for name, version, content in zip(
            commits, versions, self._files.reads(commits), strict=True
        ):
            replay(snapshot, self._json_actions(name, _lines(content)), version)
        if snapshot.exists and not snapshot.metadata:
            raise BrokenLog(f"no commit in {self._folder} contains the columns of the table")
        return snapshot

    def _look_back(self, snapshot: TableSnapshot, versions: list[int]) -> None:
        """Also read commits before the checkpoint, back to the last batch of any mirror: operations
        since then are needed, such as a RESTORE, and a checkpoint does not contain them."""
        known = snapshot.commits
        for version in reversed(versions[-LOOK_BACK:]):
            if _last_batch(snapshot) >= 0:
                return
            if version <= snapshot.version and version not in known:
                for action in self.actions(version):
                    _record(snapshot, action, version)

    def _checkpoint_actions(self, name: str, kind: str | tuple[str, ...] = "") -> Iterator[Action]:
        """The actions of a checkpoint. kind: only actions of this kind or these kinds, without
        those in sidecars; "" for all actions."""
        if name.endswith(".json"):
            rows = self._json_actions(name, _lines(self._files.read(name)))
        else:
            rows = self._parquet_actions(name, kind)
        for row in rows:
            if (sidecar := row.get("sidecar")) and not kind:
                yield from self._parquet_actions(f"_sidecars/{sidecar['path']}")
            else:
                yield row

    def _json_actions(self, name: str, lines: list[bytes]) -> list[Action]:
        """The actions of a commit. Raises BrokenLog, which does not quote the content."""
        try:
            # As one array, which is parsed in two thirds of the time of its lines.
            actions: list[Action] = json.loads(b"[%s]" % b",".join(lines))
        except ValueError:
            raise BrokenLog(f"{self._folder}/{name} is damaged: it is not JSON") from None
        if len(actions) != len(lines) or not all(isinstance(action, dict) for action in actions):
            raise BrokenLog(
                f"{self._folder}/{name} is damaged: it contains a line that is not an action"
            )
        if not actions:  # a power failure may empty a file that its writer did not flush
            raise BrokenLog(f"{self._folder}/{name} is damaged: it is empty")
        return actions

    def _parquet_actions(self, name: str, kind: str | tuple[str, ...] = "") -> list[Action]:
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


def _lines(content: bytes) -> list[bytes]:
    """The lines of a commit, each of which is an action."""
    # Of bytes, not of text: `str.splitlines` also splits at characters that are valid inside JSON
    # strings.
    return [line for line in content.splitlines() if line]


def replay(
    snapshot: TableSnapshot,
    actions: Iterable[Action],
    version: int,
    *,
    from_checkpoint: bool = False,
) -> None:
    """Update a snapshot with the actions of a version."""
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
            _record(snapshot, action, version)
    snapshot.version = version
    last = _last_batch(snapshot)
    for old in [v for v in snapshot.commits if v < last]:
        del snapshot.commits[old]


def _last_batch(snapshot: TableSnapshot) -> int:
    """The version with the last known batch of a mirror; -1 if none is known. Transactions of other
    applications are ignored."""
    found = (v for app, v in snapshot.recorded_in.items() if app.startswith(APPLICATION))
    return max(found, default=-1)


def file_id(action: Mapping[str, Any]) -> tuple[str, str]:
    """The identity of a live file: its path and the id of its deletion vector."""
    vector = action.get("deletionVector")
    return action["path"], vector_id(vector) if vector else ""


def vector_id(vector: Mapping[str, Any]) -> str:
    offset = vector.get("offset")
    suffix = "" if offset is None else f"@{offset}"
    return f"{vector['storageType']}{vector['pathOrInlineDv']}{suffix}"


def _record(snapshot: TableSnapshot, action: Action, version: int) -> None:
    """Store the commitInfo or the transaction of a commit in the snapshot."""
    if info := action.get("commitInfo"):
        if not isinstance(info, dict):
            raise TypeError("commitInfo")
        snapshot.commits[version] = info
    elif txn := action.get("txn"):
        known = snapshot.recorded_in.get(txn["appId"], -1)
        snapshot.recorded_in[txn["appId"]] = max(known, version)


def _parquet_actions(source: BinaryIO, kind: str | tuple[str, ...] = "") -> list[Action]:
    """The rows of a checkpoint, with maps as dictionaries and without NULL members."""
    with pq.ParquetFile(source, page_checksum_verification=True) as file:
        leaves = [file.schema.column(index).path for index in range(len(file.schema.names))]
        # Typed columns that repeat the JSON in `stats` are not part of an action.
        paths = [x for x in leaves if x.startswith(kind) and not x.startswith(_TYPED)]
        rows = _with_actions(file.read(columns=paths)).to_pylist(maps_as_pydicts="lossy")
    return [_without_nulls(row) for row in rows]


def _with_actions(rows: pa.Table) -> pa.Table:
    """The rows that are an action of one of these kinds; the others would be many empty actions."""
    is_one = [pc.is_valid(column) for column in rows.columns]
    return rows.filter(reduce(pc.or_, is_one)) if is_one else rows.slice(0, 0)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            # A partition value that is NULL is an entry of its own.
            name: member if name == "partitionValues" else _without_nulls(member)
            for name, member in value.items()
            if member is not None
        }
    return value
