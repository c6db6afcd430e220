"""Azure Blob Storage on this machine: Azurite, the emulator of its makers."""

from __future__ import annotations

import itertools
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from mirrorlake.storage.options import ObjectOptions

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Of every Azurite, as its documentation says; not a secret."""

PROGRAM = Path(sys.prefix) / "azurite/node_modules/azurite/dist/src/blob/main.js"
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class AzureBlobs:
    endpoint: str

    @property
    def options(self) -> ObjectOptions:
        return ObjectOptions(endpoint=self.endpoint, account=ACCOUNT)

    def new_container(self) -> str:
        """The URL of a container that is empty."""
        from azure.storage.blob import BlobServiceClient

        name = f"lake-{next(_numbers)}"
        known = {"account_name": ACCOUNT, "account_key": KEY}
        BlobServiceClient(self.endpoint, known).create_container(name)
        return f"az://{name}"


@contextmanager
def azure_blobs() -> Iterator[AzureBlobs]:
    """The service, and an environment that has credentials for it."""
    node = shutil.which("node")
    if node is None or not PROGRAM.exists():
        pytest.skip("Azurite is missing: make programs")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = ("--inMemoryPersistence", "--silent", "--skipApiVersionCheck", "--disableTelemetry")
    process = subprocess.Popen([node, PROGRAM, "--blobPort", str(port), *options])
    try:
        _wait(process, port)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
            yield AzureBlobs(f"http://127.0.0.1:{port}/{ACCOUNT}")
    finally:
        process.kill()
        process.wait()


def _wait(process: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + 60
    while True:
        assert process.poll() is None, "Azurite ended at once"
        assert time.monotonic() < until, "Azurite does not answer"
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
