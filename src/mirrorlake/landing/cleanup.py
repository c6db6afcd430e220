"""Processed files: moved to the cleanup folder, and deleted after a while (section 12 of the
specification)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import structlog

from mirrorlake.landing import layout
from mirrorlake.landing.partitions import is_partition
from mirrorlake.landing.scan import CLEANUP_FOLDERS, Landed
from mirrorlake.model.crash_points import CrashHook, CrashPoint, no_crash
from mirrorlake.model.landed import FileName, parse_time
from mirrorlake.storage.store import StorageFailed, Store, UnsafePath

log = structlog.get_logger()

WRITTEN_AGAIN = "processed_file_written_again"
RETENTION = timedelta(days=7)

CLEANUP_ERRORS = (
    UnsafePath,
    FileExistsError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
    StorageFailed,
)
"""Errors if another program has put something else in the place of the cleanup folder, or if the
storage is temporarily unavailable. Files then stay longer, but no rows are lost."""


def processed(files: Sequence[Landed], applied: int) -> list[Landed]:
    """The files to move: the applied ones except the last (LZ-243, LZ-250, LZ-251)."""
    return [file for file in files if file.number < applied]


def move(store: Store, folder: str, files: Sequence[Landed], now: datetime) -> Iterator[Landed]:
    """Move files to the cleanup folder, and yield each moved file (LZ-248).

    The record of the time is written first: an unrecorded file would never be deleted. A file that
    no longer exists, because an earlier run moved it, is skipped.
    """
    if not files:
        return
    moved = _info(store, folder)
    _warn_of_repeated_names(store, folder, [file for file in files if file.base in moved])
    moved |= {file.base: now for file in files}
    _write_info(store, folder, moved)
    for file in files:
        try:
            store.move(file.path, f"{folder}/{layout.CLEANUP}/{file.base}")
        except FileNotFoundError:
            continue
        yield file


def _warn_of_repeated_names(store: Store, folder: str, files: Sequence[Landed]) -> None:
    """Warn if a name that was applied and moved exists again: its new rows are not read
    (LZ-127)."""
    if files:
        moved = {entry.name for entry in store.list(f"{folder}/{layout.CLEANUP}").files}
        for file in files:
            if file.base in moved:
                log.warning(WRITTEN_AGAIN, path=file.path)


def discard(store: Store, files: Sequence[Landed]) -> None:
    """Delete files of cleanup folders before they are due; they may not exist (LZ-249)."""
    for file in files:
        store.delete(file.path)


def is_remnant(store: Store, folder: str) -> bool:
    """Whether only an empty cleanup folder, or such folders of its partitions, is left of a
    table folder: the publisher deleted it while files were being moved (LZ-235). Names of files
    must not begin with an underscore."""
    listing = store.list(folder)
    if listing.files or not listing.folders:
        return False
    return all(_is_remnant(store, f"{folder}/{name}", name) for name in listing.folders)


def _is_remnant(store: Store, folder: str, name: str) -> bool:
    if name not in CLEANUP_FOLDERS:
        return is_partition(name) and is_remnant(store, folder)
    return all(file.name.startswith("_") for file in store.list(folder).files)


def sweep(
    store: Store,
    folder: str,
    now: datetime,
    retention: timedelta = RETENTION,
    reached: CrashHook = no_crash,
) -> tuple[int, datetime]:
    """Delete what was moved longer ago than `retention` (LZ-245, LZ-252).

    A file without a recorded time is due by its modification time. Publishers may empty the folder
    earlier (LZ-249). Returns the number of deleted files, and when the next one is due.
    """
    location = f"{folder}/{layout.CLEANUP}"
    listed = store.list(location).files
    if not listed:
        return 0, now + retention
    moved = _info(store, folder)
    # Our record distinguishes names without a number from files of others.
    files = [file for file in listed if file.name in moved or FileName.parse(file.name)]
    times = {file.name: moved.get(file.name) or _time(file.modified) for file in files}
    old = {name for name, time in times.items() if now - time > retention}
    for name in old:
        store.delete(f"{location}/{name}")
        reached(CrashPoint.CLEANUP_EXPIRED_ONE)
    if old:
        present = {file.name for file in files} - old
        _write_info(store, folder, {name: t for name, t in moved.items() if name in present})
    left = [time for name, time in times.items() if name not in old]
    return len(old), min(left, default=now) + retention


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _info(store: Store, folder: str) -> dict[str, datetime]:
    try:
        record = json.loads(store.read(f"{folder}/{layout.CLEANUP}/{layout.CLEANUP_INFO}"))
        return {str(file["name"]): parse_time(file["movedTimeUtc"]) for file in record["files"]}
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return {}  # publishers may empty the folder (LZ-249); modification times are used then


def _write_info(store: Store, folder: str, moved: dict[str, datetime]) -> None:
    files = [
        {"name": name, "movedTimeUtc": _whole_seconds(time)} for name, time in sorted(moved.items())
    ]
    path = f"{folder}/{layout.CLEANUP}/{layout.CLEANUP_INFO}"
    store.replace(path, json.dumps({"files": files}).encode())


def _whole_seconds(time: datetime) -> str:
    """The time in the form of LZ-248, rounded up to whole seconds, so never before the move."""
    whole = (time + timedelta(microseconds=999_999)).astimezone(UTC).replace(microsecond=0)
    return whole.replace(tzinfo=None).isoformat() + "Z"
