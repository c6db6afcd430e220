"""How far the changes of a stream are on their way from the log of the source to the readers."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from mirrorlake import root
from mirrorlake.app.changes import cut
from mirrorlake.app.stores import store_of
from mirrorlake.config import Project
from mirrorlake.config.sources import open_source
from mirrorlake.errors import MirrorlakeError
from mirrorlake.landing.cuts import Cuts


@dataclass(frozen=True, slots=True)
class StreamPositions:
    """Positions in the words of the source, each None when nobody can say it.

    source: the end of its log now; landed: everything up to it is in landed files; readable: every
    table shows it, and nothing after it, at the versions of `mirrorlake cut`.
    """

    source: str | None = None
    landed: str | None = None
    readable: str | None = None


def positions_of(project: Project) -> StreamPositions:
    """Asks the source, the landing zone and the tables; takes as long as the source does."""
    return StreamPositions(_source(project), _landed(project), _readable(project))


def _source(project: Project) -> str | None:
    if project.source is None:
        return None
    try:
        with closing(open_source(project.source)) as source:
            return str(source.current())
    except (MirrorlakeError, OSError, ImportError):
        return None  # the stream says what is wrong with its source


def _landed(project: Project) -> str | None:
    try:
        newest = Cuts(store_of(project), root.LANDING).newest()
    except (MirrorlakeError, OSError, ValueError, KeyError):
        return None
    return newest.position if newest else None


def _readable(project: Project) -> str | None:
    try:
        return cut.find(project).position
    except (MirrorlakeError, OSError, ValueError, KeyError):
        return None
