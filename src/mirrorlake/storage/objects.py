"""A store on objects: S3 and what speaks its protocol, Google Cloud Storage, Azure Blob Storage.

Objects are whole or absent, so a single put is atomic; but they cannot be renamed. A file gets its
final name by one conditional write (`If-None-Match: *`) of its whole content: of the bytes, where
they are few, and else of a copy that the storage makes itself. That never overwrites, and a crash
leaves both names: whoever publishes again finds the final one, with its own content.

The answer to a conditional write may be lost, and the write tried again by the client: then the
name exists because we made it. Each small write carries a token, by which it knows itself.
"""

from __future__ import annotations

import errno
import re
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
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
from obstore.store import AzureStore, MemoryStore, S3Store

from mirrorlake.errors import UnsafeStorage
from mirrorlake.storage.object_file import WHOLE, beginning, opened
from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.store import (
    Absence,
    Entry,
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
"""Bytes of a file that can be published or moved: one part of one copy on S3."""

_SPOOL = 8 << 20  # bytes of a staged file that are kept in memory
_PART = 16 << 20  # bytes of one part of an upload: 10,000 of them hold more than LARGEST
_CHUNK = 4 << 20  # bytes of an object that are written into a file at once
_COPIES = 16  # copies that a storage makes at the same time
_WRITER = "mirrorlakewriter"  # one word: neither Azure nor a proxy takes every character here
_CHECK_NAME = "_mirrorlake/probe-"
_PUT, _COPY = "put", "copy"
_END_OF_FOLDER = "/\U0010ffff"
_CODE = re.compile(r"<Code>(\w{1,64})</Code>")
_QUERY = re.compile(r"(https?://[^\s?]*)\?[^\s)]*")


class ObjectStore:
    """A `Store` on the objects below one prefix.

    client: a store of obstore; its own prefix is the root. url: what the root is called, without
    secrets; options: how it is reached, for whoever opens a `location`. Before its first
    conditional write to S3, or to what speaks its protocol, a process tests that the storage heeds
    the condition; of one that does not, UnsafeStorage is raised.
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
        with _in_bucket(folder):
            found = self._client.list_with_delimiter(prefix)
        # A console makes an object of the folder's own name, which is no file in it.
        files = [_entry(meta) for meta in found["objects"] if meta["path"] != prefix]
        folders = [path.rpartition("/")[2] for path in found["common_prefixes"]]
        return Listing(
            tuple(sorted((f for f in files if _is_addressable(f.name)), key=lambda f: f.name)),
            tuple(sorted(filter(_is_addressable, folders))),
        )

    def tree(self, folder: str) -> dict[str, Listing]:
        tree = Tree(_key(folder) if folder else "")
        after: str | None = None
        while True:
            after = self._grow(tree, after)
            if after is None:
                return tree.listings()

    def _grow(self, tree: Tree, after: str | None) -> str | None:
        """Read the keys behind `after`. Returns the end of a folder that is better passed by."""
        with _in_bucket(tree.prefix):
            pages = self._client.list(tree.prefix or None, offset=after, chunk_size=PAGE)
            for page in pages:
                for meta in page:
                    key = meta["path"]
                    if key > (after or "") and key != tree.prefix and _is_addressable(key):
                        tree.add(key, _entry(meta))
                # What is left of the folder may be any number of pages; one request leads past it.
                end = tree.inside and tree.inside + _END_OF_FOLDER
                if end and end > (after or "") and len(page) == PAGE and self._starts_after:
                    return end
        return None

    @property
    def _starts_after(self) -> bool:
        """Whether a listing can begin behind a key; of others the client reads all keys anyway."""
        return isinstance(self._client, S3Store | AzureStore | MemoryStore)

    def options(self, path: str) -> ObjectOptions | None:  # noqa: ARG002  (the same for all)
        return self._options

    def keyed(self, path: str) -> ObjectStore:  # noqa: ARG002
        return self

    def unlisted(self, folder: str) -> tuple[Unlisted, ...]:
        """What `list` does not show of a folder, by name."""
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
        """A reader of one version of the object: raises OSError once it was replaced."""
        return opened(self._client, _key(path), lambda: _translated(path))

    def entry(self, path: str) -> Entry | None:
        """What an object is now; None when there is none."""
        key = _key(path)
        try:
            with _translated(path):
                return _entry(self._client.head(key))
        except FileNotFoundError:
            return None

    def fetch(self, path: str, target: BinaryIO) -> None:
        """Write a whole object into a file, by one request. Raises FileNotFoundError."""
        key = _key(path)
        with _translated(path):
            for some in self._client.get(key).stream(_CHUNK):
                target.write(some)

    # -- writing --------------------------------------------------------------------------------

    def upload(self, source: Path, path: str) -> None:
        """Write a local file as an object, in the place of an older one; durable on return."""
        key = _key(path)
        with source.open("rb") as file, _in_bucket(path):
            self._client.put(key, file, chunk_size=_PART)

    def copy_folder(self, folder: str, target: str, last: str) -> None:
        """Copy all objects below a folder, each by the storage itself; those in its folder `last`
        after all others. Of files of up to `LARGEST` bytes."""
        prefix, other = _key(folder), _key(target)
        with _translated(folder), ThreadPoolExecutor(_COPIES, thread_name_prefix="copy") as pool:
            for keys in self._phases(prefix, last):
                copies = [f"{other}{key.removeprefix(prefix)}" for key in keys]
                list(pool.map(self._client.copy, keys, copies))

    @contextmanager
    def stage(self, path: str) -> Iterator[BinaryIO]:
        key = _key(path)
        with tempfile.SpooledTemporaryFile(_SPOOL) as spool:
            yield cast("BinaryIO", spool)
            spool.seek(0)
            with _in_bucket(path):
                self._client.put(key, cast("BinaryIO", spool), chunk_size=_PART)

    def publish(self, staged: str, final: str) -> None:
        """As in the contract; of files of up to `LARGEST` bytes.

        The name may exist because the answer to an earlier attempt was lost: whoever is told that
        it exists compares the content, as after a crash.
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

    def make_folder(self, folder: str) -> None:
        _key(folder)  # a folder is there with its first file

    def flush(self, folder: str) -> None:
        _key(folder)  # an object is durable as soon as it is there

    def create(self, path: str, content: bytes) -> None:
        self._put_new(_key(path), content, path)

    def replace(self, path: str, content: bytes) -> None:
        key = _key(path)
        with _in_bucket(path):
            self._client.put(key, content, use_multipart=False)

    def move(self, path: str, target: str) -> None:
        """A copy, then a deletion: after a crash between them both are there, and it is repeated.

        Of files of up to `LARGEST` bytes.
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
        """Remove all objects below a folder in the order of their names, so that what a publisher
        remembers goes last; those in its folder `last`, if one is named, after all others. A reader
        may see a part meanwhile, and a crash may leave one.

        Raises OSError when something is left: an object that marks the folder, as consoles make
        them and only they can remove, or what somebody wrote meanwhile.
        """
        prefix = _key(folder)
        with _translated(folder):
            for keys in self._phases(
                prefix, last
            ):  # without the mark of a folder, or a file beside
                for start in range(0, len(keys), PAGE):
                    self._client.delete(keys[start : start + PAGE])
            left = [meta["path"] for meta in self._client.list(prefix).collect()]
        if left:
            raise OSError(errno.ENOTEMPTY, f"{len(left)} objects are left in the folder", folder)

    def _phases(self, prefix: str, last: str) -> tuple[Sequence[str], Sequence[str]]:
        """The keys below a prefix: those outside of a folder in it, and those inside."""
        keys = [meta["path"] for meta in self._client.list(prefix).collect()]
        keys = sorted(key for key in keys if key != prefix)
        inside = f"{prefix}/{last}/"
        return (
            [key for key in keys if not key.startswith(inside)],
            [key for key in keys if key.startswith(inside)],
        )

    # -- conditional writes ---------------------------------------------------------------------

    def _put_new(self, key: str, content: bytes, path: str) -> None:
        self._test(_PUT, lambda reached: self._put(reached, b"", "probe"))
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
                self._test(_COPY, lambda reached: self._copy(source, reached))
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
        """Be sure that a write is refused where something is already."""
        with self._testing:
            if kind in self._tested:
                return
            reached = f"{_CHECK_NAME}{uuid.uuid4().hex}"
            with _in_bucket(reached):
                self._client.put(reached, b"", use_multipart=False)
                try:
                    write(reached)
                except AlreadyExistsError:
                    self._tested.add(kind)
                finally:
                    self._client.delete(reached)
            if kind not in self._tested:
                raise UnsafeStorage(
                    f"the storage ignores If-None-Match: a {kind} overwrites existing objects",
                    where=self._url,
                    hint="Nothing was published. Use a storage that supports conditional writes.",
                )


def _key(path: str) -> str:
    return "/".join(checked(path))


def _is_addressable(name: str) -> bool:
    return "\\" not in name


def _entry(meta: ObjectMeta) -> Entry:
    """An ETag alone may be a digest of the content, and the same of another file."""
    modified = meta["last_modified"].timestamp()
    etag = f"{meta['e_tag'] or meta['version'] or meta['size']}-{modified:.3f}"
    return Entry(meta["path"].rpartition("/")[2], meta["size"], modified, etag)


@contextmanager
def _translated(path: str) -> Iterator[None]:
    """Errors of the client as those of a store. What it says in full may hold signed addresses, so
    little of it is kept."""
    try:
        yield
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, "the object does not exist", path) from None
    except AlreadyExistsError:
        raise FileExistsError(errno.EEXIST, "the object already exists", path) from None
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise PermissionError(errno.EACCES, _said(error), path) from None
    except NotSupportedError:
        raise
    except InvalidPathError as error:
        raise StorageFailed(errno.EILSEQ, _said(error), path) from None
    except BaseError as error:
        raise StorageFailed(errno.EREMOTEIO, _said(error), path) from None
    except ValueError as error:
        raise UnsafePath(f"not a valid object name: {path!r} ({_said(error)})") from None


@contextmanager
def _in_bucket(path: str) -> Iterator[None]:
    """The errors of a listing and of a write: what they do not find is the bucket."""
    try:
        with _translated(path):
            yield
    except FileNotFoundError:
        raise StorageFailed(errno.EREMOTEIO, "the bucket does not exist", path) from None


def _said(error: Exception) -> str:
    """The first line, and of the answer that follows its code alone."""
    text = str(error)
    line = text.partition("\n")[0].partition(": <?xml")[0]
    code = _CODE.search(text)
    return _QUERY.sub(r"\1", line)[:500] + (f" ({code[1]})" if code else "")
