"""One container with a hierarchical namespace: files, real folders, etags, atomic renames."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 1, tzinfo=UTC)


class Refused(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(status, code)
        self.status, self.code = status, code


@dataclass(frozen=True)
class Conditions:
    """if_none_match is `*` or nothing; etags are without quotes."""

    if_match: str | None = None
    if_none_match: str | None = None
    source_if_match: str | None = None


@dataclass(frozen=True)
class Node:
    is_folder: bool
    etag: str
    modified: datetime
    content: bytes = b""
    pending: dict[int, bytes] = field(default_factory=dict)
    """What was appended and not flushed yet, by its position."""


class Tree:
    """Every method is one step that nobody sees half of.

    keeps_etags: whether a rename does, as Azure's does; target_first: whether a rename whose source
    is missing and whose target exists is told of the target; lists_files: whether a listing of a
    file shows it, or is refused; shown_as: how paths in listings begin instead of as they do.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.keeps_etags, self.target_first, self.lists_files = True, False, True
        self.shown_as = ("", "")
        self._numbers = itertools.count(1)
        self._lock = threading.RLock()
        self._put("", is_folder=True)

    def find(self, path: str, absent: str = "PathNotFound") -> Node:
        with self._lock:
            if path not in self.nodes:
                raise Refused(404, absent)
            return self.nodes[path]

    def create(self, path: str, conditions: Conditions, *, is_folder: bool) -> Node:
        with self._lock:
            old = self.nodes.get(path)
            self._check(old, conditions)
            if old and old.is_folder != is_folder:
                raise Refused(409, "ResourceTypeMismatch")
            self._make_parents(path)
            if old and is_folder:
                return old
            return self._put(path, is_folder=is_folder)

    def append(self, path: str, position: int, data: bytes) -> None:
        with self._lock:
            node = self.find(path)
            self.nodes[path] = replace(node, pending={**node.pending, position: data})

    def flush(self, path: str, position: int) -> Node:
        with self._lock:
            node = self.find(path)
            content = bytearray(node.content)
            for start, data in sorted(node.pending.items()):
                if start != len(content):
                    raise Refused(400, "InvalidFlushPosition")
                content += data
            if position != len(content):
                raise Refused(400, "InvalidFlushPosition")
            return self._put(path, is_folder=False, content=bytes(content))

    def rename(self, source: str, target: str, conditions: Conditions) -> None:
        with self._lock:
            if self.target_first:
                self._check(self.nodes.get(target), conditions)
            node = self.find(source, "SourcePathNotFound")
            wanted = conditions.source_if_match
            if wanted not in {None, node.etag}:
                raise Refused(412, "SourceConditionNotMet")
            if _parent(target) not in self.nodes:
                raise Refused(404, "RenameDestinationParentPathNotFound")
            old = self.nodes.get(target)
            self._check(old, conditions)
            if old and old.is_folder != node.is_folder:
                raise Refused(409, "InvalidSourceOrDestinationResourceType")
            for path in [path for path in self.nodes if _is_below(path, source)]:
                moved = self.nodes.pop(path)
                if not self.keeps_etags:
                    moved = replace(moved, etag=self._etag())
                self.nodes[target + path.removeprefix(source)] = moved

    def delete(self, path: str, conditions: Conditions, *, recursive: bool) -> None:
        with self._lock:
            self._check(self.find(path), conditions)
            gone = [other for other in self.nodes if _is_below(other, path)]
            if len(gone) > 1 and not recursive:
                raise Refused(409, "DirectoryNotEmpty")
            for other in gone:
                del self.nodes[other]

    def list(self, folder: str, after: str, count: int) -> tuple[list[tuple[str, Node]], bool]:
        """At most `count` of one level behind the name `after`, and whether there are more."""
        with self._lock:
            node = self.find(folder)
            if not node.is_folder:
                if not self.lists_files:
                    raise Refused(409, "ResourceTypeMismatch")
                return [(folder, node)], False
            below = [p for p in self.nodes if p and _parent(p) == folder and p > after]
            page = sorted(below)[:count]
            return [(path, self.nodes[path]) for path in page], len(below) > count

    # -- steps ----------------------------------------------------------------------------------

    def _put(self, path: str, *, is_folder: bool, content: bytes = b"") -> Node:
        etag = self._etag()
        modified = START + timedelta(seconds=int(etag, 16) & 0xFFFFFF)
        self.nodes[path] = Node(is_folder, etag, modified, content)
        return self.nodes[path]

    def _etag(self) -> str:
        return f"0x8D{next(self._numbers):013X}"

    def _make_parents(self, path: str) -> None:
        for parent in _above(path):
            if parent not in self.nodes:
                self._put(parent, is_folder=True)
            elif not self.nodes[parent].is_folder:
                raise Refused(409, "PathConflict")

    def _check(self, node: Node | None, conditions: Conditions) -> None:
        if conditions.if_none_match == "*" and node is not None:
            raise Refused(409, "PathAlreadyExists")
        if conditions.if_match is not None and (node is None or node.etag != conditions.if_match):
            raise Refused(412, "ConditionNotMet")


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _above(path: str) -> Iterator[str]:
    parts = path.split("/")
    for count in range(1, len(parts)):
        yield "/".join(parts[:count])


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")
