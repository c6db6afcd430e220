"""The store of a local or mounted file system.

A file is written under another name, flushed to the disk, and given its final name by a hard link,
which fails if the name exists, unlike a rename. Then the folder is flushed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import EDQUOT, EFBIG, EIO, ELOOP, ENAMETOOLONG, ENOSPC, ENOTDIR
from pathlib import Path
from typing import BinaryIO

from mirrorlake.errors import UsageError
from mirrorlake.storage.store import (
    Absence,
    Entry,
    FolderStore,
    Listing,
    Unlisted,
    UnsafePath,
    checked,
)

GONE = ".gone"
"""The suffix of a folder while it is removed."""
REMOVAL_SECONDS = 3_600.0
"""The longest time that the removal of one folder takes."""


class LocalStore(FolderStore):
    """A `Store` below a folder. The folder is created by the first write.

    Names that are not valid store paths, such as those with a backslash, are not listed.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).absolute()
        self._top = os.fspath(self.root).rstrip(os.sep)
        self._real = os.path.realpath(self.root)
        self._made: list[Path] = []

    def __repr__(self) -> str:
        return f"LocalStore({str(self.root)!r})"

    def location(self, path: str) -> str:
        return self._at(path)

    def list(self, folder: str) -> Listing:
        files: list[Entry] = []
        folders: list[str] = []
        omits = False
        at, is_link = self._walked(folder) if folder else (os.fspath(self.root), False)
        if is_link and self._leaves(at):
            return Listing((), ())
        try:
            with os.scandir(at) as found:
                for item in found:
                    if not _is_addressable(item.name):
                        omits = True
                    elif item.is_dir(follow_symlinks=False):
                        folders.append(item.name)
                    elif item.is_file(follow_symlinks=False):
                        with suppress(FileNotFoundError):  # deleted while the folder was listed
                            files.append(_entry(item))
                    else:
                        omits = True
        except (FileNotFoundError, NotADirectoryError):
            pass
        return Listing(tuple(sorted(files, key=lambda f: f.name)), tuple(sorted(folders)), omits)

    def unlisted(self, folder: str) -> tuple[Unlisted, ...]:
        """What `list` omits from a folder, by name."""
        at, is_link = self._walked(folder) if folder else (os.fspath(self.root), False)
        if is_link and self._leaves(at):
            return ()
        found: list[Unlisted] = []
        with os.scandir(at) as items:
            for item in items:
                name = item.name.encode(errors="surrogateescape").decode(errors="backslashreplace")
                if item.is_symlink():
                    out = self._leaves(item.path)
                    found.append(Unlisted(name, Absence.LINK_OUT if out else Absence.LINK))
                elif not _is_addressable(item.name):
                    found.append(Unlisted(name, Absence.NAME))
                elif not (item.is_dir() or item.is_file()):
                    found.append(Unlisted(name, Absence.KIND))
        return tuple(sorted(found, key=lambda item: item.name))

    def read(self, path: str) -> bytes:
        with open(self._at(path), "rb", buffering=0) as file:  # noqa: PTH123  (often called)
            return file.readall()

    def open(self, path: str) -> BinaryIO:
        return self._path(path).open("rb")

    @contextmanager
    def stage(self, path: str) -> Iterator[BinaryIO]:
        target = self._path(path)
        self._make(target.parent)
        try:
            with target.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
        except BaseException as error:
            _name(error, target)
            target.unlink(missing_ok=True)
            raise
        flush_folder(target.parent)

    def publish(self, staged: str, final: str) -> None:
        source, target = self._path(staged), self._path(final)
        self._make(target.parent)
        os.link(source, target)
        source.unlink()
        flush_folder(target.parent)
        if source.parent != target.parent:
            flush_folder(source.parent)

    def make_folder(self, folder: str) -> None:
        self._make(self._path(folder))

    def flush(self, folder: str) -> None:
        with suppress(FileNotFoundError, NotADirectoryError):
            flush_folder(self._path(folder))

    def create(self, path: str, content: bytes) -> None:
        with self._temporary(path, content) as written:
            os.link(written, self._path(path))

    def replace(self, path: str, content: bytes) -> None:
        with self._temporary(path, content) as written:
            written.rename(self._path(path))

    def move(self, path: str, target: str) -> None:
        source, final = self._path(path), self._path(target)
        self._make(final.parent)
        source.rename(final)  # not flushed: that would take longer than the rest of the cleanup

    def delete(self, path: str) -> None:
        self._path(path).unlink(missing_ok=True)

    def delete_folder(self, folder: str) -> None:
        target = self._path(folder)
        own = hashlib.sha256(target.name.encode()).hexdigest()[:16]
        for left in target.parent.glob(f"_{'?' * 32}{GONE}"):
            # Left by a process that ended too early. Another folder may still be being removed.
            if left.name.startswith(f"_{own}") or _is_old(left):
                shutil.rmtree(left, ignore_errors=True)
        aside = target.with_name(f"_{own}{uuid.uuid4().hex[:16]}{GONE}")
        try:
            target.rename(aside)  # a reader sees the whole folder or nothing
        except FileNotFoundError:
            return
        flush_folder(target.parent)
        shutil.rmtree(aside)

    def discard_empty_folders(self) -> None:
        made, self._made = self._made, []
        for folder in reversed(made):
            with suppress(OSError):  # it is not empty, or does not exist
                folder.rmdir()

    def _make(self, folder: Path) -> None:
        self._made += make_folder(folder)

    def _path(self, path: str) -> Path:
        return Path(self._at(path))

    # Idle mirrors do little else than read a few files again and again, so that here locations are
    # texts: making a path of one takes longer than reading the file.

    def _at(self, path: str) -> str:
        """The location of a file or folder. Raises UnsafePath."""
        at, is_link = self._walked(path)
        if is_link and self._leaves(at):
            raise UnsafePath(f"a link leads out of the root: {path!r}")
        return at

    def _walked(self, path: str) -> tuple[str, bool]:
        """The location of a path, and whether something between the root and it is a link. This is
        cheaper to see than where it really is, and true for nothing that we have made."""
        at, does_exist, is_link = self._top, True, False
        for part in checked(path):
            at = f"{at}{os.sep}{part}"
            if does_exist and not is_link:
                try:
                    is_link = stat.S_ISLNK(os.lstat(at).st_mode)
                except OSError:
                    does_exist = False  # and so nothing below it
        return at, is_link

    def _leaves(self, at: str) -> bool:
        # Compared as text: each scan of a landing zone calls this for every folder.
        real = os.path.realpath(at)
        return real != self._real and not real.startswith(self._real.rstrip(os.sep) + os.sep)

    @contextmanager
    def _temporary(self, path: str, content: bytes) -> Iterator[Path]:
        """A flushed file next to `path`, to be named by the caller; deleted afterwards."""
        target = self._path(path)
        self._make(target.parent)
        written = target.with_name(f"_{uuid.uuid4().hex}.tmp")
        try:
            with written.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            yield written
        except OSError as error:
            _name(error, target)
            raise
        finally:
            written.unlink(missing_ok=True)
        flush_folder(target.parent)


_WRITING = {ENOSPC, EDQUOT, EFBIG, EIO}


def _name(error: BaseException, file: Path) -> None:
    """Name the file in an error of writing to it, which the system does not: there may be several
    disks."""
    if isinstance(error, OSError) and error.errno in _WRITING and error.filename is None:
        error.filename = str(file)


def _is_old(left: Path) -> bool:
    """Whether a folder was renamed so long ago that its removal must have been interrupted."""
    try:
        return time.time() - left.stat().st_ctime > REMOVAL_SECONDS
    except FileNotFoundError:
        return False


def check_folder(folder: Path) -> None:
    """Raises UsageError if no folder can be there: it or one above it is a file, its name is too
    long, or links lead in a circle."""
    found = "a file is there, and not a folder"
    try:
        if stat.S_ISDIR(folder.stat().st_mode):
            return
    except NotADirectoryError:
        pass
    except OSError as error:
        if error.errno not in {ENAMETOOLONG, ELOOP}:
            return
        found = f"there can be no such folder: {os.strerror(error.errno).lower()}"
    above = (path for path in folder.parents if path.is_file())
    raise UsageError(found, where=str(next(above, folder)), hint="Name another folder.")


def make_folder(folder: Path) -> list[Path]:
    """Create a folder and its parents, and make each durable in its parent. Returns the created
    folders, the outermost first. Raises NotADirectoryError if one of them is a file."""
    if folder.is_dir():
        return []
    made = make_folder(folder.parent)
    try:
        folder.mkdir(exist_ok=True)
    except FileExistsError as error:  # by which a store says that another process was faster
        raise NotADirectoryError(ENOTDIR, os.strerror(ENOTDIR), str(folder)) from error
    flush_folder(folder.parent)
    return [*made, folder]


def flush_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _is_addressable(name: str) -> bool:
    """Whether the name is a valid part of a store path: `checked`, and text instead of raw
    bytes."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return "\\" not in name


def _entry(item: os.DirEntry[str]) -> Entry:
    facts = item.stat(follow_symlinks=False)
    etag = f"{facts.st_ino:x}-{facts.st_mtime_ns:x}-{facts.st_size:x}"
    return Entry(item.name, facts.st_size, facts.st_mtime_ns / 1e9, etag)
