"""A server of Trino for the long run: from Maven Central, on a JDK of this machine."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.objects import CREDENTIALS, S3Server

RELEASE = "449"
OLDEST_JDK = 22

_KEPT = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "mirrorlake"
_PATIENCE_SECONDS = 300.0

_POM = f"""<project><modelVersion>4.0.0</modelVersion>
<groupId>trial</groupId><artifactId>trino</artifactId><version>1</version><dependencies>
<dependency><groupId>io.trino</groupId><artifactId>trino-main</artifactId>
<version>{RELEASE}</version></dependency></dependencies></project>"""

_MAIN = f"""public class Main extends io.trino.server.Server {{
    public static void main(String[] arguments) {{ new Main().start("{RELEASE}"); }}
}}"""


@dataclass(frozen=True)
class Trino:
    """A server that answers at a URL; its catalog `delta` reads tables on S3."""

    url: str

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a query. Raises AssertionError with what Trino says instead."""
        headers = {"X-Trino-User": "reader", "X-Trino-Catalog": "delta", "X-Trino-Schema": "s"}
        request = urllib.request.Request(f"{self.url}/v1/statement", query.encode(), headers)
        rows: list[tuple[Any, ...]] = []
        while True:
            with urllib.request.urlopen(request, timeout=60) as answer:
                told = json.load(answer)
            assert "error" not in told, told["error"]["message"]
            rows += map(tuple, told.get("data") or ())
            if "nextUri" not in told:
                return rows
            request = urllib.request.Request(told["nextUri"])

    def register(self, table: str, location: str) -> None:
        self.ask(f"call delta.system.register_table('s', '{table}', '{location}')")


@contextmanager
def trino_server(s3: S3Server) -> Iterator[Trino]:
    """The server, with a schema `s` for tables on this S3. Skips where it cannot be had."""
    jdk, install = _jdk(), _install()
    bucket, url = s3.new_bucket(), f"http://127.0.0.1:{_free_port()}"
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        (here / "etc/catalog").mkdir(parents=True)
        (here / "Main.java").write_text(_MAIN)
        libraries = f"{install}/lib/*"
        compiler = [f"{jdk}/bin/javac", "-cp", libraries, "-d", folder, "Main.java"]
        subprocess.run(compiler, cwd=folder, check=True)
        _write(
            here / "etc/config.properties",
            {
                "node.environment": "trial",
                "coordinator": "true",
                "node-scheduler.include-coordinator": "true",
                "http-server.http.port": url.rpartition(":")[2],
                "discovery.uri": url,
                "plugin.dir": f"{install}/plugin",
            },
        )
        _write(
            here / "etc/catalog/delta.properties",
            {
                "connector.name": "delta_lake",
                "hive.metastore": "file",
                "hive.metastore.catalog.dir": f"{bucket}/metastore",
                "delta.register-table-procedure.enabled": "true",
                "fs.hadoop.enabled": "false",
                "fs.native-s3.enabled": "true",
                "s3.endpoint": s3.endpoint,
                "s3.region": "us-east-1",
                "s3.path-style-access": "true",
                "s3.aws-access-key": CREDENTIALS["AWS_ACCESS_KEY_ID"],
                "s3.aws-secret-key": CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
            },
        )
        java = [
            f"{jdk}/bin/java",
            "-Xmx1g",
            "-XX:+UseSerialGC",
            "-Djdk.attach.allowAttachSelf=true",
        ]
        java += ["--add-modules", "jdk.incubator.vector", "-Dconfig=etc/config.properties"]
        with (here / "server.log").open("wb") as log:
            process = subprocess.Popen(
                [*java, "-cp", f"{folder}:{libraries}", "Main"], cwd=folder, stdout=log, stderr=log
            )
        try:
            _until_started(process, here / "server.log")
            trino = Trino(url)
            trino.ask(f"create schema delta.s with (location = '{bucket}/schema')")
            yield trino
        finally:
            process.kill()
            process.wait()


def _until_started(process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while "SERVER STARTED" not in (said := log.read_text(errors="replace")):
        assert process.poll() is None, said[-4000:]
        assert time.monotonic() < deadline, said[-4000:]
        time.sleep(0.5)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def _write(file: Path, properties: dict[str, str]) -> None:
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))


def _jdk() -> Path:
    """The folder of a JDK that is new enough, with its compiler."""
    for folder in sorted(Path("/usr/lib/jvm").glob("*")):
        release = folder / "release"
        found = re.search(r'JAVA_VERSION="(\d+)', release.read_text() if release.exists() else "")
        if found and int(found[1]) >= OLDEST_JDK and (folder / "bin/javac").exists():
            return folder
    pytest.skip(f"Trino {RELEASE} needs a JDK of version {OLDEST_JDK} or later in /usr/lib/jvm")


def _install() -> Path:
    """The folder with `lib` and `plugin`, of 600 MB, fetched on first use by Maven."""
    kept = _KEPT / f"trino-{RELEASE}"
    if kept.exists():
        return kept
    if shutil.which("mvn") is None:
        pytest.skip("Maven is not installed, which fetches Trino")
    _KEPT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_KEPT) as folder:
        here = Path(folder)
        (here / "pom.xml").write_text(_POM)
        connector = f"io.trino:trino-delta-lake:{RELEASE}:zip"
        for goal in (
            ["dependency:copy-dependencies", f"-DoutputDirectory={folder}/new/lib"],
            ["dependency:get", f"-Dartifact={connector}", "-Dtransitive=false"],
            ["dependency:copy", f"-Dartifact={connector}", f"-DoutputDirectory={folder}"],
        ):
            subprocess.run(["mvn", "-q", "-B", *goal], cwd=folder, check=True)
        with zipfile.ZipFile(here / f"trino-delta-lake-{RELEASE}.zip") as plugin:
            plugin.extractall(here / "new/plugin")
        (here / "new").rename(kept)
    return kept
