"""A store in memory, for tests and for the simulator."""

from __future__ import annotations

import io
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import BinaryIO

from mirrorlake.model.clock import Clock
from mirrorlake.storage.store import Entry, FolderStore, Listing, checked


class Crash(BaseException):
    """The simulated end of a process. Not an `Exception`: nothing may handle it."""


@dataclass(frozen=True, slots=True)
class Effect:
    """Something a store does to its files: `create` of a path, for one; about to be done or done.

    A file is staged in two effects, `stage` and `staged`, and published in two, `publish` and
    `unstage`: a process can die between them.
    """

    name: str
    path: str
    done: bool


Hook = Callable[[Effect], None]


@dataclass(frozen=True, slots=True)
class File:
    content: bytes
    modified: float
    etag: str


@dataclass(slots=True)
class Files:
    """What a storage holds. It outlives the stores through which processes reach it."""

    clock: Clock
    content: dict[str, File] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)
    _versions: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def put(self, path: str, content: bytes) -> None:
        modified = self.clock.now().timestamp()
        self.content[path] = File(content, modified, f"v{next(self._versions)}")


class MemoryStore(FolderStore):
    """A `Store` in one dict.

    hook: called before and after every effect. Once it has raised, this store is that of a dead
    process: it changes nothing any more, and every call raises the same again. `reopened` is the
    store of the next process.
    """

    def __init__(
        self, clock: Clock, hook: Hook | None = None, *, files: Files | None = None
    ) -> None:
        self.files = files or Files(clock)
        self._hook = hook
        self._death: BaseException | None = None

    def reopened(self, hook: Hook | None = None) -> MemoryStore:
        """Another store of the same files."""
        return MemoryStore(self.files.clock, hook, files=self.files)

    # -- reading --------------------------------------------------------------------------------

    def location(self, path: str) -> str:
        return "memory:/" + _whole(path)

    def list(self, folder: str) -> Listing:
        prefix = _whole(folder) + "/" if folder else ""
        files: list[Entry] = []
        folders: set[str] = set()
        with self._reading() as content:
            for path, file in content.items():
                if path.startswith(prefix):
                    name, _, below = path.removeprefix(prefix).partition("/")
                    if below:
                        folders.add(name)
                    else:
                        files.append(Entry(name, len(file.content), file.modified, file.etag))
        return Listing(tuple(sorted(files, key=lambda f: f.name)), tuple(sorted(folders)))

    def read(self, path: str) -> bytes:
        whole = _whole(path)
        with self._reading() as content:
            return _existing(content, whole).content

    def open(self, path: str) -> BinaryIO:
        return io.BytesIO(self.read(path))

    # -- writing --------------------------------------------------------------------------------

    @contextmanager
    def stage(self, path: str) -> Iterator[BinaryIO]:
        whole = _whole(path)
        with self._effect("stage", whole):
            self.files.put(whole, b"")
        buffer = io.BytesIO()  # left open: a writer that was given up may still flush into it
        try:
            yield buffer
            with self._effect("staged", whole):
                self.files.put(whole, buffer.getvalue())
        except GeneratorExit:
            raise  # collected, because its process died at a point of its own: it tidies nothing up
        except BaseException:
            if self._death is None:  # nor do the dead of a store
                with self.files.lock:
                    self.files.content.pop(whole, None)
            raise

    def publish(self, staged: str, final: str) -> None:
        source, target = _whole(staged), _whole(final)
        with self._effect("publish", target) as content:
            file = _existing(content, source)
            _absent(content, target)
            content[target] = file
        with self._effect("unstage", source) as content:
            content.pop(source, None)

    def make_folder(self, folder: str) -> None:
        _whole(folder)  # as in an object store, a folder is there with its first file

    def flush(self, folder: str) -> None:
        with self._effect("flush", _whole(folder)):
            pass  # its files outlive every process

    def create(self, path: str, content: bytes) -> None:
        whole = _whole(path)
        with self._effect("create", whole) as files:
            _absent(files, whole)
            self.files.put(whole, content)

    def replace(self, path: str, content: bytes) -> None:
        whole = _whole(path)
        with self._effect("replace", whole):
            self.files.put(whole, content)

    def move(self, path: str, target: str) -> None:
        source, final = _whole(path), _whole(target)
        with self._effect("move", source) as content:
            file = _existing(content, source)
            del content[source]
            content[final] = file

    def delete(self, path: str) -> None:
        whole = _whole(path)
        with self._effect("delete", whole) as content:
            content.pop(whole, None)

    def delete_folder(self, folder: str) -> None:
        prefix = _whole(folder) + "/"
        with self._effect("delete_folder", prefix[:-1]) as content:
            for path in [path for path in content if path.startswith(prefix)]:
                del content[path]

    # -- effects --------------------------------------------------------------------------------

    @contextmanager
    def _effect(self, name: str, path: str) -> Iterator[dict[str, File]]:
        self._announce(Effect(name, path, done=False))
        with self.files.lock:
            yield self.files.content
        self._announce(Effect(name, path, done=True))

    @contextmanager
    def _reading(self) -> Iterator[dict[str, File]]:
        if self._death is not None:
            raise self._death
        with self.files.lock:
            yield self.files.content

    def _announce(self, effect: Effect) -> None:
        if self._death is not None:
            raise self._death
        if self._hook is not None:
            try:
                self._hook(effect)
            except BaseException as death:
                self._death = death
                raise


def crash_at(count: int) -> Hook:
    """A hook that ends the process at its `count`-th call, from 1."""
    calls = itertools.count(1)

    def hook(effect: Effect) -> None:
        if next(calls) == count:
            raise Crash(f"at {effect}")

    return hook


def _whole(path: str) -> str:
    return "/".join(checked(path))


def _existing(content: dict[str, File], path: str) -> File:
    if path not in content:
        raise FileNotFoundError(path)
    return content[path]


def _absent(content: dict[str, File], path: str) -> None:
    if path in content:
        raise FileExistsError(path)
