"""Files of tables on objects, as they are needed here: on the local disk, within a bound.

Data files and deletion vectors never change, so one that was fetched is as good as its object for
as long as it lies here. Each table has a folder, in which its files have their own names, with
indexes beside them as in a local table. Several processes share them: a file comes under its name
whole, or not at all, and is removed only while nobody works on its table (a lock that the system
takes away from whoever dies).
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

MOST = 10 << 30
"""Bytes that are kept at most, beside those of tables that are worked on; half of what the disk has
left, if that is less."""

LOOKS = 64
"""How often the cache is looked at while it is filled once."""

_DAY = 86_400.0


@dataclass(slots=True)
class _CachedFile:
    """A file, with the index that belongs to it. used: when it was needed last."""

    table: str
    paths: list[Path]
    size: int = 0
    used: float = 0.0


class Cache:
    """A folder of this user for files of tables. most: see `MOST`."""

    def __init__(self, root: Path, most: int = MOST) -> None:
        self._root, self._most = root, most
        self._since = most  # bytes that came since the last look; there may be much from before
        self._counting = threading.Lock()

    @contextlib.contextmanager
    def table(self, name: str) -> Iterator[Path]:
        """The folder of a table, of which nothing goes meanwhile. name: of any characters."""
        digest = hashlib.sha256(name.encode()).hexdigest()[:40]
        folder = self._folder("tables", digest)
        try:
            with _locked(self._folder("locks") / digest, fcntl.LOCK_SH):
                yield folder
        finally:
            self.trim()

    def write(self, target: Path, fetch: Callable[[BinaryIO], None]) -> None:
        """Let `fetch` write a file, which has its name when it is whole."""
        aside = self._folder("aside") / uuid.uuid4().hex
        try:
            with aside.open("xb") as file:
                fetch(file)
                file.flush()
                os.fsync(file.fileno())  # or it might be a hole, under its name, after a crash
                size = file.tell()
            target.parent.mkdir(parents=True, exist_ok=True)
            aside.replace(target)
        finally:
            aside.unlink(missing_ok=True)
        self.came(size)

    def came(self, size: int) -> None:
        """So many bytes were written into the folder of a table."""
        with self._counting:
            self._since += size

    def trim(self) -> None:
        """Remove what was not needed for longest, until the rest is within the bound."""
        with self._counting:
            if self._since * LOOKS < self._most:
                return
            self._since = 0
        lock = _locked(self._folder() / "trim.lock", fcntl.LOCK_EX | fcntl.LOCK_NB)
        with contextlib.suppress(BlockingIOError), lock:  # or another process does it
            self._trim()

    def _trim(self) -> None:
        kept = list(self._cached())
        total = sum(one.size for one in kept)
        bound = min(self._most, (shutil.disk_usage(self._root).free + total) // 2)
        with contextlib.ExitStack() as locks:
            free: dict[str, bool] = {}
            for one in sorted(kept, key=lambda one: one.used):
                if total <= bound:
                    break
                if one.table not in free:
                    free[one.table] = self._is_free(one.table, locks)
                if free[one.table]:
                    for path in one.paths:
                        path.unlink(missing_ok=True)
                    total -= one.size
        for aside in self._folder("aside").iterdir():  # of processes that have died
            with contextlib.suppress(FileNotFoundError):
                if aside.stat().st_mtime < time.time() - _DAY:
                    aside.unlink()

    def _is_free(self, table: str, locks: contextlib.ExitStack) -> bool:
        """Whether nobody works on a table; then nobody begins to before `locks` end."""
        try:
            lock = _locked(self._folder("locks") / table, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
                        one = found.setdefault(_owner(table, path), _CachedFile(table.name, []))
                        one.paths.append(path)
                        one.size += facts.st_size
                        one.used = max(one.used, facts.st_atime)
            yield from found.values()

    def _folder(self, *names: str) -> Path:
        """A folder of ours, and of nobody else. Raises StorageUnavailable."""
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


def touch(path: Path, size: int | None) -> bool:
    """Note that a file is needed now. False when it is not there, or is of another size."""
    try:
        facts = path.stat()
        if size is not None and facts.st_size != size:
            return False
        os.utime(path, ns=(time.time_ns(), facts.st_mtime_ns))  # an index knows it by the second
    except FileNotFoundError:
        return False
    return True


def _owner(table: Path, path: Path) -> Path:
    """The file to which another belongs: an index to its data file, each other to itself."""
    keys = table / KEYS
    if not path.is_relative_to(keys):
        return path
    inner = path.relative_to(keys)
    return table / inner.with_name(inner.name.split(SUFFIX)[0])


@contextlib.contextmanager
def _locked(path: Path, how: int) -> Iterator[None]:
    """Hold a lock. Raises BlockingIOError when somebody else has it, if `how` is not to wait."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, how)
        yield
    finally:
        os.close(handle)
