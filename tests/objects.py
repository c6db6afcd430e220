"""An S3 on this machine, and counted requests, for tests of landing zones on objects."""

from __future__ import annotations

import itertools
import threading
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from mirrorlake.storage.objects import ObjectStore
from mirrorlake.storage.options import ObjectOptions
from tests.doubles.memory_store import Crash

_numbers = itertools.count(1)


@dataclass(slots=True)
class S3Server:
    """A server that speaks the protocol of S3. requests: what it was asked, one by one."""

    endpoint: str
    requests: list[str] = field(default_factory=list)

    @property
    def options(self) -> ObjectOptions:
        return ObjectOptions(endpoint=self.endpoint, region="us-east-1")

    def described(self, patch: pytest.MonkeyPatch) -> None:
        """Let the environment say how the server is reached."""
        patch.setenv("AWS_ENDPOINT_URL", self.endpoint)
        patch.setenv("AWS_REGION", "us-east-1")

    def new_bucket(self) -> str:
        """The URL of a bucket that is empty."""
        name = f"lake-{next(_numbers)}"
        self.send("PUT", name)
        return f"s3://{name}"

    def send(self, method: str, path: str, content: bytes = b"") -> None:
        """What the tools of others may do, such as writing keys that no path of ours can hold."""
        request = urllib.request.Request(f"{self.endpoint}/{path}", content, method=method)
        urllib.request.urlopen(request).close()

    def fill(self, url: str, count: int) -> None:
        """Put many small data files below a URL, by no request."""
        for number in range(1, count + 1):
            self.put(f"{url}/{number:020d}.parquet", b"PAR1")

    def put(self, url: str, content: bytes) -> None:
        """Put an object by no request."""
        from moto.core.models import DEFAULT_ACCOUNT_ID
        from moto.s3.models import s3_backends

        bucket, _, key = url.removeprefix("s3://").partition("/")
        s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_object(bucket, key, content)

    def delete(self, url: str) -> None:
        """Delete an object by no request."""
        from moto.core.models import DEFAULT_ACCOUNT_ID
        from moto.s3.models import s3_backends

        bucket, _, key = url.removeprefix("s3://").partition("/")
        s3_backends[DEFAULT_ACCOUNT_ID]["aws"].delete_object(bucket, key)

    def counted(self, app: Callable[..., Any]) -> Callable[..., Any]:
        one_at_a_time = threading.Lock()

        def answer(environ: dict[str, Any], start: Any) -> Any:
            self.requests.append(_told(environ))
            with one_at_a_time:  # as S3 does for each key, and the server does not by itself
                return app(environ, start)

        return answer


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """The server, and an environment that has credentials for it."""
    from moto.moto_server.werkzeug_app import (
        DomainDispatcherApplication,
        MotoRequestHandler,
        create_backend_app,
    )
    from werkzeug.serving import make_server

    class Quiet(MotoRequestHandler):
        protocol_version = "HTTP/1.1"  # connections are kept, as by a real one

        def log_request(self, *_args: object) -> None:
            pass

    found = S3Server("")
    app = found.counted(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    found.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in CREDENTIALS.items():
                patch.setenv(name, value)
            yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _told(environ: dict[str, Any]) -> str:
    """`GET /bucket/key`, and for a listing `LIST prefix`."""
    query = dict(urllib.parse.parse_qsl(environ["QUERY_STRING"]))
    if "list-type" in query:
        return f"LIST {query.get('prefix', '')}"
    return f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}"


class Hooked:
    """A client with some methods replaced."""

    def __init__(self, client: Any, **methods: Callable[..., Any]) -> None:
        self._client, self._methods = client, methods

    def __getattr__(self, name: str) -> Any:
        return self._methods.get(name) or getattr(self._client, name)


def hooked(store: ObjectStore, **methods: Callable[..., Any]) -> ObjectStore:
    """The same objects through a client that does something else."""
    return ObjectStore(Hooked(store._client, **methods), store._url)  # type: ignore[arg-type]


def dying(store: ObjectStore, count: int) -> ObjectStore:
    """The same objects through a process that dies at its `count`-th effect, from 1: before it for
    an odd number, after it for an even one. The dead do nothing more."""
    calls = itertools.count(1)
    dead: list[int] = []

    def mortal(name: str) -> Callable[..., Any]:
        def action(*args: Any, **options: Any) -> Any:
            if dead or next(calls) == count:
                dead.append(count)
                raise Crash(f"before {name}")
            done = getattr(store._client, name)(*args, **options)
            if next(calls) == count:
                dead.append(count)
                raise Crash(f"after {name}")
            return done

        return action

    return hooked(store, **{name: mortal(name) for name in ("put", "copy", "delete")})


CREDENTIALS = {"AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": "a-secret-of-somebody"}
