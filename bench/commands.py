"""A mirror as a person starts it: the commands, with nothing configured but what must be said."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench import ages
from bench.server import Server

PATIENCE_SECONDS = 120.0
REST_SECONDS = 5.0
LOOK_SECONDS = 0.2


def project(server: Server, folder: Path, name: str, *tables: str) -> Path:
    """A project file. tables: patterns."""
    path = folder / "mirrorlake.yaml"
    source = {"type": "postgresql", "url": server.url, "tables": list(tables)}
    path.write_text(json.dumps({"name": name, "root": "lake", "source": source}))
    return path


def _command(file: Path, *words: str) -> list[str]:
    return [str(Path(sys.executable).with_name("mirrorlake")), *words, "--config", str(file)]


def once(file: Path) -> None:
    """Mirror everything that is committed by now."""
    with (file.parent / "run.log").open("ab") as log:
        subprocess.run(_command(file, "run", "--once"), check=True, stdout=log, stderr=log)


@contextmanager
def running(file: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (file.parent / "run.log").open("ab") as log:
        process = subprocess.Popen(_command(file, "run"), stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def ready(process: subprocess.Popen[bytes], tables: Mapping[str, Path], before: list[int]) -> None:
    """Until each table has had a new commit: the mirror has started."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while any(new <= old for new, old in zip(versions(tables), before, strict=True)):
        _check(process, deadline)


def settled(process: subprocess.Popen[bytes], tables: Mapping[str, Path]) -> None:
    """Until no table has had a new commit for some seconds."""
    seen, since = versions(tables), time.monotonic()
    deadline = since + PATIENCE_SECONDS
    while time.monotonic() - since < REST_SECONDS:
        _check(process, deadline)
        if (now := versions(tables)) != seen:
            seen, since = now, time.monotonic()


def versions(tables: Mapping[str, Path]) -> list[int]:
    return [ages.newest(table) for table in tables.values()]


def _check(process: subprocess.Popen[bytes], deadline: float) -> None:
    if process.poll() is not None:
        raise RuntimeError(f"the mirror ended with {process.returncode}")
    if time.monotonic() > deadline:
        raise RuntimeError("the mirror does not come to rest")
    time.sleep(LOOK_SECONDS)
