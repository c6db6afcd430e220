"""A store on Azure Data Lake Storage Gen2 or OneLake, with a hierarchical namespace.

A file is written under another name and gets its own by the storage's atomic rename, `PUT <final>`
with `x-ms-rename-source`, which fails if the name exists (`If-None-Match: *`, LZ-139). The rename
names the version that was written (`x-ms-source-if-match`): a delayed request, or one of a
publisher that was taken over, cannot move what was staged since.

The response to a rename can be lost. The client then retries, and the service answers that the
source is missing or the target exists, because the first attempt succeeded. So after a failed
rename both paths are checked: the rename has succeeded if our file is no longer at the source, and
the target has its etag, which a rename keeps, or else its content.

An abandoned request can still arrive later. Requests that could then do harm are conditional on the
version for which they are meant, so they fail if the path has another version, or none.
"""

from __future__ import annotations

import errno
import functools
import io
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO, Self, cast
from urllib.parse import quote

from azure.core import MatchConditions
from azure.core.exceptions import AzureError, HttpResponseError

from mirrorlake.storage.adls.errors import (
    FAILED_CONDITION,
    NO_PARENT,
    SOURCE_CHANGED,
    absent,
    code_of,
    is_absent,
    of,
    present,
    status_of,
    translated,
)
from mirrorlake.storage.adls.files import (
    BLOCK,
    FileVersion,
    Upload,
    current_version,
    digest_of,
    opened,
    plain,
)
from mirrorlake.storage.adls.url import client_of, credential_of, location_of, split
from mirrorlake.storage.store import Entry, FolderStore, Listing, UnsafePath, checked

if TYPE_CHECKING:
    from azure.storage.filedatalake import DataLakeFileClient, FileSystemClient, PathProperties

_Condition = Mapping[str, Any]
"""The client's condition on a target."""

_NEW: _Condition = {"match_condition": MatchConditions.IfMissing}
_ANY: _Condition = {}
_ROUNDS = 5  # others may write first: each time, one process makes progress


class AdlsStore(FolderStore):
    """A `Store` below a folder of a container, or of an item of OneLake.

    Temporary failures, such as a lost connection or a busy service, are retried by the client.
    Every other error of the service is an OSError. No error, text or log contains a key or a
    signature.
    """

    def __init__(self, container: FileSystemClient, root: str, url: str) -> None:
        """root: below the container, "" for all of it. url: the location of the root."""
        self._container, self._root, self._url = container, root, url
        self._staged: dict[str, FileVersion] = {}
        # Etags of the last writes of this process; if another process wrote since, the etag is
        # looked up.
        self._replaced: dict[str, str] = {}

    @classmethod
    def of_url(
        cls,
        url: str,
        options: Mapping[str, str] | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> Self:
        """options: `account_key` or `sas_token`, used before the identity and the environment;
        `endpoint` of another service with the same protocol. Raises UsageError."""
        location, given = location_of(url), options or {}
        credential = credential_of(location, given, environment)
        return cls(
            client_of(location, credential, given.get("endpoint")), location.root, str(location)
        )

    def __repr__(self) -> str:
        return f"AdlsStore({self._url!r})"

    def location(self, path: str) -> str:
        self._path(path)
        return f"{self._url}/{path}"

    # -- reading --------------------------------------------------------------------------------

    def list(self, folder: str) -> Listing:
        location = self._path(folder) if folder else self._root
        depth = location.count("/") + 1 if location else 0
        files: list[Entry] = []
        folders: list[str] = []
        try:
            for item in self._container.get_paths(path=location or None, recursive=False):
                # OneLake may return another name for the item, so only the part after it counts; a
                # file is listed under its own path only, which has fewer parts.
                above, _, name = item.name.rpartition("/")
                if depth != (above.count("/") + 1 if above else 0) or "\\" in name:
                    continue
                if item.is_directory:
                    folders.append(name)
                else:
                    files.append(_entry(name, item))
        except AzureError as error:
            if not is_absent(error) and not self._is_file(folder):
                raise of(error, folder) from None
        return Listing(tuple(sorted(files, key=lambda f: f.name)), tuple(sorted(folders)))

    def read(self, path: str) -> bytes:
        with self.open(path) as file:
            return file.read()

    def open(self, path: str) -> BinaryIO:
        """A reader of one version of the file; raises OSError after it was replaced."""
        return opened(self._file(path), path)

    # -- writing --------------------------------------------------------------------------------

    @contextmanager
    def stage(self, path: str) -> Iterator[BinaryIO]:
        self._staged.pop(path, None)
        upload = Upload(self._file(path), path)
        buffer = io.BufferedWriter(upload, BLOCK)
        try:
            yield cast("BinaryIO", buffer)
            buffer.flush()
            self._staged[path] = upload.seal()
        except BaseException:
            with suppress(OSError):
                self.delete(path)
            raise
        finally:
            upload.give_up()

    def publish(self, staged: str, final: str) -> None:
        """As in the contract; also if the response is lost, as long as the result can be read."""
        self._path(final)
        written = self._staged.get(staged) or self._version(staged)
        if written is None:
            raise absent(staged)
        self._rename(staged, final, written, _NEW)
        self._staged.pop(staged, None)  # only now: a caller without a response repeats the call

    def make_folder(self, folder: str) -> None:
        location = self._container.get_directory_client(self._path(folder))
        with suppress(FileExistsError), translated(folder):
            location.create_directory(match_condition=MatchConditions.IfMissing)

    def flush(self, folder: str) -> None:
        self._path(folder)  # an existing file is durable

    def create(self, path: str, content: bytes) -> None:
        with self._temporary(path, content) as (written, version):
            self._rename(written, path, version, _NEW)

    def replace(self, path: str, content: bytes) -> None:
        self._path(path)
        with self._temporary(path, content) as (written, version):

            def rename() -> None:
                older = self._replaced.pop(path, None) or self._etag(path)
                self._rename(written, path, version, _if_match(older) if older else _NEW)

            _retry_conflicts(rename, FileExistsError, FileNotFoundError)
        self._replaced[path] = version.etag

    def move(self, path: str, target: str) -> None:
        self._path(target)

        def rename() -> None:
            found = self._version(path)
            if found is None:
                raise absent(path)
            self._rename(path, target, found, _ANY)

        _retry_conflicts(rename)

    def delete(self, path: str) -> None:
        file = self._file(path)
        self._staged.pop(path, None)
        with suppress(FileNotFoundError), translated(path):
            file.delete_file()

    def delete_folder(self, folder: str) -> None:
        location = self._container.get_directory_client(self._path(folder))

        def delete() -> None:
            with translated(folder):
                etag = plain(str(location.get_directory_properties().etag))
                location.delete_directory(**_if_match(etag))

        with suppress(FileNotFoundError):
            _retry_conflicts(delete)

    # -- renames --------------------------------------------------------------------------------

    @contextmanager
    def _temporary(self, path: str, content: bytes) -> Iterator[tuple[str, FileVersion]]:
        """A complete file next to `path`, to be renamed by the caller; deleted if that fails."""
        self._path(path)
        parent, slash, _name = path.rpartition("/")
        written = f"{parent}{slash}_{uuid.uuid4().hex}.tmp"
        with self.stage(written) as file:
            file.write(content)
        try:
            yield written, self._staged.pop(written)
        except BaseException:
            with suppress(OSError):
                self.delete(written)
            raise

    def _rename(
        self, source: str, target: str, written: FileVersion, condition: _Condition
    ) -> None:
        """Rename the version that was `written`, if the target meets the condition.

        Raises FileNotFoundError, FileExistsError; OSError with ESTALE if either path has another
        version; another OSError if the outcome is unknown.
        """
        try:
            try:
                self._request_rename(source, target, written, condition)
            except HttpResponseError as error:
                if code_of(error) != NO_PARENT:
                    raise
                self.make_folder(target.rpartition("/")[0])
                self._request_rename(source, target, written, condition)
        except AzureError as error:
            if self._has_moved(source, target, written):
                return
            # The service may only answer that a condition failed, not which one.
            vague = status_of(error) == FAILED_CONDITION and code_of(error) != SOURCE_CHANGED
            if vague and condition is _NEW and self._version(target) is not None:
                raise present(target) from None
            raise of(error, source, target) from None

    def _request_rename(
        self, source: str, target: str, written: FileVersion, condition: _Condition
    ) -> None:
        # In the header that names the source, the client expects an encoded path.
        file = self._container.get_file_client(quote(self._path(source)))
        file.rename_file(
            f"{self._container.file_system_name}/{self._path(target)}",
            source_match_condition=MatchConditions.IfNotModified,
            source_etag=f'"{written.etag}"',
            **condition,
        )

    def _has_moved(self, source: str, target: str, written: FileVersion) -> bool:
        """Whether a rename that reported an error has succeeded. Raises OSError if that cannot be
        determined."""
        left = self._version(source)
        if left is not None and left.etag == written.etag:
            return False
        found = self._version(target)
        if found is None or found.size != written.size:
            return False
        if found.etag == written.etag:
            return True
        if written.digest is None:
            return False
        with translated(target):
            return digest_of(self._file(target)) == written.digest

    # -- paths ----------------------------------------------------------------------------------

    def _version(self, path: str) -> FileVersion | None:
        with translated(path):
            return current_version(self._file(path))

    def _etag(self, path: str) -> str | None:
        found = self._version(path)
        return None if found is None else found.etag

    def _is_file(self, path: str) -> bool:
        return bool(path) and self._version(path) is not None

    def _file(self, path: str) -> DataLakeFileClient:
        return self._container.get_file_client(self._path(path))

    def _path(self, path: str) -> str:
        """The path below the container. Raises UnsafePath."""
        below = "/".join(checked(path))
        try:
            below.encode()
        except UnicodeEncodeError:
            raise UnsafePath(f"not text: {path!r}") from None
        return f"{self._root}/{below}" if self._root else below


def open_file(location: str) -> BinaryIO:
    """Open a seekable reader of a `Store.location`, in any process; the credentials come from
    its environment. Raises OSError, UsageError."""
    container, path = split(location)
    return _container_of(container, os.getpid()).open(path)


@functools.cache
def _container_of(url: str, _process: int) -> AdlsStore:
    """A client per process, because connections cannot be shared between processes."""
    location = location_of(url, whole=True)
    return AdlsStore(
        client_of(location, credential_of(location, {}, os.environ)), "", str(location)
    )


def _if_match(etag: str) -> _Condition:
    return {"match_condition": MatchConditions.IfNotModified, "etag": f'"{etag}"'}


def _retry_conflicts(action: Callable[[], None], *conflicts: type[OSError]) -> None:
    """Run an action, and repeat it up to `_ROUNDS` times if another process interferes.

    conflicts: errors that mean a conflict, in addition to an OSError with ESTALE.
    """
    for _round in range(_ROUNDS - 1):
        try:
            return action()
        except OSError as error:
            if error.errno != errno.ESTALE and not isinstance(error, conflicts):
                raise
    return action()


def _entry(name: str, item: PathProperties) -> Entry:
    return Entry(name, item.content_length, item.last_modified.timestamp(), plain(item.etag or ""))
