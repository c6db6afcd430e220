"""Cuts: positions in the log up to which the files of all tables are complete.

A cut contains a position and, for each table that changed since the previous cut, its last complete
file number. From time to time a cut is full and contains every table; older cuts are then deleted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from mirrorlake.landing import layout
from mirrorlake.model.landed import DEFAULT_STREAM, FORMAT, LaterFormat
from mirrorlake.model.table import Value
from mirrorlake.storage.store import Store, UnsafePath, read_record

FULL_EVERY = 64
_LOST = (
    "Restore it from a backup. Without one, delete it, and if capture then finds a gap, run "
    "`mirrorlake repair` to compare all tables with the source."
)
STOPPED = "stopped: {}"
"""Why it does not cover one that capture has stopped, with the code of the error."""
LOADED_AGAIN = "loaded again"
"""The reason why a cut does not cover a table that begins anew."""
_NAME = re.compile(r"([0-9]{20})\.json")


@dataclass(frozen=True, slots=True)
class Cut:
    """Everything up to `position` is in the files named here.

    tables: table name to its last complete file number (only changed tables, unless `full`).
    excluded: table name to the reason why the cut does not cover it. begun: the tables that begin
    anew, with file 1: earlier cuts name former files of them. source: the identity of the source.
    `position` is in the printed form of the source's log.
    """

    number: int
    stream: str
    position: str
    commit_time: str | None
    tables: Mapping[str, int]
    excluded: Mapping[str, str] = field(default_factory=dict)
    source: Mapping[str, str] = field(default_factory=dict)
    full: bool = False
    begun: Sequence[str] = ()

    def encode(self) -> bytes:
        record = {
            "format": FORMAT,
            "cut": self.number,
            "stream": self.stream,
            "position": self.position,
            "commit_time": self.commit_time,
            "full": self.full,
            "tables": dict(self.tables),
            "excluded": dict(self.excluded),
            "begun": list(self.begun),
            "source": dict(self.source),
        }
        return (json.dumps(record, ensure_ascii=False) + "\n").encode()

    @classmethod
    def decode(cls, content: bytes) -> Self:
        """Raises LaterFormat for a cut of a later release."""
        return cls.parse(json.loads(content))

    @classmethod
    def parse(cls, record: Mapping[str, Any]) -> Self:
        """As `decode`."""
        if record["format"] != FORMAT:
            raise LaterFormat(
                f"the cut has format {record['format']}; this release reads format {FORMAT}"
            )
        return cls(
            number=record["cut"],
            stream=record["stream"],
            position=record["position"],
            commit_time=record["commit_time"],
            tables=record["tables"],
            excluded=record["excluded"],
            source=record["source"],
            full=record["full"],
            begun=tuple(record.get("begun", ())),
        )

    def then(self, later: Cut) -> Cut:
        """The later cut, extended by what this cut contains about tables that did not change
        since."""
        if later.full:
            return later
        known = {name: n for name, n in self.tables.items() if name not in later.begun}
        return replace(later, tables={**known, **later.tables})


class Cuts:
    """The cuts of a stream: reads the newest, writes the next. There is one writer (LZ-138)."""

    def __init__(self, store: Store, zone: str, stream_id: str = DEFAULT_STREAM) -> None:
        self._store, self._zone = store, zone
        self._folder = f"{layout.stream_folder(zone, stream_id)}/{layout.CUTS}"
        self._newest: Cut | None = None
        self._reported = 0  # the number that `is_behind` has reported

    def newest(self) -> Cut | None:
        """The newest cut, with every table; None if the landing zone has no cuts."""
        numbers = self._numbers()
        if not numbers:
            return None
        known = self._newest
        if known is None or known.number not in numbers:
            known = self._last_full(numbers)
        for number in (n for n in numbers if n > known.number):
            known = known.then(self._read(number))
        self._newest = known
        return known

    def whole(self) -> Iterator[Cut]:
        """The existing cuts from the first full one, ascending, each with every table."""
        known: Cut | None = None
        for number in self._numbers():
            try:
                cut = self._read(number)
            except FileNotFoundError:
                continue  # it was deleted in the meantime, and a later one is full
            if known is not None or cut.full:
                known = known.then(cut) if known else cut
                yield known

    def is_behind(self) -> bool:
        """Whether a cut was written after the newest one that was read here; this checks one name
        only.

        It is reported once, so that another file of that name, which `newest` skips, is not
        reported forever.
        """
        following = self._newest.number + 1 if self._newest else self._reported
        if following == self._reported:
            return False
        try:
            self._store.read(self._path(following))
        except (OSError, UnsafePath):
            return False
        self._reported = following
        return True

    def write(self, cut: Cut) -> Cut:
        """Write the next cut. Returns it with every table, as `newest` does.

        Raises FileExistsError if another writer was first.
        """
        whole = self._newest.then(cut) if self._newest else replace(cut, full=True)
        full = self._newest is None or cut.number % FULL_EVERY == 0
        written = replace(whole, full=True) if full else cut
        self._store.create(self._path(cut.number), written.encode())
        self._newest = whole
        if full:
            self._prune(cut.number)
        return whole

    def begin_anew(self, tables: Collection[str]) -> None:
        """Before these tables get their first file: forget the former files that cuts name."""
        known = self.newest()
        named = [name for name in tables if known is not None and name in known.tables]
        if known is not None and named:
            self.write(
                replace(
                    known,
                    number=known.number + 1,
                    tables={},
                    excluded={**known.excluded, **dict.fromkeys(named, LOADED_AGAIN)},
                    full=False,
                    begun=tuple(named),
                )
            )

    def _prune(self, full: int) -> None:
        """Keep the last full cut before this one, for readers that are just starting from it."""
        numbers = self._numbers()
        earlier = [n for n in numbers if n < full and n % FULL_EVERY == 0]
        for number in numbers:
            if earlier and number < earlier[-1]:
                self._store.delete(self._path(number))

    def _last_full(self, numbers: list[int]) -> Cut:
        for number in reversed(numbers):
            cut = self._read(number)
            if cut.full:
                return cut
        raise ValueError(f"no full cut among {len(numbers)} cuts in {self._folder}")

    def _numbers(self) -> list[int]:
        names = (_NAME.fullmatch(file.name) for file in self._store.list(self._folder).files)
        return sorted(int(match[1]) for match in names if match)

    def _read(self, number: int) -> Cut:
        cut = Cut.parse(read_record(self._store, self._path(number), _LOST))
        return replace(
            cut,
            tables=self._printed(cut.tables),
            excluded=self._printed(cut.excluded),
            begun=tuple(self._printed(dict.fromkeys(cut.begun))),
        )

    def _printed(self, tables: Mapping[str, Value]) -> Mapping[str, Value]:
        """By the names that are printed now, of a cut that may be of an earlier release."""
        return layout.printed_keys(self._store, self._zone, tables)

    def _path(self, number: int) -> str:
        return f"{self._folder}/{number:020d}.json"
