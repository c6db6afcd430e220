"""The local folder in which the files of a table are read and written.

The folder of a local table (`TableWorkspace.folder`) is the table itself. That of a table on object
storage is a folder of the cache: files are downloaded to it when they are needed; new files are
written there, and uploaded by `upload` before a commit refers to them.
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
from mirrorlake.delta.file_cache import Cache, cache, mark_used
from mirrorlake.delta.log.files import FOLDER
from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.store import StorageFailed, UnsafePath, checked
from mirrorlake.storage.urls import addressed, is_url

if TYPE_CHECKING:
    from mirrorlake.storage.objects import ObjectStore

Action = Mapping[str, Any]

CHANGES = "_change_data/"
TRANSFERS = 8
"""Parallel downloads or uploads per table."""


class OutsideTable(ValueError):
    """A table on object storage refers to a file outside its folder."""


class LostFile(Exception):
    """A file that the log refers to does not exist on the object storage; the argument is its
    name."""


class Unreachable(Exception):
    """The storage does not answer or denies access; the argument is the reason."""


class TableWorkspace(Protocol):
    """Local access to the files of one table."""

    @property
    def folder(self) -> Path:
        """The local folder, in which files have the names that they have in the table."""
        ...

    def fetch(self, files: Iterable[Action]) -> None:
        """Download the data files of add actions and their deletion vectors, if the table is on
        object storage. Raises LostFile, Unreachable, OutsideTable."""
        ...

    def upload(self, actions: Sequence[Action]) -> None:
        """Upload the new files of add and cdc actions, which are durable in the folder, if the
        table is on object storage. Raises Unreachable."""
        ...


@contextlib.contextmanager
def open_workspace(
    location: str, options: ObjectOptions | None = None, files: Cache | None = None
) -> Iterator[TableWorkspace]:
    """The workspace of the table at a location. files: the cache for tables on object storage."""
    if not is_url(location):
        yield _LocalWorkspace(Path(location))
        return
    files = files or cache()
    store, key = addressed(location, options)
    endpoint = (options and options.endpoint) or ""
    with files.table(f"{endpoint} {location}") as folder:
        yield _ObjectWorkspace(store, key, folder, files)


def inner_tables(location: str, options: ObjectOptions | None = None) -> list[str]:
    """The locations of tables inside the table at a location."""
    store, key = addressed(location, options)
    return [
        f"{location}{folder.removeprefix(key)}"
        for folder, listing in store.tree(key).items()
        if FOLDER in listing.folders and folder != key
    ]


class _LocalWorkspace:
    """A local table."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fetch(self, files: Iterable[Action]) -> None:
        pass

    def upload(self, actions: Sequence[Action]) -> None:
        pass


class _ObjectWorkspace:
    """A table on object storage, below a key."""

    def __init__(self, store: ObjectStore, key: str, folder: Path, cache: Cache) -> None:
        self.folder, self._store, self._key, self._cache = folder, store, key, cache

    def fetch(self, files: Iterable[Action]) -> None:
        sizes: dict[str, int | None] = {}
        for add in files:
            size = add.get("size")  # which a remove action need not have
            sizes[_data_name(add)] = None if size is None else int(size)
            if name := _vector_name(self.folder, add):
                sizes[name] = None
        missing = [name for name, size in sizes.items() if not mark_used(self.folder / name, size)]
        _transfer(lambda name: self._fetch_file(name, sizes[name]), missing)

    def upload(self, actions: Sequence[Action]) -> None:
        gone = {_data_name(action["remove"]) for action in actions if "remove" in action}
        names: list[str] = []
        for action in actions:
            if change := action.get("cdc"):
                names.append(_data_name(change))
            elif add := action.get("add"):
                # A file that the commit also removes exists, and has only a new deletion vector.
                names += [name for name in (_data_name(add),) if name not in gone]
                names += [name for name in (_vector_name(self.folder, add),) if name]
        _transfer(self._upload_file, list(dict.fromkeys(names)))

    def _fetch_file(self, name: str, size: int | None) -> None:
        def fetch(file: BinaryIO) -> None:
            self._store.fetch(f"{self._key}/{name}", file)
            if size is not None and file.tell() != size:
                what = f"it has {file.tell():,} bytes, but the log says {size:,}"
                raise StorageFailed(errno.EIO, what, name)

        self._cache.write(self.folder / name, fetch)

    def _upload_file(self, name: str) -> None:
        path = self.folder / name
        self._store.upload(path, f"{self._key}/{name}")
        if name.startswith(CHANGES):
            path.unlink()  # change files are not read here
        else:
            self._cache.add_bytes(path.stat().st_size)


def _transfer(transfer: Callable[[str], None], names: Sequence[str]) -> None:
    """Download or upload files in parallel."""
    if not names:
        return
    with ThreadPoolExecutor(min(TRANSFERS, len(names)), thread_name_prefix="files") as pool:
        done = [(name, pool.submit(transfer, name)) for name in names]
    for name, future in done:
        try:
            future.result()
        except FileNotFoundError:
            raise LostFile(name) from None
        except OSError as error:
            raise Unreachable(f"{name}: {error.strerror or type(error).__name__}") from error


def _data_name(action: Action) -> str:
    """The name of a data or change file, relative to the table. Raises OutsideTable."""
    path = action["path"]
    if urlparse(path).scheme:
        raise OutsideTable("a data file is outside the table")
    return _safe(unquote(path))


def _vector_name(folder: Path, add: Action) -> str | None:
    """The name of the file of a deletion vector, relative to the table; None if there is none.
    Raises OutsideTable."""
    vector = add.get("deletionVector")
    if vector is None or vector["storageType"] == "i":
        return None
    if vector["storageType"] != "u":
        raise OutsideTable("a deletion vector is outside the table")
    return _safe(deletion_vectors.path_of(folder, vector).relative_to(folder).as_posix())


def _safe(name: str) -> str:
    """A name that is safe to use as a path below the folder. Raises OutsideTable."""
    try:
        return "/".join(checked(name))
    except UnsafePath:
        raise OutsideTable("the name of a file leads out of the table") from None
