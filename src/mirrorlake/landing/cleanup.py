"""Processed files: moved aside, and removed after a while (section 12 of the specification)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import structlog

from mirrorlake.landing import layout
from mirrorlake.landing.partitions import is_partition
from mirrorlake.landing.scan import CLEANUP_FOLDERS, Landed
from mirrorlake.model.landed import FileName, parse_time
from mirrorlake.storage.store import StorageFailed, Store, UnsafePath

log = structlog.get_logger()

WRITTEN_AGAIN = "processed_file_written_again"
RETENTION = timedelta(days=7)

UNTIDY = (
    UnsafePath,
    FileExistsError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
    StorageFailed,
)
"""What others may have put in the place of a folder of ours, and a storage that is not there for a
while. It costs space, and no row."""


def processed(files: Sequence[Landed], applied: int) -> list[Landed]:
    """The files to move: those applied, but never the last of them (LZ-243, LZ-250, LZ-251)."""
    return [file for file in files if file.number < applied]


def move(store: Store, folder: str, files: Sequence[Landed], now: datetime) -> Iterator[Landed]:
    """Move files to the cleanup folder, yielding each one that was moved (LZ-248).

    The record of the time is written first: a file that is not recorded would never be removed.
    A file that is gone, moved by an earlier run, is passed over.
    """
    if not files:
        return
    moved = _info(store, folder)
    _warn_of_those_aside(store, folder, [file for file in files if file.base in moved])
    moved |= {file.base: now for file in files}
    _write_info(store, folder, moved)
    for file in files:
        try:
            store.move(file.path, f"{folder}/{layout.CLEANUP}/{file.base}")
        except FileNotFoundError:
            continue
        yield file


def _warn_of_those_aside(store: Store, folder: str, files: Sequence[Landed]) -> None:
    """A name that was applied and put aside is here again: its new rows are not read (LZ-127)."""
    if files:
        aside = {entry.name for entry in store.list(f"{folder}/{layout.CLEANUP}").files}
        for file in files:
            if file.base in aside:
                log.warning(WRITTEN_AGAIN, path=file.path)


def discard(store: Store, files: Sequence[Landed]) -> None:
    """Remove files of cleanup folders before their time; they may be gone already (LZ-249)."""
    for file in files:
        store.delete(file.path)


def is_remnant(store: Store, folder: str) -> bool:
    """Whether nothing is left of a table folder but an empty cleanup folder, or such folders of its
    partitions: the publisher deleted it while files were moved aside (LZ-235). Files may have any
    names, but for an underscore."""
    listing = store.list(folder)
    if listing.files or not listing.folders:
        return False
    return all(_is_remnant(store, f"{folder}/{name}", name) for name in listing.folders)


def _is_remnant(store: Store, folder: str, name: str) -> bool:
    if name not in CLEANUP_FOLDERS:
        return is_partition(name) and is_remnant(store, folder)
    return all(file.name.startswith("_") for file in store.list(folder).files)


def expire(store: Store, folder: str, now: datetime, retention: timedelta = RETENTION) -> int:
    """Remove what was moved longer ago than `retention` (LZ-245, LZ-252). Returns how many.

    A file whose time nobody recorded counts from its modification. Publishers may empty the folder
    earlier (LZ-249).
    """
    return sweep(store, folder, now, retention)[0]


def sweep(store: Store, folder: str, now: datetime, retention: timedelta) -> tuple[int, datetime]:
    """As `expire`; and before when nothing more falls due of what is there."""
    location = f"{folder}/{layout.CLEANUP}"
    listed = store.list(location).files
    if not listed:
        return 0, now + retention
    moved = _info(store, folder)
    # Names without a number are told from those of others by our record of them.
    files = [file for file in listed if file.name in moved or FileName.parse(file.name)]
    times = {file.name: moved.get(file.name) or _time(file.modified) for file in files}
    old = {name for name, time in times.items() if now - time > retention}
    for name in old:
        store.delete(f"{location}/{name}")
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
        return {}  # ours to write, theirs to empty (LZ-249); without it modification times count


def _write_info(store: Store, folder: str, moved: dict[str, datetime]) -> None:
    files = [{"name": name, "movedTimeUtc": _told(time)} for name, time in sorted(moved.items())]
    path = f"{folder}/{layout.CLEANUP}/{layout.CLEANUP_INFO}"
    store.replace(path, json.dumps({"files": files}).encode())


def _told(time: datetime) -> str:
    """In whole seconds, as LZ-248 prints it, and never before the move."""
    whole = (time + timedelta(microseconds=999_999)).astimezone(UTC).replace(microsecond=0)
    return whole.replace(tzinfo=None).isoformat() + "Z"
