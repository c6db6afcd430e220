"""A service: the resources of one folder, and the supervisor that makes them true."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from mirrorlake.app import extras
from mirrorlake.app.streams.backfills import ObjectBackfills
from mirrorlake.app.streams.projects import ServiceFolders
from mirrorlake.app.streams.supervisor import Supervisor
from mirrorlake.app.streams.validation import WorldValidator
from mirrorlake.control.control import Control
from mirrorlake.control.secrets import SecretFile
from mirrorlake.errors import LeaseHeld
from mirrorlake.model.clock import WallClock

DATABASE = "streams.sqlite"


@dataclass(frozen=True, slots=True)
class Service:
    """control: what is asked; supervisor: what runs; backfills: of single objects."""

    control: Control
    supervisor: Supervisor
    backfills: ObjectBackfills
    places: ServiceFolders


@contextmanager
def opened(
    places: ServiceFolders,
    stop: threading.Event,
    *,
    database: str | None = None,
    prepare: Callable[[], None] | None = None,
    applies: bool = True,
) -> Iterator[Service]:
    """The one service of a folder, which is made if it is missing; nothing runs yet.

    database: a URL of SQLAlchemy, instead of a file in the folder; applies: whether landed files
    are applied here too. Raises LeaseHeld when another
    service runs there, UsageError, StorageUnavailable.
    """
    places.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    places.data.mkdir(parents=True, exist_ok=True)
    with _locked(places.folder):
        with extras.needed("`mirrorlake serve`"):
            from mirrorlake.control.store.database import Database
        url = database or f"sqlite:///{places.folder / DATABASE}"
        opened_database = Database(url)
        clock = WallClock(stop)
        validator = WorldValidator(places)
        changed = threading.Event()
        control = Control(opened_database, SecretFile(places.folder), validator, clock, changed.set)
        validator.profiles = control.profiles.of
        supervisor = Supervisor(
            control.supervision,
            control.profiles.of,
            validator,
            places,
            clock,
            stop=stop,
            changed=changed,
            prepare=prepare,
            applies=applies,
        )
        control.tidy()
        backfills = ObjectBackfills(control.supervision, control.profiles.of, places)
        try:
            yield Service(control, supervisor, backfills, places)
        finally:
            opened_database.close()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """At most one service works in a folder; the lock ends with its process."""
    path = folder / "serve.lock"
    number = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(number, 20, 0).decode(errors="replace").strip()
            raise LeaseHeld(
                f"`mirrorlake serve` already works in this folder, as process {holder}",
                where=str(folder),
                hint="Use that service, stop it, or name another folder.",
            ) from None
        os.ftruncate(number, 0)
        os.pwrite(number, str(os.getpid()).encode(), 0)
        yield
    finally:
        with suppress(OSError):
            os.close(number)
