"""A service: the resources of one folder, and the supervisor that makes them true."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from mirrorlake.app import extras
from mirrorlake.app.streams.backfills import ObjectBackfills
from mirrorlake.app.streams.projects import ServiceFolders, StreamProjects
from mirrorlake.app.streams.supervisor import Supervisor
from mirrorlake.app.streams.validation import WorldValidator
from mirrorlake.config import Project
from mirrorlake.control.control import Control
from mirrorlake.control.names import HOME, ResourceKind, ResourceName, identifier_like
from mirrorlake.control.secrets import SecretFile
from mirrorlake.errors import LeaseHeld, UsageError
from mirrorlake.model.clock import WallClock
from mirrorlake.storage.local import check_folder

log = structlog.get_logger()

STREAM_FORGOTTEN = "stream_forgotten"
DATABASE = "streams.sqlite"


@dataclass(frozen=True, slots=True)
class Service:
    """control: what is asked; supervisor: what runs; backfills: of single objects; projects: the
    settings of its streams."""

    control: Control
    supervisor: Supervisor
    backfills: ObjectBackfills
    projects: StreamProjects

    @property
    def places(self) -> ServiceFolders:
        return self.projects.places


@contextmanager
def opened(
    places: ServiceFolders,
    stop: threading.Event,
    *,
    database: str | None = None,
    prepare: Callable[[], None] | None = None,
    applies: bool = True,
    listed: Sequence[Project] = (),
    file: str = "",
) -> Iterator[Service]:
    """The one service of a folder, which is made if it is missing; nothing runs yet.

    database: a URL of SQLAlchemy, instead of a file in the folder; applies: whether landed files
    are applied here too; listed: the mirrors of a project file, which are streams as well. Raises
    LeaseHeld when another service runs there, UsageError, StorageUnavailable.
    """
    for folder in (places.folder, places.data):
        check_folder(folder)
    places.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    places.data.mkdir(parents=True, exist_ok=True)
    with _locked(places.folder):
        with extras.needed("`mirrorlake serve`"):
            from mirrorlake.control.definitions import Definitions
            from mirrorlake.control.store.database import Database
        url = database or f"sqlite:///{places.folder / DATABASE}"
        with closing(Database(url)) as opened_database:
            definitions = Definitions(places.folder, opened_database)
            definitions.restore()
            clock = WallClock(stop)
            validator = WorldValidator(places)
            changed = threading.Event()
            control = Control(
                opened_database, SecretFile(places.folder), validator, clock, changed.set
            )
            declared = _declared(listed, file)
            _declare(control, declared, file)
            projects = StreamProjects(control.profiles.of, places, declared)
            validator.projects = projects
            validator.streams = control.supervision.supervised
            supervisor = Supervisor(
                control.supervision,
                projects,
                validator,
                clock,
                stop=stop,
                changed=changed,
                read=definitions.write,
                tidy=control.tidy,
                prepare=prepare,
                applies=applies,
            )
            control.tidy()
            backfills = ObjectBackfills(control.supervision, projects, supervisor.look_at)
            yield Service(control, supervisor, backfills, projects)


def _declared(listed: Sequence[Project], file: str) -> dict[str, Project]:
    """The mirrors of a project file by the names of their streams. Raises UsageError."""
    found: dict[str, Project] = {}
    for project in listed:
        name = str(ResourceName(HOME, ResourceKind.STREAM, identifier_like(project.name)))
        if name in found:
            raise UsageError(
                f"{found[name].name} and {project.name} would be one stream",
                where=file,
                hint="Give one of them a name that differs in letters or digits.",
            )
        found[name] = project
    return found


def _declare(control: Control, declared: Mapping[str, Project], file: str) -> None:
    titles = {name.rpartition("/")[2]: project.name for name, project in declared.items()}
    for gone in control.streams.declare(HOME, titles, file):
        # Whatever it has made in its source is still there, and may be meant to be.
        log.warning(STREAM_FORGOTTEN, mirror=gone, hint="`mirrorlake detach` removes its slot")


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
