"""Addresses of a data lake, and the credentials to access it.

    abfss://<container>@<account>.dfs.core.windows.net/<prefix>
    https://<account>.dfs.core.windows.net/<container>/<prefix>
    abfss://<workspace>@onelake.dfs.fabric.microsoft.com/<item>/<prefix>
    https://onelake.dfs.fabric.microsoft.com/<workspace>/<item>/<prefix>

In an `https` address the path is percent-encoded, as usual; in an `abfss` address it is literal, as
Hadoop reads it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urlsplit

from mirrorlake.errors import UsageError
from mirrorlake.storage.ranges import AHEAD
from mirrorlake.storage.store import UnsafePath, checked

if TYPE_CHECKING:
    from azure.core.credentials import AzureNamedKeyCredential, TokenCredential
    from azure.storage.filedatalake import FileSystemClient

    Credential = AzureNamedKeyCredential | TokenCredential | str

_HOST = re.compile(
    r"(?P<account>[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)\.dfs\."
    r"(?:core\.windows\.net|core\.chinacloudapi\.cn|core\.usgovcloudapi\.net|fabric\.microsoft\.com)"
)
"""Known hosts of the service. Every request contains a token that is valid for the whole
service, so no token is sent to any other host."""

_ONELAKE = ".dfs.fabric.microsoft.com"
_CONTAINER = re.compile(r"[^/@:]+")
_GROWTH, _RETRIES = 2, 4  # 2, 4, 8 and 16 seconds between attempts, plus or minus one
_CONNECT, _ANSWER = 10, 30  # seconds


@dataclass(frozen=True, slots=True)
class AzureLocation:
    """A folder of a data lake. root: without leading and trailing slashes, "" for the whole
    container."""

    account: str
    host: str
    container: str
    root: str

    @property
    def is_onelake(self) -> bool:
        return self.host.endswith(_ONELAKE)

    def __str__(self) -> str:
        below = f"/{self.root}" if self.root else ""
        return f"abfss://{self.container}@{self.host}{below}"


def handles(url: str) -> bool:
    """Whether this is an address of a data lake; `location_of` may still reject it."""
    scheme, there, rest = url.partition("://")
    if not there:
        return False
    host = re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")[2].partition(":")[0]
    return scheme.lower() in {"abfss", "abfs"} or (
        scheme.lower() == "https" and _HOST.fullmatch(host.lower()) is not None
    )


def location_of(url: str, *, whole: bool = False) -> AzureLocation:
    """Raises UsageError for a wrong address, and for one that contains a secret.

    whole: a workspace of OneLake is accepted without an item.
    """
    parts = _split(url)
    shown = f"{parts.scheme}://{parts.hostname or ''}{parts.path}"
    match = _HOST.fullmatch(parts.hostname or "")
    if match is None:
        raise UsageError(
            "the host is not one of Azure Data Lake Storage or OneLake",
            where=shown,
            hint="Use <account>.dfs.core.windows.net or onelake.dfs.fabric.microsoft.com.",
        )
    if parts.scheme == "https":
        container, _, root = unquote(parts.path).strip("/").partition("/")
    else:
        container, root = parts.username or "", parts.path.strip("/")
    if not _CONTAINER.fullmatch(container):
        raise UsageError(
            "the address names no container or workspace",
            where=shown,
            hint="Use, for example, abfss://<container>@<account>.dfs.core.windows.net/<folder>.",
        )
    location = AzureLocation(match["account"], match[0], container, root)
    if location.is_onelake and not root and not whole:
        raise UsageError(
            "the address names a workspace but no item in it",
            where=shown,
            hint="Add the item, for example /<database>.MountedRelationalDatabase or its id.",
        )
    if root:
        try:
            checked(root)
        except UnsafePath as error:
            raise UsageError(str(error), where=shown, hint="Use the path without them.") from None
    return location


def split(location: str) -> tuple[str, str]:
    """Split a `Store.location` into the address of its container and the path in it, with any
    names."""
    scheme, _, rest = location.partition("://")
    container, _, path = rest.partition("/")
    return f"{scheme}://{container}", path


def credential_of(
    location: AzureLocation, options: Mapping[str, str], environment: Mapping[str, str]
) -> Credential:
    """The given key or signature, or else the identity of this process.

    options: `account_key` or `sas_token`. environment: `AZURE_STORAGE_ACCOUNT_KEY` or
    `AZURE_STORAGE_KEY`, or `AZURE_STORAGE_SAS_TOKEN`, used if `AZURE_STORAGE_ACCOUNT` is this
    account or, except for OneLake, is not set: the secret of one account is not sent to another.
    """
    from azure.core.credentials import AzureNamedKeyCredential

    theirs = environment.get("AZURE_STORAGE_ACCOUNT") or (
        "" if location.is_onelake else location.account
    )
    known = environment if theirs == location.account else {}
    key = options.get("account_key")
    signature = options.get("sas_token")
    if not (key or signature):
        key = known.get("AZURE_STORAGE_ACCOUNT_KEY") or known.get("AZURE_STORAGE_KEY")
        signature = known.get("AZURE_STORAGE_SAS_TOKEN")
    if key:
        return AzureNamedKeyCredential(location.account, key)
    if signature:
        return signature.lstrip("?")  # as text: only text is also sent for the source of a rename
    from azure.identity import DefaultAzureCredential

    return DefaultAzureCredential(exclude_interactive_browser_credential=True)


def client_of(
    location: AzureLocation, credential: Credential, endpoint: str | None = None
) -> FileSystemClient:
    """The client of the service, with retries of temporary failures.

    endpoint: of another service with the same protocol.
    """
    from azure.storage.filedatalake import ExponentialRetry, FileSystemClient

    retry = ExponentialRetry(
        initial_backoff=0,
        increment_base=_GROWTH,
        random_jitter_range=1,
        retry_total=_RETRIES,
        retry_connect=_RETRIES,
        retry_read=_RETRIES,
        retry_status=_RETRIES,
    )
    return FileSystemClient(
        endpoint or f"https://{location.host}",
        location.container,
        credential=credential,
        retry_policy=retry,
        connection_timeout=_CONNECT,
        read_timeout=_ANSWER,
        max_single_get_size=AHEAD,
        max_chunk_get_size=AHEAD,
    )


def _split(url: str) -> SplitResult:
    """The parts of an address, without secrets. Messages do not repeat what is rejected."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise UsageError(
            "the address is not valid", where="location", hint="Check its scheme and host."
        ) from None
    if parts.query or "?" in url or parts.fragment or parts.password is not None:
        raise UsageError(
            "the address contains more than a location",
            where=f"{parts.scheme}://{parts.hostname or ''}",
            hint="Remove `?` or `#` and everything after it. Set a signature in the environment, "
            "as AZURE_STORAGE_SAS_TOKEN.",
        )
    if parts.scheme not in {"https", "abfss"}:
        raise UsageError(
            "the scheme of a data lake must be https or abfss",
            where=f"{parts.scheme}://{parts.hostname or ''}",
            hint="Use the address with abfss, which is encrypted.",
        )
    if port not in {None, 443} or (parts.scheme == "https" and parts.username is not None):
        raise UsageError(
            "the address contains a port or a user",
            where=f"{parts.scheme}://{parts.hostname or ''}",
            hint="Remove it.",
        )
    return parts
