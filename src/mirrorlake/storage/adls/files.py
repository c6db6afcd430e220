"""The bytes of a file: written in blocks, read in ranges, always of one version."""

from __future__ import annotations

import errno
import hashlib
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError

from mirrorlake.storage.adls.errors import is_absent, translated
from mirrorlake.storage.ranges import AHEAD, reader

if TYPE_CHECKING:
    from azure.storage.filedatalake import DataLakeFileClient

BLOCK = 8 << 20
"""Bytes of one append."""


@dataclass(frozen=True, slots=True)
class FileVersion:
    """One version of a file. digest: SHA-256 of its content, None if it is unknown."""

    etag: str
    size: int
    digest: bytes | None = None


def current_version(file: DataLakeFileClient) -> FileVersion | None:
    """The current version of the file; None if it does not exist. Raises AzureError."""
    try:
        found = file.get_file_properties()
    except HttpResponseError as error:
        if is_absent(error):
            return None
        raise
    return None if _is_folder(found.metadata) else FileVersion(plain(found.etag), found.size)


def digest_of(file: DataLakeFileClient) -> bytes:
    """A digest of the content, as an upload computes it. Raises AzureError."""
    digest = hashlib.sha256()
    for part in file.download_file().chunks():
        digest.update(part)
    return digest.digest()


def plain(etag: str) -> str:
    """An etag without quotes, which headers have and listings do not."""
    return etag.strip('"')


class Upload(io.RawIOBase):
    """A new file that grows by appends, and is visible as empty or complete once it is sealed."""

    def __init__(self, file: DataLakeFileClient, path: str) -> None:
        """Raises the errors of `translated`."""
        self._file, self._path = file, path
        self._size, self._digest = 0, hashlib.sha256()
        self._given_up = False
        with translated(path):
            self._etag = str(file.create_file()["etag"])

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        """Append at most `BLOCK` bytes, and return their number."""
        block = bytes(memoryview(data)[:BLOCK])
        if block and not self._given_up:
            with translated(self._path):
                self._file.append_data(block, self._size, len(block))
            self._size += len(block)
            self._digest.update(block)
        return len(block)

    def seal(self) -> FileVersion:
        """Make the whole file durable and visible."""
        if self._size:
            with translated(self._path):
                self._etag = str(self._file.flush_data(self._size, close=True)["etag"])
        return FileVersion(plain(self._etag), self._size, self._digest.digest())

    def give_up(self) -> None:
        """Discard what a buffered writer still writes when it is garbage-collected."""
        self._given_up = True


def opened(file: DataLakeFileClient, path: str) -> BinaryIO:
    """A seekable reader of the current content. Raises the errors of `translated`; reads raise
    OSError if the file is larger than `AHEAD` and was replaced in the meantime."""
    with translated(path):
        first, etag, size = _beginning(file, path)

    def fetch(start: int, end: int) -> bytes:
        with translated(path):
            return file.download_file(
                start, end - start, etag=etag, match_condition=MatchConditions.IfNotModified
            ).readall()

    return reader(first, size, fetch)


def _beginning(file: DataLakeFileClient, path: str) -> tuple[bytes, str, int]:
    """The first bytes of a file, its etag and its size, by one request."""
    found = file.download_file()
    if _is_folder(found.properties.metadata):
        raise FileNotFoundError(errno.ENOENT, "a folder of this name exists", path)
    return found.read(AHEAD), str(found.properties.etag), found.size


def _is_folder(metadata: Any) -> bool:
    """Whether a path that was read as a file is a folder: the service returns it as an empty
    file."""
    return str((metadata or {}).get("hdi_isfolder", "")).lower() == "true"
