"""Whether anything was landed, applied or asked for below the root of a stream, seen in the times
of a few folders: a look at all tables takes a thousand times as long, and most streams idle."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from mirrorlake.capture.backfill import jobs
from mirrorlake.config import Project
from mirrorlake.landing import layout
from mirrorlake.root import LANDING, STATE

_RECORDS = layout.stream_folder(LANDING)

Footprint = tuple[int, ...]


def footprint(project: Project) -> Footprint | None:
    """Differs from an earlier one once capture has landed or recorded something, or the mirror has
    applied something; the same where only leases were renewed. None where that cannot be seen: in
    other storages, and in zones into which others land."""
    top = project.root
    if project.source is None or project.landing is not None or not isinstance(top, Path):
        return None
    try:
        records = (top / _RECORDS).stat().st_mtime_ns
    except OSError:
        return None
    others = (f"{_RECORDS}/{layout.CUTS}", f"{_RECORDS}/{jobs.FOLDER}", STATE)
    return (records, *(_changed(top / folder) for folder in others))


def _changed(folder: Path) -> int:
    with suppress(OSError):
        return folder.stat().st_mtime_ns
    return 0
