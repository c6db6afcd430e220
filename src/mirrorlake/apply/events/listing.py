"""Finds the event files of a bucket (ST-164, ST-178, ST-179).

Minute folders are `yyyy/mm/dd/hh/mm` below the folder of an object. Those of days before the
look-back are not listed again; files elsewhere are, each time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from mirrorlake.apply.events.settings import EventInput
from mirrorlake.events.paths import NameFacts, schema_file
from mirrorlake.storage.store import Listing, Store

_WIDTHS = (4, 2, 2, 2, 2)
SCHEMA_FILE = ".avsc"
_ENDS = re.compile(r"\.(avro|jsonl?)(\.gz)?$")


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file. minute: as in `ReadFile`; schema: the path of its schema file, "" for none."""

    path: str
    etag: str
    size: int
    minute: str = ""
    schema: str = ""


class EventFiles:
    """The files of a store."""

    def __init__(self, store: Store, settings: EventInput) -> None:
        self.store, self._settings = store, settings

    def list(self, horizon: str) -> Iterator[FoundFile]:
        """All files, but those of days before the horizon, `yyyymmdd`. Raises OSError."""
        yield from self._below(self._settings.path, "", horizon)

    def _below(self, folder: str, date: str, horizon: str) -> Iterator[FoundFile]:
        listing = self.store.list(folder)
        yield from self._files(folder, listing, date if len(date) == sum(_WIDTHS) else "")
        for name in listing.folders:
            if name[0] in "_.":
                continue
            inner = _dated(date, name)
            # Compared as far as both go: a month of which one day is looked into is entered.
            if not inner or inner[: len(horizon)] >= horizon[: len(inner)]:
                yield from self._below(f"{folder}/{name}" if folder else name, inner, horizon)

    def _files(self, folder: str, listing: Listing, minute: str) -> Iterator[FoundFile]:
        there = {one.name for one in listing.files}
        for one in listing.files:
            path = f"{folder}/{one.name}" if folder else one.name
            if not one.size or one.name[0] in "_." or one.name.endswith(SCHEMA_FILE):
                continue
            end = _ENDS.search(one.name)
            if self._settings.extensions and end and end[1] not in self._settings.extensions:
                continue
            key = NameFacts.of(one.name).schema_key
            schema = schema_file(key, folder) if key else ""
            is_there = bool(key) and schema.removeprefix(f"{folder}/") in there
            yield FoundFile(path, one.etag, one.size, minute, schema if is_there else "")


def _dated(date: str, name: str) -> str:
    """The digits of the date that a folder continues; none for one that has another meaning."""
    depth = {0: 0, 4: 1, 6: 2, 8: 3, 10: 4}.get(len(date), 0)
    if depth < len(_WIDTHS) and len(name) == _WIDTHS[depth] and name.isascii() and name.isdigit():
        return date + name
    return ""
