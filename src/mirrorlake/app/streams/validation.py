"""Validation of profiles and streams against what is there, with a remedy for each failure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from mirrorlake.app import extras
from mirrorlake.app.mirror import Mirror
from mirrorlake.app.streams.connections import NOT_LIVE, check_connectivity, postgres_url
from mirrorlake.app.streams.destinations import below, bucket_of, folder_of
from mirrorlake.app.streams.projects import ServiceFolders, StreamProjects, project_of
from mirrorlake.config import Project
from mirrorlake.control.names import ResourceName
from mirrorlake.control.reports import Validation
from mirrorlake.control.shapes.profiles import SOURCES, ConnectionProfile
from mirrorlake.control.shapes.streams import Stream
from mirrorlake.control.states import ValidationState
from mirrorlake.control.supervision import Supervised
from mirrorlake.errors import MirrorlakeError, NotOffered, StorageUnavailable, UsageError
from mirrorlake.sources.base import CheckResult, CheckSeverity
from mirrorlake.storage.urls import StorageLocation, open_store

_STATES = {
    CheckSeverity.OK: ValidationState.PASSED,
    CheckSeverity.WARNING: ValidationState.WARNING,
    CheckSeverity.ERROR: ValidationState.FAILED,
}


_DETACHED = "detached"
"""The check that finds the tables of a stream that was deleted."""
_POSTPONED = (NotOffered.code, _DETACHED)
"""What fails when a stream is started, and not before."""


class WorldValidator:
    """The `Validator` of a service. projects, streams: set once the service is open."""

    def __init__(self, places: ServiceFolders) -> None:
        self._places = places
        self.projects: StreamProjects | None = None
        self.streams: Callable[[], Sequence[Supervised]] = list

    def profile(
        self, profile: ConnectionProfile, secrets: Mapping[str, str], /
    ) -> Sequence[Validation]:
        """Whether the profile can be connected to."""
        return [_caught("connection", lambda: self._connected(profile, secrets))]

    def stream(self, name: ResourceName, stream: Stream, /) -> Sequence[Validation]:
        """Every prerequisite of a stream. What this release does not do is no failure here: it is
        refused when the stream is started."""
        assert self.projects is not None
        try:
            project = project_of(name, stream, self.projects.profiles, self._places)
            self.check_root(name, project)
            found = self.start(name, project)
        except MirrorlakeError as error:
            found = [_failure(error.code, "configuration", error)]
        return [_postponed(one) if one.code in _POSTPONED else one for one in found]

    def start(self, name: ResourceName, project: Project) -> Sequence[Validation]:
        """Every prerequisite, before a stream is started. Raises MirrorlakeError."""
        if project.source is None and project.events is None:
            return []  # others fill its landing zone
        with extras.needed("a PostgreSQL source"):
            return [_of_check(finding, name) for finding in Mirror(project).check()]

    def check_root(self, name: ResourceName, project: Project) -> None:
        """Raises UsageError where the root of a stream is that of another one, whose slot and
        tables would be taken for its own."""
        for other in self.streams():
            if other.name == name or other.is_deleted:
                continue
            if project.root == self._root_of(other):
                raise UsageError(
                    f"the folder is that of the stream {other.name}",
                    where=project.where,
                    hint="Name another path in destinationConfig.",
                )

    def _root_of(self, stream: Supervised) -> Path | StorageLocation | None:
        assert self.projects is not None
        with suppress(MirrorlakeError):  # what cannot be named, nobody writes to
            return self.projects.root_of(stream.name, stream.document)
        return None

    def _connected(self, profile: ConnectionProfile, secrets: Mapping[str, str]) -> Validation:
        kind = profile.kind or ""
        if kind not in NOT_LIVE:
            check_connectivity(profile)
        if kind == "postgresql_profile":
            with extras.needed("a PostgreSQL source"):
                from mirrorlake.sources.postgresql.connect import connect

            connect(postgres_url(profile, secrets, self._places.certificates)).close()
        elif kind in NOT_LIVE:
            return _not_executed(f"this release does not read {NOT_LIVE[kind]}")
        elif (place := profile.gcs_profile) is not None:
            if (folder := folder_of(place.bucket)) is not None:
                below(self._places.data / "files", folder, place.root_path)
            else:
                _check_bucket(bucket_of(place.bucket))
        elif profile.file_system_profile is not None:
            below(self._places.data / "files", profile.file_system_profile.root_path, "stream")
        reached = (*SOURCES, "gcs_profile")
        what = "connected" if kind in reached else "the destination can be named"
        return Validation("connection", what, ValidationState.PASSED)


def _check_bucket(location: StorageLocation) -> None:
    """Raises UsageError, StorageUnavailable."""
    try:
        open_store(location.url, location.options).list("")
    except MirrorlakeError:
        raise
    except Exception as error:  # the libraries of the clouds have errors of their own
        said = (isinstance(error, OSError) and error.strerror) or str(error)
        reason = (said.splitlines() or [type(error).__name__])[0][:300]
        raise StorageUnavailable(
            f"the bucket cannot be listed: {reason}",
            where=location.url,
            hint="Check its name, and the credentials in the environment of `mirrorlake serve`.",
        ) from error


def _caught(description: str, test: Callable[[], Validation]) -> Validation:
    try:
        return test()
    except NotOffered as error:
        return _postponed(_failure(error.code, description, error))
    except MirrorlakeError as error:
        return _failure(error.code, description, error)


def _failure(code: str, description: str, error: MirrorlakeError) -> Validation:
    where = f" ({error.where})" if error.where else ""
    return Validation(code, description, ValidationState.FAILED, f"{error.what}{where}", error.hint)


def _postponed(failure: Validation) -> Validation:
    return Validation(
        failure.code,
        failure.description,
        ValidationState.NOT_EXECUTED,
        failure.message,
        f"A stream with it is refused when it is started. {failure.remedy}",
    )


def _not_executed(message: str) -> Validation:
    return Validation(
        NotOffered.code,
        "connection",
        ValidationState.NOT_EXECUTED,
        message,
        "A stream with it is refused when it is started.",
    )


def _of_check(finding: CheckResult, stream: ResourceName) -> Validation:
    if finding.check == _DETACHED:
        return Validation(
            _DETACHED,
            "an earlier stream",
            ValidationState.FAILED,
            "an earlier stream of this name was deleted, and its files and tables are there",
            f"POST /v1/{stream}:run, or `mirrorlake streams run {stream.id}`: all tables are "
            "loaded again, and their change feeds begin anew",
        )
    return Validation(
        finding.check,
        f"{finding.check} of {finding.table}" if finding.table else finding.check,
        _STATES[finding.severity],
        finding.message if finding.severity is not CheckSeverity.OK else "",
        finding.remedy,
        {"table": str(finding.table)} if finding.table else {},
    )
