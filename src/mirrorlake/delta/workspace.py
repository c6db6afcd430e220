"""Where a table lies: in a folder, or on objects that are fetched into one as they are needed.

All work on the files of a table happens in a folder (`TableWorkspace.folder`). Of a local table it
is the table itself. Of one on objects it is a folder of the cache: files are fetched into it when
they are needed, and new ones are written there and uploaded by `keep` before anybody names them.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol
from urllib.parse import unquote, urlparse

from mirrorlake.delta import deletion_vectors
from mirrorlake.delta.file_cache import Cache, cache, touch
from mirrorlake.delta.log.files import FOLDER
from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.store import StorageFailed, UnsafePath, checked
from mirrorlake.storage.urls import addressed, is_url

if TYPE_CHECKING:
    from mirrorlake.storage.objects import ObjectStore

Action = Mapping[str, Any]

CHANGES = "_change_data/"
TRANSFERS = 8
"""Files that are fetched or uploaded at the same time for one table."""


class ElsewhereError(ValueError):
    """A table on objects has a file that is none of the objects below it."""


class LostFile(Exception):
    """A table on objects lacks a file that its log names; its argument is the name."""


class Unreachable(Exception):
    """A storage does not answer, or does not let us in; its argument says how."""


class TableWorkspace(Protocol):
    """The files of one table, at hand."""

    @property
    def folder(self) -> Path:
        """In which files have the names that they have in the table, and are read and written."""
        ...

    def fetch(self, files: Iterable[Action]) -> None:
        """Let the data files of add actions be in the folder, with their deletion vectors.

        Of a table on objects. Raises LostFile, Unreachable, ElsewhereError.
        """
        ...

    def keep(self, actions: Sequence[Action]) -> None:
        """Make the files durable where the table lies that actions make a part of it, and that were
        written into the folder, durable there. Raises Unreachable."""
        ...


@contextlib.contextmanager
def at_hand(
    location: str, options: ObjectOptions | None = None, files: Cache | None = None
) -> Iterator[TableWorkspace]:
    """The files of the table at a location. files: where those of objects lie meanwhile."""
    if not is_url(location):
        yield _Folder(Path(location))
        return
    files = files or cache()
    store, key = addressed(location, options)
    endpoint = (options and options.endpoint) or ""
    with files.table(f"{endpoint} {location}") as folder:
        yield _Objects(store, key, folder, files)


def inner_tables(location: str, options: ObjectOptions | None = None) -> list[str]:
    """Where tables lie inside the one at a location."""
    store, key = addressed(location, options)
    return [
        f"{location}{folder.removeprefix(key)}"
        for folder, listing in store.tree(key).items()
        if FOLDER in listing.folders and folder != key
    ]


class _Folder:
    """A table in a folder: its files are where they are, and durable as soon as written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fetch(self, files: Iterable[Action]) -> None:
        pass

    def keep(self, actions: Sequence[Action]) -> None:
        pass


class _Objects:
    """A table on the objects below a key."""

    def __init__(self, store: ObjectStore, key: str, folder: Path, cache: Cache) -> None:
        self.folder, self._store, self._key, self._cache = folder, store, key, cache

    def fetch(self, files: Iterable[Action]) -> None:
        wanted: dict[str, int | None] = {}
        for add in files:
            size = add.get("size")  # which a remove action need not have
            wanted[_data(add)] = None if size is None else int(size)
            if name := _vector(self.folder, add):
                wanted[name] = None
        missing = [name for name, size in wanted.items() if not touch(self.folder / name, size)]
        _transfer(lambda name: self._fetch(name, wanted[name]), missing)

    def keep(self, actions: Sequence[Action]) -> None:
        gone = {_data(action["remove"]) for action in actions if "remove" in action}
        names: list[str] = []
        for action in actions:
            if change := action.get("cdc"):
                names.append(_data(change))
            elif add := action.get("add"):
                # What is removed and added by one commit was there, and has another vector now.
                names += [name for name in (_data(add),) if name not in gone]
                names += [name for name in (_vector(self.folder, add),) if name]
        _transfer(self._upload, list(dict.fromkeys(names)))

    def _fetch(self, name: str, size: int | None) -> None:
        def fetch(file: BinaryIO) -> None:
            self._store.fetch(f"{self._key}/{name}", file)
            if size is not None and file.tell() != size:
                what = f"it has {file.tell():,} bytes, but the log says {size:,}"
                raise StorageFailed(errno.EIO, what, name)

        self._cache.write(self.folder / name, fetch)

    def _upload(self, name: str) -> None:
        path = self.folder / name
        self._store.upload(path, f"{self._key}/{name}")
        if name.startswith(CHANGES):
            path.unlink()  # nobody here will read it
        else:
            self._cache.came(path.stat().st_size)


def _transfer(one: Callable[[str], None], names: Sequence[str]) -> None:
    """Fetch or upload some files, several at the same time."""
    if not names:
        return
    with ThreadPoolExecutor(min(TRANSFERS, len(names)), thread_name_prefix="files") as pool:
        done = [(name, pool.submit(one, name)) for name in names]
    for name, each in done:
        try:
            each.result()
        except FileNotFoundError:
            raise LostFile(name) from None
        except OSError as error:
            raise Unreachable(f"{name}: {error.strerror or type(error).__name__}") from error


def _data(action: Action) -> str:
    """The name of a data file or a change file in its table."""
    path = action["path"]
    if urlparse(path).scheme:
        raise ElsewhereError("a data file lies outside the table")
    return _safe(unquote(path))


def _vector(folder: Path, add: Action) -> str | None:
    """The name of the file of a deletion vector in its table, where there is one."""
    vector = add.get("deletionVector")
    if vector is None or vector["storageType"] == "i":
        return None
    if vector["storageType"] != "u":
        raise ElsewhereError("a deletion vector lies outside the table")
    return _safe(deletion_vectors.path_of(folder, vector).relative_to(folder).as_posix())


def _safe(name: str) -> str:
    """A name that becomes a path of ours. Raises ElsewhereError."""
    try:
        return "/".join(checked(name))
    except UnsafePath:
        raise ElsewhereError("the name of a file leads out of the table") from None
