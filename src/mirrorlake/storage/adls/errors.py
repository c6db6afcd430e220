"""Errors of the service, as errors of a store.

Of a response, the status, code and request id are kept, which is all that a person can use. The
client's message about a lost connection may contain a signed URL, so queries are removed.
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

# By code, not by status: a missing container or item is also a 404, and a landing zone that is not
# visible must never look like one without tables.
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
    """The error of a store for an error of the client. target: of a rename."""
    code, status = code_of(error), status_of(error)
    if is_absent(error) or code == NO_PARENT:
        return absent(path)
    if code in _PRESENT:
        return present(target or path)
    if code in _UNNAMEABLE:
        return UnsafePath(f"not a valid file name: {path!r} ({_message(error)})")
    if status in DENIED or isinstance(error, ClientAuthenticationError):
        return PermissionError(errno.EACCES, _message(error), path)
    if status == FAILED_CONDITION:
        return StorageFailed(errno.ESTALE, "another process replaced it", path)
    return StorageFailed(errno.EREMOTEIO, _message(error), path)


def is_absent(error: AzureError) -> bool:
    """Whether the path does not exist, in an existing container."""
    return code_of(error) in _ABSENT


def code_of(error: AzureError) -> str:
    """The error code of the service, "" if there is none."""
    code = getattr(error, "error_code", None) or _headers(error).get("x-ms-error-code")
    return str(getattr(code, "value", code) or "")


def status_of(error: AzureError) -> int | None:
    return error.status_code if isinstance(error, HttpResponseError) else None


def _headers(error: AzureError) -> Mapping[str, str]:
    response = getattr(error, "response", None)
    return {} if response is None else cast("Mapping[str, str]", response.headers)


def _message(error: AzureError) -> str:
    if status_of(error) is not None:
        request = _headers(error).get("x-ms-request-id", "none")
        return f"the service answered {status_of(error)} {code_of(error)} (request {request})"
    first = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {_QUERY.sub('', first)[:300]}"
