"""How to access storages, in addition to their URLs."""

from __future__ import annotations

from dataclasses import dataclass

from mirrorlake.errors import UsageError


@dataclass(frozen=True, slots=True)
class ObjectOptions:
    """How to access an object store, in addition to its URL; contains no credentials.

    endpoint: the address of the storage, if it is not that of its cloud; plain `http://` is allowed
    if it is written. region: of S3. account: the storage account of Azure. anonymous: requests are
    not signed, for public storage.
    """

    endpoint: str | None = None
    region: str | None = None
    account: str | None = None
    anonymous: bool = False

    def __post_init__(self) -> None:
        """Raises UsageError for an endpoint with credentials."""
        if self.endpoint:
            check_endpoint(self.endpoint, "endpoint")


def check_endpoint(endpoint: str, where: str) -> None:
    """Raises UsageError for an address that contains credentials: errors of the storage show it."""
    if "@" in endpoint or "?" in endpoint:
        raise UsageError(
            "the endpoint contains more than an address",
            where=where,
            hint="Write it as https://host:port, and set the credentials in the environment.",
        )
