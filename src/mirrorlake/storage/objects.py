"""A store on objects: S3 and compatible storages, Google Cloud Storage, Azure Blob Storage.

Objects are complete or absent, so a single put is atomic; but they cannot be renamed. A file gets
its final name by one conditional write (`If-None-Match: *`) of its whole content: an upload if the
file is small, otherwise a copy by the storage itself. This never overwrites. A crash may leave both
names; a publisher that repeats the write finds the final name with its own content.

The response to a conditional write may be lost, and the client may retry the write. Then the name
exists because the first attempt created it. Each small write therefore carries a token by which the
writer recognizes its own object.
"""

from __future__ import annotations

import errno
import itertools
import re
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    NotSupportedError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from obstore.store import S3Store

from mirrorlake.errors import UnsafeStorage
from mirrorlake.storage.object_file import WHOLE, beginning, opened
from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.store import (
    Absence,
    Entry,
    InvalidKey,
    Listing,
    StorageFailed,
    Unlisted,
    UnsafePath,
    checked,
)
from mirrorlake.storage.tree import PAGE, Tree

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore as Client

LARGEST = 5 << 30
"""Maximum size of a file that can be published or moved, in bytes: one part of one copy on S3."""

_SPOOL = 8 << 20  # bytes of a staged file that are buffered in memory
_PART = 16 << 20  # bytes per part of an upload: 10,000 parts hold more than LARGEST
_CHUNK = 4 << 20  # bytes that are written to a file at once when an object is downloaded
_COPIES = 16  # parallel copies by a storage
_WRITER = "mirrorlakewriter"  # one word: Azure and proxies do not accept every character here
_CHECK_NAME = "_mirrorlake/probe-"
_PUT, _COPY = "put", "copy"
_END_OF_FOLDER = "/\U0010ffff"
_CODE = re.compile(r"<Code>(\w{1,64})</Code>")
_QUERY = re.compile(r"(https?://[^\s?]*)\?[^\s)]*")


class ObjectStore:
    """A `Store` on the objects below one prefix.

    client: a store of obstore, whose prefix is the root. url: the location of the root, without
    secrets. options: how to access it, for callers that open a `location`. Before its first
    conditional write to S3 or a compatible storage, a process tests that the storage supports the
    condition, and raises UnsafeStorage if it does not.
    """

    def __init__(self, client: Client, url: str, options: ObjectOptions | None = None) -> None:
        self._client, self._url, self._options = client, url.rstrip("/"), options
        self._tested: set[str] = set() if isinstance(client, S3Store) else {_PUT, _COPY}
        self._testing = threading.Lock()
        self._copies = True

    def __repr__(self) -> str:
        return f"ObjectStore({self._url!r})"

    def location(self, path: str) -> str:
        return f"{self._url}/{_key(path)}"

    # -- reading --------------------------------------------------------------------------------

    def list(self, folder: str) -> Listing:
        prefix = _key(folder) if folder else None
        try:
            with _in_bucket(folder):
                found = self._client.list_with_delimiter(prefix)
        except StorageFailed as error:
            if error.errno != errno.EILSEQ:
                raise
            failed = InvalidKey(error.errno, error.strerror, folder)
            failed.beside = partial(self._beside_invalid, folder)
            raise failed from None
        # Consoles create an object with the name of the folder, which is not a file in it.
        files = [_entry(meta) for meta in found["objects"] if meta["path"] != prefix]
        folders = [path.rpartition("/")[2] for path in found["common_prefixes"]]
        return _listing(files, folders)

    def _beside_invalid(self, folder: str) -> Listing:
        """What a folder has from the name `0` on, behind the keys that go on with an empty part,
        `.` or `..`, with one request for each folder in it. Raises StorageFailed if there are such
        keys further down as well."""
        start = f"{_key(folder)}/" if folder else ""
        first = self.entry(f"{start}0")
        files, folders = {} if first is None else {"0": first}, list[str]()
        after = f"{start}0"
        while after:
            with _in_bucket(folder):
                pages = self._client.list(start[:-1] or None, offset=after, chunk_size=PAGE)
                after = ""
                for meta in itertools.chain.from_iterable(pages):
                    name, is_folder, _ = meta["path"].removeprefix(start).partition("/")
                    if is_folder:
                        folders.append(name)
                        after = f"{start}{name}{_END_OF_FOLDER}"
                        break
                    files[name] = _entry(meta)
        return _listing([*files.values()], folders)

    def tree(self, folder: str) -> dict[str, Listing]:
        tree = Tree(_key(folder) if folder else "")
        after: str | None = None
        while True:
            after = self._grow(tree, after)
            if after is None:
                return tree.listings()

    def names_between(self, folder: str, first: str, end: str) -> Sequence[str]:
        """The names of the objects in a folder after `first` and before `end`, ascending."""
        prefix, found = _key(folder), []
        with _in_bucket(folder):
            pages = self._client.list(prefix, offset=f"{prefix}/{first}", chunk_size=PAGE)
            for meta in itertools.chain.from_iterable(pages):
                name = meta["path"].removeprefix(f"{prefix}/")
                if name >= end:
                    break
                if "/" not in name:
                    found.append(name)
        return found

    def _grow(self, tree: Tree, after: str | None) -> str | None:
        """Read the keys after `after`. Returns the end of a folder if it is cheaper to skip the
        rest of it."""
        with _in_bucket(tree.prefix):
            pages = self._client.list(tree.prefix or None, offset=after, chunk_size=PAGE)
            for page in pages:
                for meta in page:
                    key = meta["path"]
                    if key > (after or "") and key != tree.prefix and _is_addressable(key):
                        tree.add(key, _entry(meta))
                # The rest of the folder may be any number of pages; one request skips it.
                end = tree.inside and tree.inside + _END_OF_FOLDER
                if end and end > (after or "") and len(page) == PAGE:
                    return end
        return None

    def options(self, path: str) -> ObjectOptions | None:  # noqa: ARG002  (the same for all)
        return self._options

    def keyed(self, path: str) -> ObjectStore:  # noqa: ARG002
        return self

    def unlisted(self, folder: str) -> tuple[Unlisted, ...]:
        """What `list` omits from a folder, by name."""
        prefix = _key(folder) if folder else None
        with _in_bucket(folder):
            found = self._client.list_with_delimiter(prefix)
        paths = [*(meta["path"] for meta in found["objects"]), *found["common_prefixes"]]
        names = sorted(path.rpartition("/")[2] for path in paths if path != prefix)
        return tuple(Unlisted(n, Absence.NAME) for n in names if not _is_addressable(n))

    def read(self, path: str) -> bytes:
        key = _key(path)
        with _translated(path):
            return self._client.get(key).bytes().to_bytes()

    def open(self, path: str) -> BinaryIO:
        """A reader of one version of the object; raises OSError after it was replaced."""
        return opened(self._client, _key(path), lambda: _translated(path))

    def entry(self, path: str) -> Entry | None:
        """The current metadata of an object; None if it does not exist."""
        key = _key(path)
        try:
            with _translated(path):
                return _entry(self._client.head(key))
        except FileNotFoundError:
            return None

    def fetch(self, path: str, target: BinaryIO) -> None:
        """Download a whole object into a file by one request. Raises FileNotFoundError."""
        key = _key(path)
        with _translated(path):
            for chunk in self._client.get(key).stream(_CHUNK):
                target.write(chunk)

    # -- writing --------------------------------------------------------------------------------

    def upload(self, source: Path, path: str) -> None:
        """Upload a local file, replacing an existing object; durable on return."""
        key = _key(path)
        with source.open("rb") as file, _in_bucket(path):
            self._client.put(key, file, chunk_size=_PART)

    def copy_folder(self, folder: str, target: str, last: str) -> None:
        """Copy all objects below a folder, each by the storage itself, those in its folder
        `last` after all others. Each may have up to `LARGEST` bytes. Objects that represent
        folders are left out."""
        prefix, other = _key(folder), _key(target)
        with _translated(folder), ThreadPoolExecutor(_COPIES, thread_name_prefix="copy") as pool:
            for keys in self._phases(prefix, last):
                copies = [f"{other}{key.removeprefix(prefix)}" for key in keys]
                list(pool.map(self._copy_file, keys, copies))

    def _copy_file(self, key: str, target: str) -> None:
        try:
            self._client.copy(key, target)
        except FileNotFoundError:
            # It was deleted, or its key ends in a slash, which the client does not show.
            if not any(meta["path"] == key for meta in self._client.list(key).collect()):
                raise

    @contextmanager
    def stage(self, path: str) -> Iterator[BinaryIO]:
        key = _key(path)
        with tempfile.SpooledTemporaryFile(_SPOOL) as spool:
            yield cast("BinaryIO", spool)
            spool.seek(0)
            with _in_bucket(path):
                self._client.put(key, cast("BinaryIO", spool), chunk_size=_PART)

    def publish(self, staged: str, final: str) -> None:
        """As in the contract, for files of up to `LARGEST` bytes.

        The name may exist because the response to an earlier attempt was lost: a caller that gets
        FileExistsError compares the content, as after a crash.
        """
        source, target = _key(staged), _key(final)
        with _translated(staged):
            meta, content = beginning(self._client, source)
        if meta["size"] > LARGEST:
            raise OSError(
                errno.EFBIG, f"files of more than {LARGEST:,} bytes cannot be published", staged
            )
        if meta["size"] <= WHOLE:
            self._put_new(target, content, final)
        else:
            self._copy_new(source, target, final)
        with _translated(staged):
            self._client.delete(source)

    def discard_empty_folders(self) -> None:
        """Nothing to do: an object storage has no empty folders."""

    def make_folder(self, folder: str) -> None:
        _key(folder)  # a folder exists as soon as it has a file

    def flush(self, folder: str) -> None:
        _key(folder)  # an uploaded object is durable

    def create(self, path: str, content: bytes) -> None:
        self._put_new(_key(path), content, path)

    def replace(self, path: str, content: bytes) -> None:
        key = _key(path)
        with _in_bucket(path):
            self._client.put(key, content, use_multipart=False)

    def move(self, path: str, target: str) -> None:
        """Copy, then delete. After a crash in between both exist, and the move is repeated.

        For files of up to `LARGEST` bytes.
        """
        source, final = _key(path), _key(target)
        with _translated(path):
            self._client.copy(source, final)
            self._client.delete(source)

    def delete(self, path: str) -> None:
        key = _key(path)
        with _translated(path), suppress(FileNotFoundError):
            self._client.delete(key)

    def delete_folder(self, folder: str, last: str = "") -> None:
        """Delete all objects below a folder in the order of their names, so that the state of a
        publisher is deleted last; those in its folder `last`, if given, after all others. Readers
        may see some of them in the meantime, and a crash may leave some.

        Raises OSError if something is left: an object by which a console represents the folder, and
        which only the console can delete, or a file that was written in the meantime.
        """
        prefix = _key(folder)
        with _translated(folder):
            for keys in self._phases(prefix, last):
                for start in range(0, len(keys), PAGE):
                    self._client.delete(keys[start : start + PAGE])
            left = [meta["path"] for meta in self._client.list(prefix).collect()]
        if left:
            raise OSError(errno.ENOTEMPTY, f"{len(left)} objects are left in the folder", folder)

    def _phases(self, prefix: str, last: str) -> tuple[Sequence[str], Sequence[str]]:
        """The keys below a prefix: those outside its folder `last`, then those inside. Excludes
        the prefix itself, which represents the folder or is a file of the same name."""
        keys = [meta["path"] for meta in self._client.list(prefix).collect()]
        keys = sorted(key for key in keys if key != prefix)
        inside = f"{prefix}/{last}/"
        return (
            [key for key in keys if not key.startswith(inside)],
            [key for key in keys if key.startswith(inside)],
        )

    # -- conditional writes ---------------------------------------------------------------------

    def _put_new(self, key: str, content: bytes, path: str) -> None:
        self._test(_PUT, lambda existing: self._put(existing, b"", "probe"))
        token = uuid.uuid4().hex
        try:
            with _in_bucket(path):
                self._put(key, content, token)
        except FileExistsError:
            if not self._is_written_with(key, token):
                raise

    def _copy_new(self, source: str, target: str, path: str) -> None:
        if self._copies:
            try:
                self._test(_COPY, lambda existing: self._copy(source, existing))
                with _translated(path):
                    return self._copy(source, target)
            except NotSupportedError:
                self._copies = False
        with _translated(path):
            content = self._client.get(source).bytes().to_bytes()
        return self._put_new(target, content, path)

    def _put(self, key: str, content: bytes, token: str) -> None:
        self._client.put(
            key, content, mode="create", use_multipart=False, attributes={_WRITER: token}
        )

    def _copy(self, source: str, target: str) -> None:
        self._client.copy(source, target, overwrite=False)

    def _is_written_with(self, key: str, token: str) -> bool:
        try:
            with _translated(key):
                found = self._client.get(key, options={"head": True}).attributes
        except FileNotFoundError:
            return False
        return found.get(_WRITER) == token

    def _test(self, kind: str, write: Callable[[str], None]) -> None:
        """Check that a conditional write to an existing name is rejected."""
        with self._testing:
            if kind in self._tested:
                return
            existing = f"{_CHECK_NAME}{uuid.uuid4().hex}"
            with _in_bucket(existing):
                self._client.put(existing, b"", use_multipart=False)
                try:
                    write(existing)
                except AlreadyExistsError:
                    self._tested.add(kind)
                finally:
                    self._client.delete(existing)
            if kind not in self._tested:
                raise UnsafeStorage(
                    f"the storage ignores If-None-Match: a {kind} overwrites existing objects",
                    where=self._url,
                    hint="Nothing was published. Use a storage that supports conditional writes.",
                )


def _key(path: str) -> str:
    return "/".join(checked(path))


def _listing(files: Sequence[Entry], folders: Sequence[str]) -> Listing:
    return Listing(
        tuple(sorted((f for f in files if _is_addressable(f.name)), key=lambda f: f.name)),
        tuple(sorted(filter(_is_addressable, folders))),
        not all(map(_is_addressable, [*folders, *(file.name for file in files)])),
    )


def _is_addressable(name: str) -> bool:
    return "\\" not in name


def _entry(meta: ObjectMeta) -> Entry:
    """The etag alone may be a digest of the content, and equal to that of another file."""
    modified = meta["last_modified"].timestamp()
    etag = f"{meta['e_tag'] or meta['version'] or meta['size']}-{modified:.3f}"
    return Entry(meta["path"].rpartition("/")[2], meta["size"], modified, etag)


@contextmanager
def _translated(path: str) -> Iterator[None]:
    """Convert errors of the client to those of a store. Their full text may contain signed URLs, so
    only a part is kept."""
    try:
        yield
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, "the object does not exist", path) from None
    except AlreadyExistsError:
        raise FileExistsError(errno.EEXIST, "the object already exists", path) from None
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise PermissionError(errno.EACCES, _message(error), path) from None
    except NotSupportedError:
        raise
    except InvalidPathError as error:
        raise StorageFailed(errno.EILSEQ, _message(error), path) from None
    except BaseError as error:
        raise StorageFailed(errno.EREMOTEIO, _message(error), path) from None
    except ValueError as error:
        raise UnsafePath(f"not a valid object name: {path!r} ({_message(error)})") from None


@contextmanager
def _in_bucket(path: str) -> Iterator[None]:
    """Convert errors of a listing or a write, for which "not found" refers to the bucket."""
    try:
        with _translated(path):
            yield
    except FileNotFoundError:
        raise StorageFailed(errno.EREMOTEIO, "the bucket does not exist", path) from None


def _message(error: Exception) -> str:
    """The first line of the message, and the error code of the response that follows it."""
    text = str(error)
    line = text.partition("\n")[0].partition(": <?xml")[0]
    code = _CODE.search(text)
    return _QUERY.sub(r"\1", line)[:500] + (f" ({code[1]})" if code else "")
