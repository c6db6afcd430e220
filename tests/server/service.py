"""A real `mirrorlake serve`, and the official client of the API it speaks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

PARENT = "projects/p/locations/l"


class Served:
    """A service in a process of its own, in a folder that outlives it."""

    def __init__(
        self, folder: Path, *options: str, config: Path | None = None, **environment: str
    ) -> None:
        """config: a project file, which says what Spark is then."""
        self.folder, self._environment = folder, environment
        self.options: tuple[str, ...] = options
        spark = ("--spark-memory", "1g", "--spark-master", "local[2]")
        self._settings = ("--config", str(config)) if config else spark
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> Served:
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "mirrorlake.cli.main", "serve"),
                *("--folder", str(self.folder), "--port", "0"),
                *self._settings,
                *self.options,
            ],
            env=os.environ | self._environment,
            stderr=(self.folder.parent / "serve.log").open("a"),
            text=True,
            start_new_session=True,
        )
        wait(lambda: self.process.poll() is not None or self._answers(), 120)
        assert self.process.poll() is None, "it ended at once; see serve.log"
        return self

    def _answers(self) -> bool:
        try:
            return (self.folder / "serve.json").exists() and self.call("GET", "/readyz")[0] == 200
        except OSError:
            return False

    @property
    def url(self) -> str:
        return json.loads((self.folder / "serve.json").read_text())["url"]

    @property
    def token(self) -> str:
        token = self.folder / "token"  # of a service that asks for none there is none
        return token.read_text() if token.exists() else "none"

    def call(
        self, method: str, path: str, body: Any = None, token: str | None = None, **headers: str
    ) -> tuple[int, Any]:
        """Status and body of an answer."""
        sent = body if isinstance(body, bytes) else None if body is None else json.dumps(body)
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=sent.encode() if isinstance(sent, str) else sent,
            headers={"Authorization": f"Bearer {token or self.token}", **headers},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                content = answer.read()
                return answer.status, json.loads(content) if content[:1] == b"{" else content
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def kill(self) -> None:
        assert self.process
        self.process.kill()
        self.process.wait()
        (self.folder / "serve.json").unlink(missing_ok=True)

    def stop(self) -> float:
        """Ask it to end. Returns the seconds that it took."""
        assert self.process
        begun = time.monotonic()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(30)
        return time.monotonic() - begun

    def client(self) -> Any:
        """The official client, unmodified."""
        from google.api_core.client_options import ClientOptions
        from google.cloud.datastream_v1 import DatastreamClient
        from google.oauth2.credentials import Credentials

        return DatastreamClient(
            transport="rest",
            credentials=Credentials(self.token),
            client_options=ClientOptions(api_endpoint=self.url),
        )


def wait(until: Callable[[], Any], seconds: float) -> Any:
    """Wait for something that is true, and return it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := until():
            return found
        time.sleep(0.1)
    raise AssertionError(f"not within {seconds} seconds")
