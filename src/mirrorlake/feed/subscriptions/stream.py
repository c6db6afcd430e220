"""The state of a Structured Streaming query beside its subscription, which has the position: the
folder of its checkpoint, the start of that checkpoint, and the target (CF-183).

A recovery starts a new checkpoint; earlier ones are left unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.errors import UsageError
from mirrorlake.feed.subscriptions.record import FeedPosition, file_name
from mirrorlake.root import SUBSCRIPTIONS
from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.store import Store

FORMAT = 1
MARK = "mirrorlake_stream"
"""The member of `userMetadata` in which a commit of a target names the stream."""


@dataclass(frozen=True, slots=True)
class FeedStreamRecord:
    """The record of a stream.

    number: of its checkpoint, from 1.
    start: the version with which it starts, None for the snapshot.
    target: the Delta table that it writes, "" for anything else.
    """

    number: int
    start: int | None
    target: str = ""

    def content(self) -> bytes:
        return json.dumps({"format": FORMAT, **asdict(self)}).encode()

    @classmethod
    def parse(cls, content: bytes) -> Self:
        """Raises ValueError for anything but a record, and for a later format."""
        found = json.loads(content)
        if not isinstance(found, dict) or found.pop("format", None) != FORMAT:
            raise ValueError(f"not a stream of format {FORMAT}")
        try:
            record = cls(**found)
        except TypeError as error:
            raise ValueError(str(error)) from None
        start = 0 if record.start is None else record.start
        if not (type(record.number) is type(start) is int and isinstance(record.target, str)):
            raise ValueError("a member has another type")
        return record


class FeedStreamRecords:
    """The streams below one root."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def read(self, name: str) -> FeedStreamRecord | None:
        """None if no stream has this name. Raises UsageError."""
        path = f"{_folder(name)}/stream.json"
        try:
            return FeedStreamRecord.parse(self._store.read(path))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise UsageError(
                f"the file of a stream cannot be read: {error}",
                where=self._store.location(path),
                hint="Restore the file, or remove the stream and start it again.",
            ) from error

    def write(self, name: str, record: FeedStreamRecord) -> None:
        self._store.replace(f"{_folder(name)}/stream.json", record.content())

    def remove(self, name: str) -> None:
        """Remove a stream with its checkpoints."""
        self._store.delete_folder(_folder(name))

    def checkpoint(self, name: str, number: int) -> str:
        """The location of a checkpoint."""
        return self._store.location(_checkpoint(name, number))

    def query_id(self, name: str, number: int) -> str:
        """The id of the query that Spark has stored in a checkpoint."""
        content = self._store.read(f"{_checkpoint(name, number)}/metadata")
        return str(json.loads(content)["id"])

    def offset(self, name: str, number: int, batch: int) -> Mapping[str, Any]:
        """The end of a batch, as Delta's offset."""
        content = self._store.read(f"{_checkpoint(name, number)}/offsets/{batch}")
        found: Mapping[str, Any] = json.loads(content.splitlines()[-1])
        return found


def complete_at(offset: Mapping[str, Any], log: TableLog) -> int | None:
    """The last version that an existing stream has completely; None for none, and while it reads
    the snapshot.

    An offset is a version and an index in it. A commit with change files or deletion vectors is
    read as a whole, other commits may be split; the offset after the last file is the next version
    (CF-131).
    """
    if offset["isStartingVersion"]:
        return None
    version = int(offset["reservoirVersion"])
    is_whole = int(offset["index"]) >= 0 and any(
        "cdc" in action or (action.get("add") or action.get("remove") or {}).get("deletionVector")
        for action in log.actions(version)
    )
    last = version if is_whole else version - 1
    return last if last >= 0 else None


def stream_metadata(name: str, position: FeedPosition | None) -> str:
    """The `userMetadata` of a commit of a target."""
    return json.dumps({MARK: name, "position": position and str(position)})


def last_recorded(
    name: str, target: str, options: ObjectOptions | None = None
) -> FeedPosition | None:
    """The position in the newest commit of a stream to its target; None if the target's log has
    none. Raises BrokenLog, OSError."""
    log = TableLog(target, options)
    for version in reversed(log.versions()):
        for position in _positions(name, log.actions(version)):
            return position
    return None


def _positions(name: str, actions: list[dict[str, Any]]) -> Iterator[FeedPosition]:
    for info in (action["commitInfo"] for action in actions if action.get("commitInfo")):
        try:
            metadata = json.loads(info["userMetadata"])
            if metadata[MARK] == name and metadata["position"]:
                yield FeedPosition.parse(metadata["position"])
        except (KeyError, TypeError, ValueError):
            continue


def _folder(name: str) -> str:
    return f"{SUBSCRIPTIONS}/{file_name(name)}.stream"


def _checkpoint(name: str, number: int) -> str:
    return f"{_folder(name)}/checkpoint-{number}"
