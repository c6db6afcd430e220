"""The store of a path or a URL.

    ./zone, /mnt/zone         a local or mounted folder
    s3://bucket/prefix        S3, and with an endpoint a compatible storage
    gs://bucket/prefix        Google Cloud Storage
    az://container/prefix     Azure Blob Storage
    abfss://..., https://...  Azure Data Lake Storage and OneLake, see `adls/url.py`

The path after the bucket is used literally, as by the tools of the clouds: nothing is decoded.
Credentials come from the environment, in the variables and roles of each cloud
(`AWS_ACCESS_KEY_ID`, `GOOGLE_APPLICATION_CREDENTIALS`, `AZURE_STORAGE_ACCOUNT_KEY`, ...). Options
contain no secrets, so locations and options may be shown, stored and sent to other processes.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from mirrorlake.errors import UsageError
from mirrorlake.storage.adls import url as adls
from mirrorlake.storage.local import LocalStore, check_folder
from mirrorlake.storage.options import ObjectOptions, check_endpoint
from mirrorlake.storage.store import Store, UnsafePath, checked

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig
    from obstore.store import ObjectStore as Client

    from mirrorlake.storage.objects import ObjectStore

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_S3_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
_ENDPOINTS = {
    "gs": ("GOOGLE_BASE_URL",),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
"""Where the environment has the address of a storage that is not S3."""
_CREDENTIALS = {
    "gs": "GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_SERVICE_ACCOUNT to the file of an account",
    "az": "AZURE_STORAGE_ACCOUNT_NAME, and AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN",
}
_WHY = re.compile(
    r"Account must be specified|Unable to open service account file from [^\n]*"
    r"|Invalid Access Key|Error reading pem file|Unable to decode service account file"
)
"""What a client says of credentials, without what it shows of them."""


@dataclass(frozen=True, slots=True)
class StorageLocation:
    """A URL and how to access it. It contains no secret, so it may be shown, stored and sent."""

    url: str
    options: ObjectOptions = field(default_factory=ObjectOptions)


def is_url(location: str | Path) -> bool:
    return _URL.fullmatch(str(location)) is not None


def check_url(url: str, options: ObjectOptions) -> None:
    """Raises UsageError if it is not a URL of a storage, if it contains more than a location, or
    for an option (then `where`) that the storage does not have."""
    if not is_url(url):
        raise UsageError(
            "this is not a URL", where="URL", hint="A URL begins with " + _known() + "."
        )
    if adls.handles(url):
        split(url)
        _check_options(_AZURE_FORMS, options)
    else:
        _check_options(_root(url)[0], options)


def split(url: str) -> tuple[str, str]:
    """Split a URL into its bucket, as a URL, and the path below it. Raises UsageError."""
    if adls.handles(url):
        location = adls.location_of(url)
        return str(replace(location, root="")), location.root
    scheme, bucket, prefix = _root(url)
    return f"{scheme}://{bucket}", prefix


def open_store(location: str | Path, options: ObjectOptions | None = None) -> Store:
    """The store whose root is a folder or a URL. Nothing is read or written yet.

    Raises UsageError for an empty location, a file, an unknown scheme, a missing bucket,
    credentials in the URL or in the address of the storage, credentials in the environment that
    cannot be used, or a library that is not installed.
    """
    if not str(location):
        raise UsageError(
            "neither a folder nor a URL was given", where="storage", hint="Name one of them."
        )
    if not is_url(location):
        check_folder(Path(location))
        return LocalStore(location)
    if adls.handles(str(location)):
        _check_options(_AZURE_FORMS, options or ObjectOptions())
        with _required("azure", "azure", str(location)):
            from mirrorlake.storage.adls.store import AdlsStore
        return AdlsStore.of_url(str(location))
    scheme, bucket, prefix = _root(str(location))
    return _object_store(scheme, bucket, prefix, options or ObjectOptions())


def open_file(location: str, options: ObjectOptions | None = None) -> BinaryIO:
    """Open a seekable reader of a `Store.location`, in any process. Raises OSError, UsageError.

    The file itself is opened: links below the root were checked when it was listed.
    """
    if not is_url(location):
        return Path(location).open("rb")
    if adls.handles(location):
        with _required("azure", "azure", location):
            from mirrorlake.storage.adls.store import open_file as open_in_lake
        return open_in_lake(location)
    store, key = addressed(location, options)
    return store.open(key)


def addressed(location: str, options: ObjectOptions | None = None) -> tuple[ObjectStore, str]:
    """The objects of the bucket of a location, and its key. There is one client per bucket and
    process. Raises UsageError."""
    scheme, bucket, key = _parsed(location)
    return _bucket(scheme, bucket, options or ObjectOptions(), os.getpid()), key


def _parsed(url: str) -> tuple[str, str, str]:
    """Scheme, bucket, and the path below it. Messages do not repeat what may be a secret."""
    found = _URL.fullmatch(url)
    assert found is not None
    scheme, rest = found[1].lower(), found[2]
    bucket, _, prefix = rest.partition("/")
    if scheme not in _OPTIONS or scheme == _AZURE_FORMS:
        raise UsageError(
            f"{scheme}:// is not a supported storage",
            where="URL",
            hint="Use a folder, or a URL that begins with " + _known() + ".",
        )
    if "@" in bucket or ":" in bucket or "?" in bucket or "#" in bucket:
        raise UsageError(
            "the URL contains more than a bucket and a path",
            where=f"{scheme}://...",
            hint=f"Write {scheme}://bucket/path. Set credentials in the environment, and an "
            "endpoint in the options.",
        )
    if not bucket:
        raise UsageError(
            "the URL names no bucket", where=f"{scheme}://", hint=f"Write {scheme}://bucket/path."
        )
    return scheme, bucket, prefix


def _root(url: str) -> tuple[str, str, str]:
    """The parts of a URL from a user, who may have written more into it than a location."""
    scheme, bucket, prefix = _parsed(url)
    prefix = prefix.rstrip("/")
    if "?" in prefix:
        raise UsageError(
            "the URL contains a question mark, and what follows it may be a secret",
            where=f"{scheme}://{bucket}/...",
            hint=f"Write {scheme}://{bucket}/path, and set the credentials in the environment.",
        )
    try:
        _ = prefix and checked(prefix)
    except UnsafePath:
        raise UsageError(
            "the path of the URL contains an empty part, a dot, or a backslash",
            where=f"{scheme}://{bucket}/...",
            hint=f"Write {scheme}://{bucket}/path.",
        ) from None
    return scheme, bucket, prefix


@functools.lru_cache(maxsize=16)
def _bucket(scheme: str, bucket: str, options: ObjectOptions, _process: int) -> ObjectStore:
    """One client for all files of a bucket; never that of a forked parent process."""
    return _object_store(scheme, bucket, "", options)


@contextmanager
def _required(module: str, extra: str, url: str) -> Iterator[None]:
    """Convert the error of an import that needs a library which is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != module:
            raise
        raise UsageError(
            f"{url.partition('://')[0]}:// requires a library that is not installed",
            where=module,
            hint=f'Run `pip install "mirrorlake[{extra}]"`.',
        ) from None


def _check_options(scheme: str, options: ObjectOptions) -> None:
    for name in ("endpoint", "region", "account", "anonymous"):
        if getattr(options, name) and name not in _OPTIONS[scheme]:
            raise UsageError(
                f"{scheme}:// does not support this setting",
                where=name,
                hint="Remove it, or correct the URL.",
            )


def _object_store(scheme: str, bucket: str, prefix: str, options: ObjectOptions) -> ObjectStore:
    _check_options(scheme, options)
    with _required("obstore", "objects", scheme):
        from mirrorlake.storage.objects import ObjectStore
    client = _client_of(scheme, bucket, prefix, options)
    return ObjectStore(client, f"{scheme}://{bucket}/{prefix}", options)


def _client_of(scheme: str, bucket: str, prefix: str, options: ObjectOptions) -> Client:
    from obstore.exceptions import BaseError
    from obstore.store import AzureStore, GCSStore, S3Store

    given = {
        "skip_signature": options.anonymous,
        "base_url" if scheme == "gs" else "endpoint": options.endpoint,
        "region": options.region,
        "account_name": options.account,
    }
    config: dict[str, Any] = {name: value for name, value in given.items() if value}
    kinds: dict[str, type[AzureStore | GCSStore | S3Store]] = {"gs": GCSStore, "az": AzureStore}
    kind = kinds.get(scheme, S3Store)
    if kind is S3Store and "AWS_COPY_IF_NOT_EXISTS" not in os.environ:
        config["copy_if_not_exists"] = "multipart"
    address = _client_options(_endpoint(scheme, options))
    try:
        return kind(
            bucket,
            prefix=prefix or None,
            client_options=address,
            retry_config=_retry(),
            **config,
        )
    except BaseError as error:
        why = _WHY.search(str(error))
        raise UsageError(
            "the credentials in the environment cannot be used"
            + (f": {why[0][0].lower()}{why[0][1:]}" if why else ""),
            where=f"{scheme}://{bucket}",
            hint=f"Set {_CREDENTIALS.get(scheme, 'AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY')}.",
        ) from None


def _endpoint(scheme: str, options: ObjectOptions) -> str:
    """The address of a storage from options or environment; empty for its cloud's own. Raises
    UsageError if one of the environment contains credentials: the client may take any of them."""
    names = _ENDPOINTS.get(scheme, _S3_ENDPOINTS)
    if not options.endpoint:
        for name in names:
            check_endpoint(os.environ.get(name, ""), name)
    return _first(options.endpoint, names)


def s3_endpoint(options: ObjectOptions) -> str:
    """The address of S3 from options or environment; empty for Amazon's. Raises UsageError."""
    return _endpoint("s3", options)


def s3_region(options: ObjectOptions) -> str:
    """The region of S3 from options or environment; empty if neither is set."""
    return _first(options.region, _REGIONS)


def _first(option: str | None, variables: Sequence[str]) -> str:
    known = (option, *(os.environ.get(name) for name in variables))
    return next((value for value in known if value), "")


def _client_options(endpoint: str) -> ClientConfig:
    found: ClientConfig = {"connect_timeout": timedelta(seconds=5), "timeout": timedelta(minutes=2)}
    if endpoint.lower().startswith("http://"):  # written explicitly, so it is intended
        found["allow_http"] = True
    return found


def _retry() -> RetryConfig:
    """Failures that last half a minute are retried here; longer ones by the caller, which can be
    stopped. The time is the limit: pauses are random, so that a number of them says nothing of
    it."""
    return {
        "max_retries": _NO_LIMIT,
        "retry_timeout": timedelta(seconds=30),
        "backoff": {
            "init_backoff": timedelta(milliseconds=100),
            "max_backoff": timedelta(seconds=2),
            "base": 3,  # by less, random pauses stay short
        },
    }


_NO_LIMIT = 1000


_AZURE_FORMS = "abfss"
_OPTIONS: dict[str, tuple[str, ...]] = {
    "s3": ("endpoint", "region", "anonymous"),
    "s3a": ("endpoint", "region", "anonymous"),
    "gs": ("endpoint", "anonymous"),
    "az": ("endpoint", "account", "anonymous"),
    _AZURE_FORMS: (),  # the address contains everything
}


def _known() -> str:
    schemes = [f"{scheme}://" for scheme in sorted(_OPTIONS)]
    return f"{', '.join(schemes[:-1])} or {schemes[-1]}"
