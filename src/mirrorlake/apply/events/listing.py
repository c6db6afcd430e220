"""Finds the event files of a bucket (ST-164, ST-178, ST-179).

Minute folders are `yyyy/mm/dd/hh/mm` below the folder of an object. Those of days before the
look-back are not listed again, and their years and months, if these have nothing else, once a day.
Other folders are listed each time.

A folder whose name begins with `_` is not one of data, as for other readers, unless it is that of
an object, whose schema may have such a name: then it has folders of years.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from datetime import datetime

import structlog

from mirrorlake.apply.events.settings import EventInput
from mirrorlake.events.paths import SchemaFiles, is_schema_file
from mirrorlake.storage.store import InvalidKey, Listing, Store
from mirrorlake.storage.tree import Lister, lister_for

_WIDTHS = (4, 2, 2, 2, 2)
_DAY = 8
_PACKED = 32
"""The assumed compression ratio of gzipped JSON events."""
FOLDER_SKIPPED, FILE_SKIPPED = "event_folder_skipped", "event_file_skipped"
INVALID = "//"
_INVALID_REASON = (
    "its keys with an empty part, `.` or `..` cannot be read, nor files and folders beside them "
    "whose names begin with a blank or one of !\"#$%&'()*+,-."
)
_HIDDEN = {"_temporary", "_delta_log", "_change_data", "_spark_metadata", "_checkpoints"}
"""Folders that Spark and Delta write beside data."""
_ENDS = re.compile(r"\.(avro|jsonl?)(\.gz)?$")

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file. minute: as in `ReadFile`; schema: the path of its schema file, "" for none."""

    path: str
    etag: str
    size: int
    minute: str = ""
    schema: str = ""

    @property
    def unpacked_size(self) -> int:
        """An estimate, in bytes."""
        return self.size * (_PACKED if self.path.endswith(".gz") else 1)


class EventFiles:
    def __init__(self, store: Store, settings: EventInput) -> None:
        self.store, self._settings = store, settings
        self.invalid = dict[str, str]()
        """The folders that have keys which are no paths, each with INVALID behind its path, and
        what is not read of them."""
        self._skipped = set[str]()
        self._past = set[str]()  # folders that have only days before the horizon
        self._newest = ""  # the horizon for which they have

    def list(self, horizon: str) -> Iterator[FoundFile]:
        """All files, except those of days before the horizon, `yyyymmdd`. Raises OSError."""
        if horizon > self._newest:
            self._past.clear()
            self._newest = horizon
        yield from self._below(self.store, self._settings.path, "", horizon)

    def listed(self, lister: Lister, folder: str) -> Listing:
        """A folder without keys that are no paths, which are noted. Raises OSError."""
        try:
            return lister.list(folder)
        except InvalidKey as error:
            self.invalid[f"{folder}{INVALID}"] = _INVALID_REASON
            return error.beside()

    def _below(
        self, lister: Lister, folder: str, date: str, horizon: str
    ) -> Generator[FoundFile, None, bool]:
        """Returns whether the folder has days before the horizon, and nothing else."""
        listing = self.listed(lister, folder)
        has_files = listing.omits or any(one.size for one in listing.files)
        is_past = bool(date and listing.folders) and not has_files
        if listing.omits and f"{folder}{INVALID}" not in self.invalid:
            self._tell_omitted(folder)
        yield from self._files(folder, listing, date if moment_of(date) else "")
        for name in listing.folders:
            path = f"{folder}/{name}" if folder else name
            if name[0] == "." or name in _HIDDEN:
                continue
            if name[0] == "_" and not self._is_object(lister, path, date):
                continue
            inner = _dated(date, name)
            # Only a folder with a complete date is a day: `2019` may be an ordinary name.
            is_before = bool(inner) and inner < horizon[: min(len(inner), _DAY)]
            if is_before and (len(inner) >= _DAY or path in self._past):
                continue
            # The minutes of a day are listed together where that takes fewer requests.
            inside = lister_for(self.store, path) if len(inner) == _DAY else lister
            if (yield from self._below(inside, path, inner, horizon)) and is_before:
                self._past.add(path)
            else:
                is_past = False
        return is_past

    def _tell_omitted(self, folder: str) -> None:
        """Tell once what a folder has that cannot be read."""
        for one in self.store.unlisted(folder):
            path = f"{folder}/{one.name}" if folder else one.name
            if path not in self._skipped:
                self._skipped.add(path)
                log.warning(FILE_SKIPPED, file=path, reason=f"{one.why} is not read")

    def _is_object(self, lister: Lister, path: str, date: str) -> bool:
        """Whether a folder whose name begins with `_` is that of an object. Tells once if not."""
        if not date and any(_dated("", name) for name in self.listed(lister, path).folders):
            return True
        if path not in self._skipped:
            self._skipped.add(path)
            log.warning(
                FOLDER_SKIPPED,
                folder=path,
                reason="its name begins with an underscore, and it has no folders of years",
            )
        return False

    def _files(self, folder: str, listing: Listing, minute: str) -> Iterator[FoundFile]:
        schemas = SchemaFiles.of(file.name for file in listing.files)
        for file in listing.files:
            path = f"{folder}/{file.name}" if folder else file.name
            if not file.size or file.name[0] in "_." or is_schema_file(file.name):
                continue
            end = _ENDS.search(file.name)
            if self._settings.extensions and end and end[1] not in self._settings.extensions:
                continue
            schema = schemas.find(file.name)
            inside = f"{folder}/{schema}" if folder and schema else schema
            yield FoundFile(path, file.etag, file.size, minute, inside)


def _dated(date: str, name: str) -> str:
    """The digits of the date that a folder name continues; "" for a name that is not part of a
    date."""
    depth = {0: 0, 4: 1, 6: 2, 8: 3, 10: 4}.get(len(date), 0)
    if depth < len(_WIDTHS) and len(name) == _WIDTHS[depth] and name.isascii() and name.isdigit():
        return date + name
    return ""


def moment_of(minute: str) -> datetime | None:
    """Parse `yyyymmddhhmm`, in UTC; None if invalid."""
    try:
        return datetime.strptime(f"{minute}+0000", "%Y%m%d%H%M%z") if len(minute) == 12 else None
    except ValueError:
        return None
