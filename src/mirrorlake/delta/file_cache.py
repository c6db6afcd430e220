"""A cache of the files of tables on object storage: on the local disk, of bounded size.

Data files and deletion vectors never change, so cached files are always valid. Each table has a
folder in which its files have the names that they have in the table, with their key indexes, as in
a local table. Several processes share the cache: a file appears under its name atomically, and is
removed only while no process uses its table. A process that uses a table holds a shared file lock,
which the system releases when the process ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from mirrorlake.delta.lookup.key_index import FOLDER as KEYS
from mirrorlake.delta.lookup.key_index import SUFFIX
from mirrorlake.errors import StorageUnavailable

MAX_BYTES = 10 << 30
"""Maximum size of the cache in bytes, not counting tables in use; or half of the free disk space
including the cache, if that is less."""

TRIMS_PER_FILL = 64
"""The cache is trimmed whenever this part of its maximum size was written."""

_DAY = 86_400.0


@dataclass(slots=True)
class _CachedFile:
    """A file and its key index. used: the time of its last use, as Unix time."""

    table: str
    paths: list[Path]
    size: int = 0
    used: float = 0.0


class Cache:
    """The cache in a folder of this user. most: see `MAX_BYTES`."""

    def __init__(self, root: Path, most: int = MAX_BYTES) -> None:
        self._root, self._most = root, most
        self._since = most  # bytes written since the last trim; the cache may be full at the start
        self._counting = threading.Lock()

    @contextlib.contextmanager
    def table(self, name: str) -> Iterator[Path]:
        """The folder of a table, from which no file is removed while the context is open. name: any
        text."""
        digest = hashlib.sha256(name.encode()).hexdigest()[:40]
        folder = self._folder("tables", digest)
        try:
            with _file_lock(self._folder("locks") / digest, fcntl.LOCK_SH):
                yield folder
        finally:
            self.trim()

    def write(self, target: Path, fetch: Callable[[BinaryIO], None]) -> None:
        """Create a file atomically, with the content that `fetch` writes."""
        aside = self._folder("aside") / uuid.uuid4().hex
        try:
            with aside.open("xb") as file:
                fetch(file)
                file.flush()
                os.fsync(file.fileno())  # otherwise it might be empty after a crash
                size = file.tell()
            target.parent.mkdir(parents=True, exist_ok=True)
            aside.replace(target)
        finally:
            aside.unlink(missing_ok=True)
        self.add_bytes(size)

    def add_bytes(self, size: int) -> None:
        """Count bytes that were written into the folder of a table."""
        with self._counting:
            self._since += size

    def trim(self) -> None:
        """Remove the least recently used files until the cache is within its maximum size."""
        with self._counting:
            if self._since * TRIMS_PER_FILL < self._most:
                return
            self._since = 0
        lock = _file_lock(self._folder() / "trim.lock", fcntl.LOCK_EX | fcntl.LOCK_NB)
        with contextlib.suppress(BlockingIOError), lock:  # another process is trimming
            self._trim()

    def _trim(self) -> None:
        kept = list(self._cached())
        total = sum(cached.size for cached in kept)
        bound = min(self._most, (shutil.disk_usage(self._root).free + total) // 2)
        with contextlib.ExitStack() as locks:
            free: dict[str, bool] = {}
            for cached in sorted(kept, key=lambda cached: cached.used):
                if total <= bound:
                    break
                if cached.table not in free:
                    free[cached.table] = self._is_free(cached.table, locks)
                if free[cached.table]:
                    for path in cached.paths:
                        path.unlink(missing_ok=True)
                    total -= cached.size
        for aside in self._folder("aside").iterdir():  # left by processes that crashed
            with contextlib.suppress(FileNotFoundError):
                if aside.stat().st_mtime < time.time() - _DAY:
                    aside.unlink()

    def _is_free(self, table: str, locks: contextlib.ExitStack) -> bool:
        """Whether no process uses a table; if so, none can begin to until `locks` are released."""
        try:
            lock = _file_lock(self._folder("locks") / table, fcntl.LOCK_EX | fcntl.LOCK_NB)
            locks.enter_context(lock)
        except BlockingIOError:
            return False
        return True

    def _cached(self) -> Iterator[_CachedFile]:
        for table in self._folder("tables").iterdir():
            found: dict[Path, _CachedFile] = {}
            for location, _folders, names in os.walk(table):
                for name in names:
                    path = Path(location, name)
                    with contextlib.suppress(FileNotFoundError):
                        facts = path.stat()
                        cached = found.setdefault(_owner(table, path), _CachedFile(table.name, []))
                        cached.paths.append(path)
                        cached.size += facts.st_size
                        cached.used = max(cached.used, facts.st_atime)
            yield from found.values()

    def _folder(self, *names: str) -> Path:
        """A folder of the cache. Raises StorageUnavailable if other users can write to it."""
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = self._root.lstat()
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or facts.st_mode & 0o022:
            raise StorageUnavailable(
                "other users have access to the cache folder for table files",
                where=str(self._root),
                hint="Delete it, or set TMPDIR to a folder that only this user may write to.",
            )
        folder = self._root.joinpath(*names)
        folder.mkdir(parents=True, exist_ok=True)
        return folder


@lru_cache(maxsize=1)
def cache() -> Cache:
    """The cache of this user, in the folder for temporary files (`TMPDIR`)."""
    return Cache(Path(tempfile.gettempdir(), f"mirrorlake-{os.getuid()}"))


def mark_used(path: Path, size: int | None) -> bool:
    """Set the time of last use of a file. False if it does not exist, or has another size."""
    try:
        facts = path.stat()
        if size is not None and facts.st_size != size:
            return False
        os.utime(path, ns=(time.time_ns(), facts.st_mtime_ns))  # key indexes depend on the mtime
    except FileNotFoundError:
        return False
    return True


def _owner(table: Path, path: Path) -> Path:
    """The data file of a key index; any other file itself."""
    keys = table / KEYS
    if not path.is_relative_to(keys):
        return path
    inner = path.relative_to(keys)
    return table / inner.with_name(inner.name.split(SUFFIX)[0])


@contextlib.contextmanager
def _file_lock(path: Path, how: int) -> Iterator[None]:
    """Hold a file lock. Raises BlockingIOError if another process holds it and `how` has
    LOCK_NB."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, how)
        yield
    finally:
        os.close(handle)
