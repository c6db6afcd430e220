"""What the service says, as the errors of a store.

Of an answer its status, code and request id are kept, which say all that a person can use. What the
client says of a lost connection may hold a signed address, so it is stripped of every query.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import cast

from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError

from mirrorlake.storage.store import StorageFailed, UnsafePath

NO_PARENT = "RenameDestinationParentPathNotFound"
SOURCE_CHANGED = "SourceConditionNotMet"
DENIED = (401, 403)
FAILED_CONDITION = 412

# Codes, not statuses: also a container or an item that is not there is a 404, and a zone that we
# cannot see must never look like one without tables.
_ABSENT = {"PathNotFound", "BlobNotFound", "ResourceNotFound", "SourcePathNotFound"}
_PRESENT = {"PathAlreadyExists", "BlobAlreadyExists", "ResourceAlreadyExists"}
_UNNAMEABLE = {"InvalidResourceName", "InvalidUri", "InvalidSourceUri"}
_QUERY = re.compile(r"\?[^\s'\")]*")


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Raises FileNotFoundError, FileExistsError, PermissionError, UnsafePath, StorageFailed."""
    try:
        yield
    except AzureError as error:
        raise of(error, path) from None


def absent(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "the file does not exist", path)


def present(path: str) -> FileExistsError:
    return FileExistsError(errno.EEXIST, "the file already exists", path)


def of(error: AzureError, path: str, target: str | None = None) -> OSError | UnsafePath:
    """The error of a store that stands for one of the client; target: of a rename."""
    code, status = code_of(error), status_of(error)
    if is_absent(error) or code == NO_PARENT:
        return absent(path)
    if code in _PRESENT:
        return present(target or path)
    if code in _UNNAMEABLE:
        return UnsafePath(f"not a valid file name: {path!r} ({_said(error)})")
    if status in DENIED or isinstance(error, ClientAuthenticationError):
        return PermissionError(errno.EACCES, _said(error), path)
    if status == FAILED_CONDITION:
        return StorageFailed(errno.ESTALE, "another process replaced it", path)
    return StorageFailed(errno.EREMOTEIO, _said(error), path)


def is_absent(error: AzureError) -> bool:
    """Whether a path is not there, in a container that is."""
    return code_of(error) in _ABSENT


def code_of(error: AzureError) -> str:
    """The code of the service, "" where it gave none."""
    code = getattr(error, "error_code", None) or _headers(error).get("x-ms-error-code")
    return str(getattr(code, "value", code) or "")


def status_of(error: AzureError) -> int | None:
    return error.status_code if isinstance(error, HttpResponseError) else None


def _headers(error: AzureError) -> Mapping[str, str]:
    response = getattr(error, "response", None)
    return {} if response is None else cast("Mapping[str, str]", response.headers)


def _said(error: AzureError) -> str:
    if status_of(error) is not None:
        asked = _headers(error).get("x-ms-request-id", "none")
        return f"the service answered {status_of(error)} {code_of(error)} (request {asked})"
    first = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {_QUERY.sub('', first)[:300]}"
