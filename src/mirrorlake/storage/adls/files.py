"""The bytes of a file: written in blocks, read in ranges, always of one version."""

from __future__ import annotations

import errno
import hashlib
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError

from mirrorlake.storage.adls.errors import is_absent, translated

if TYPE_CHECKING:
    from azure.storage.filedatalake import DataLakeFileClient

BLOCK = 8 << 20
"""Bytes of one append."""

AHEAD = 4 << 20
"""Size of one read request, in bytes: smaller files are read by the first request."""


@dataclass(frozen=True, slots=True)
class Look:
    """The identity of a file: its etag, or its content as far as it is known."""

    etag: str
    size: int
    digest: bytes | None = None


def look(file: DataLakeFileClient) -> Look | None:
    """The current identity of the file; None if it does not exist. Raises AzureError."""
    try:
        found = file.get_file_properties()
    except HttpResponseError as error:
        if is_absent(error):
            return None
        raise
    return None if _is_folder(found.metadata) else Look(plain(found.etag), found.size)


def digest_of(file: DataLakeFileClient) -> bytes:
    """A digest of the content, as an upload computes it. Raises AzureError."""
    digest = hashlib.sha256()
    for part in file.download_file().chunks():
        digest.update(part)
    return digest.digest()


def plain(etag: str) -> str:
    """Headers have quotes around an etag, listings do not."""
    return etag.strip('"')


class Upload(io.RawIOBase):
    """A new file that grows by appends, and is visible as empty or complete once it is sealed."""

    def __init__(self, file: DataLakeFileClient, path: str) -> None:
        """Raises what `translated` does."""
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

    def seal(self) -> Look:
        """Make the whole file durable and visible."""
        if self._size:
            with translated(self._path):
                self._etag = str(self._file.flush_data(self._size, close=True)["etag"])
        return Look(plain(self._etag), self._size, self._digest.digest())

    def give_up(self) -> None:
        """Discard what a buffered writer still writes when it is collected."""
        self._given_up = True


def opened(file: DataLakeFileClient, path: str) -> BinaryIO:
    """A seekable reader of the current content. Raises what `translated` does; later OSError, if
    the file is larger than `AHEAD` and was replaced in the meantime."""
    with translated(path):
        first, etag, size = _beginning(file, path)
    if size <= len(first):
        return io.BytesIO(first)
    ranges = Ranges(file, path, first, etag, size)
    return cast("BinaryIO", io.BufferedReader(ranges, AHEAD))


class Ranges(io.RawIOBase):
    """A file that is larger than its first request."""

    def __init__(
        self, file: DataLakeFileClient, path: str, first: bytes, etag: str, size: int
    ) -> None:
        self._file, self._path = file, path
        self._first, self._etag, self._size = first, etag, size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise OSError(errno.EINVAL, "before the beginning", self._path)
        self._at = base + offset
        return self._at

    def readall(self) -> bytes:
        """Read the rest by one call: the inherited method reads it in small pieces."""
        return self.read(max(self._size - self._at, 0)) or b""

    def readinto(self, buffer: Any) -> int:
        wanted = min(len(buffer), self._size - self._at)
        if wanted <= 0:
            return 0
        data = self._first[self._at : self._at + wanted]
        if len(data) < wanted:
            with translated(self._path):
                data = self._file.download_file(
                    self._at,
                    wanted,
                    etag=self._etag,
                    match_condition=MatchConditions.IfNotModified,
                ).readall()
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


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
