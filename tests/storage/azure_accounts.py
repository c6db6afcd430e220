"""A data lake of one test: the double, a container in it, and stores that reach it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import unquote, urlsplit

from azure.core.credentials import AzureNamedKeyCredential
from azure.core.pipeline.transport import RequestsTransport
from azure.storage.filedatalake import ExponentialRetry, FileSystemClient

from mirrorlake.storage.adls.files import AHEAD
from mirrorlake.storage.adls.store import AdlsStore
from tests.doubles.dfs import DataLake, Seen
from tests.doubles.dfs.tree import Tree

KEY = "bm90IGEgc2VjcmV0"  # not a secret
ROOT = "root"
_numbers = itertools.count(1)

Hook = Callable[[str, bool], None]
"""Called before and after each request that writes: what it is, and whether it is done."""


def _no_hook(_request: str, _done: bool) -> None:
    """Nothing happens."""


@dataclass
class Lake:
    """A container of its own on the service."""

    service: DataLake
    name: str = field(default_factory=lambda: f"zone{next(_numbers)}")

    def __post_init__(self) -> None:
        self.tree: Tree = self.service.container(self.name)

    @cached_property
    def store(self) -> AdlsStore:
        return self.opened()

    def opened(self, hook: Hook | None = None) -> AdlsStore:
        """The store of a process. hook: may end it, by raising."""
        container = FileSystemClient(
            self.service.url,
            self.name,
            credential=AzureNamedKeyCredential("acme", KEY),
            # No wait between attempts: a double is ready at once.
            retry_policy=ExponentialRetry(
                initial_backoff=0, increment_base=0, random_jitter_range=0, retry_total=3
            ),
            transport=_Hooked(hook or _no_hook),
            max_single_get_size=AHEAD,
            max_chunk_get_size=AHEAD,
        )
        url = f"abfss://{self.name}@acme.dfs.core.windows.net/{ROOT}"
        return AdlsStore(container, ROOT, url)

    def writes(self) -> list[Seen]:
        return [seen for seen in self.service.seen if seen.is_write]


class _Hooked(RequestsTransport):
    """The transport of a process that may end at any request. Of the dead nothing is sent."""

    def __init__(self, hook: Hook) -> None:
        super().__init__()
        self._hook, self._death = hook, None

    def send(self, request: Any, **kwargs: Any) -> Any:
        is_write = request.method in {"PUT", "PATCH", "DELETE"}
        self._announce(request, is_write, done=False)
        answer = super().send(request, **kwargs)
        self._announce(request, is_write, done=True)
        return answer

    def _announce(self, request: Any, is_write: bool, *, done: bool) -> None:
        if self._death is not None:
            raise self._death
        if is_write:
            try:
                self._hook(f"{request.method} {unquote(urlsplit(request.url).path)}", done)
            except BaseException as death:
                self._death = death
                raise
