"""The current content of the landing zone: tables, their metadata, their files.

A scan lists folders and reads what is new: `_metadata.json` if it changed (LZ-055), the footer of a
file once. It changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import BinaryIO

import structlog

from mirrorlake import root
from mirrorlake.errors import BadFile, DuplicateNumber, TableError, printable
from mirrorlake.landing import layout, metadata, partner_events
from mirrorlake.landing import text as delimited
from mirrorlake.landing.layout import TableFolder
from mirrorlake.landing.metadata import BY_TIME, IN_PARTITIONS, SEQUENTIAL, Metadata
from mirrorlake.landing.parquet import reader as parquet
from mirrorlake.landing.partitions import partitions
from mirrorlake.landing.partner_events import PartnerEvents
from mirrorlake.landing.text.format import TextFormat
from mirrorlake.model.landed import FileName, FreeName, PartName
from mirrorlake.model.table import TableId
from mirrorlake.storage.store import Entry, Listing, Store
from mirrorlake.storage.tree import ListedTree, Lister, lister_for

log = structlog.get_logger()

TWO_ZONES = "two_landing_zones"
UNKNOWN_MEMBERS = "unknown_metadata_members"
MARKER_NOT_LAST = "marker_column_not_last"
WITHOUT_EFFECT = "metadata_members_without_effect"
LENIENT = "metadata_read_leniently"
UNDECLARED = "undeclared_columns_ignored"
BAD_PARTNER = "bad_partner_events"

CLEANUP_FOLDERS = (layout.CLEANUP, "_ProcessedFiles")
"""Both names are used (LZ-244, LZ-248); ours is the first."""

ANOTHER_ZONE = 100
"""Number of scans of an object store, one of which checks for a second landing zone."""

_PARQUET = "parquet"

Fingerprint = tuple[str, TextFormat | None]


@dataclass(frozen=True, slots=True)
class Landed:
    """A data file in a table folder, or in its cleanup folder.

    folder: its path below the root; text: the format of a delimited-text file, None for Parquet.
    There may be millions of these objects, so nothing is stored twice.
    """

    name: FileName | FreeName | PartName
    folder: str
    size: int
    modified: float
    etag: str
    text: TextFormat | None = None

    @property
    def fingerprint(self) -> Fingerprint:
        """Changes if the file is written again; for delimited text also if its format changes."""
        return self.etag, self.text

    @property
    def number(self) -> int:
        """The number of a file in sequential mode; in timestamp mode a file has none."""
        assert not isinstance(self.name, FreeName)
        return self.name.number

    @property
    def base(self) -> str:
        """The name without folders."""
        return str(self.name.name if isinstance(self.name, PartName) else self.name)

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.base}"


@dataclass(frozen=True, slots=True)
class TableScan:
    """The current state of a table folder.

    files: ascending by number; in timestamp mode by (`LastModified`, path); with partitions by
        partition folder and number.
    error: why the table cannot be read at all.
    moved: lists the files in its cleanup folders.
    described: the entry of `_metadata.json`, if it exists.
    partitions: the folders of files below the table folder, if each has a sequence (LZ-059).
    has_cleanup: whether a cleanup folder exists, ours or another program's.
    others: if there is no data file, the first name that is not that of a data file (LZ-023), and
        the number of such names.
    not_a_file: if there is no file at all, the first folder or link with the name of a data file,
        as text for a message.
    """

    table: TableId
    folder: TableFolder
    metadata: Metadata | None
    files: tuple[Landed, ...]
    error: TableError | None
    moved: Callable[[], tuple[Landed, ...]]
    described: Entry | None = None
    partitions: tuple[str, ...] = ()
    has_cleanup: bool = False
    others: tuple[str, int] = ("", 0)
    not_a_file: str = ""

    @property
    def is_undescribed_text(self) -> bool:
        """Delimited text is not read before `_metadata.json` describes it (LZ-042)."""
        return self.metadata is None and any(file.text is not None for file in self.files)

    @property
    def detection(self) -> str:
        """How new files are detected (LZ-047)."""
        return IN_PARTITIONS if self.partitions else _detection(self.metadata)


class Scanner:
    """Scans a landing zone repeatedly, and caches what cannot have changed."""

    def __init__(
        self, store: Store, *, strict_text: bool = False, partitions: bool = False
    ) -> None:
        self._store, self._strict_text, self._partitions = store, strict_text, partitions
        self._metadata: dict[str, tuple[Entry, Metadata | TableError]] = {}
        self._inspected: dict[str, tuple[Fingerprint, parquet.Inspected]] = {}
        self._undeclared: set[tuple[TableId, tuple[str, ...]]] = set()
        self._warned = False
        self._misplaced: set[TableId] = set()
        self._partner: PartnerEvents | None = None
        self._scans = 0

    def zone(self) -> str:
        """The folder of the landing zone. Warns once if there are two (LZ-009)."""
        zones = layout.landing_zones(self._store)
        if len(zones) > 1 and not self._warned:
            log.warning(TWO_ZONES, used=zones[0], ignored=zones[1])
            self._warned = True
        return zones[0] if zones else root.LANDING

    def scan(self) -> list[TableScan]:
        """All tables, in order. If several folders have the same table name in their metadata, as
        copies of a folder do, each table is named after its folder."""
        if self._partner is None:
            self.partner()
        zone, seen = self._list_zone()
        found = [self._scan_folder(f, seen) for f in layout.table_folders(seen, zone)]
        claimed = Counter(scan.table for scan in found)
        return [
            scan if claimed[scan.table] == 1 else replace(scan, table=scan.folder.table)
            for scan in found
        ]

    def scan_table(self, folder: TableFolder) -> TableScan:
        """One table, without listing the others."""
        return self._scan_folder(folder, lister_for(self._store, folder.path))

    def _list_zone(self) -> tuple[str, Lister]:
        """The landing zone, and a lister of its folders.

        If a whole landing zone is listed at once, a non-empty one with `Files` is used; whether
        there is a second landing zone is then checked only from time to time.
        """
        self._scans += 1
        if self._scans % ANOTHER_ZONE != 1:
            seen = lister_for(self._store, root.LANDING)
            if isinstance(seen, ListedTree) and seen.list(root.LANDING).folders:
                return root.LANDING, seen
        zone = self.zone()
        return zone, lister_for(self._store, zone)

    def partner(self) -> PartnerEvents:
        """The content of `_partnerEvents.json`; a file that cannot be read causes one warning
        (LZ-067)."""
        found = partner_events.read(self._store, self.zone())
        if found.problem and found != self._partner:
            log.warning(BAD_PARTNER, file=layout.PARTNER, problem=found.problem)
        self._partner = found
        return found

    def inspect(self, table: TableId, file: Landed) -> parquet.Inspected:
        """The footer of a data file, or the header of delimited text (LZ-158). Raises TableError.

        Warns once per table if the marker is not the last column (LZ-074).
        """
        known = self._inspected.get(file.path)
        if known is None or known[0] != file.fingerprint:
            try:
                with self._store.open(file.path) as handle:
                    found = _inspected(handle, table, file)
            except OSError as error:
                raise BadFile(
                    f"the file cannot be opened: {error}",
                    table=str(table),
                    file=str(file.name),
                    hint="It is retried while the file exists.",
                ) from error
            known = self._inspected[file.path] = (file.fingerprint, found)
            if not found.marker_last and table not in self._misplaced:
                log.warning(MARKER_NOT_LAST, table=str(table), file=str(file.name))
                self._misplaced.add(table)
            self._warn_undeclared(table, file, found.ignored)
        return known[1]

    def _warn_undeclared(self, table: TableId, file: Landed, columns: tuple[str, ...]) -> None:
        """Warn once per table and set of columns (LZ-193)."""
        if columns and (table, columns) not in self._undeclared:
            self._undeclared.add((table, columns))
            log.warning(UNDECLARED, table=str(table), file=str(file.name), columns=list(columns))

    def forget(self, path: str) -> None:
        """Remove a deleted file from the cache."""
        self._inspected.pop(path, None)

    def _scan_folder(self, folder: TableFolder, seen: Lister) -> TableScan:
        listing = Listing((), ())
        found: Metadata | TableError | None
        try:
            listing = seen.list(folder.path)
            found = self._read_metadata(folder, listing)
        except OSError as unreadable:
            found = TableError(
                f"its folder cannot be read: {unreadable}",
                table=str(folder.table),
                hint="Grant this process read access. It is retried.",
            )
        error = found if isinstance(found, TableError) else None
        described = found if isinstance(found, Metadata) else None
        table, text = folder.table, TextFormat()
        if described and described.ours:
            schema = described.ours.source.get("schema", folder.table.schema)
            table = TableId(str(schema), described.ours.table)
        if described and described.text:
            text = described.text
        text = replace(text, strict=self._strict_text)
        if described and self._partitions and _is_partitioned(described):
            return self._in_partitions(folder, table, described, text, listing, seen)
        detection = _detection(described)
        entry, has_cleanup = _metadata_entry(listing), _has_cleanup(listing)
        entries, folders = list(listing.files), listing.folders
        del listing  # a listing of a million files takes as much memory as its result
        visible = sum(not entry.name.startswith(("_", ".")) for entry in entries)
        first = next((e.name for e in entries if not e.name.startswith(("_", "."))), "")
        files = _files(folder.path, entries, text, detection)
        return TableScan(
            table=table,
            folder=folder,
            metadata=described,
            files=files,
            error=error or _refusal(table, described, files),
            moved=lambda: self._moved(folder, text, detection),
            described=entry,
            has_cleanup=has_cleanup,
            # In a folder with data files, the other names are not needed.
            others=("", 0) if files else (first, visible),
            not_a_file=""
            if files or visible or error
            else self._not_a_file(folder.path, folders, text, detection),
        )

    def _not_a_file(
        self, folder: str, folders: Sequence[str], text: TextFormat, detection: str
    ) -> str:
        """The first entry of a folder that has the name of a data file but is not a file, as text
        for a message."""
        known = _extensions(text)
        kinds = [(name, "a folder") for name in folders]
        kinds += [(item.name, str(item.why)) for item in self._store.unlisted(folder)]
        named = ((name, why) for name, why in kinds if _data_name(name, known, detection))
        return next((f"{printable(name)} is {why}" for name, why in named), "")

    def _in_partitions(
        self,
        folder: TableFolder,
        table: TableId,
        described: Metadata,
        text: TextFormat,
        listing: Listing,
        seen: Lister,
    ) -> TableScan:
        """A table folder with a sequence in each partition folder (LZ-059)."""
        found = dict(partitions(seen, folder.path, listing))
        files = {
            part: _parted(f"{folder.path}/{part}".rstrip("/"), part, inner, text)
            for part, inner in found.items()
        }
        refused = (_refusal(table, None, group) for group in files.values())
        return TableScan(
            table=table,
            folder=folder,
            metadata=described,
            files=tuple(file for group in files.values() for file in group),
            error=next((error for error in refused if error), None),
            moved=lambda: self._moved_in(folder, found, text),
            described=_metadata_entry(listing),
            partitions=tuple(found),
            has_cleanup=any(map(_has_cleanup, found.values())),
        )

    def _moved_in(
        self, folder: TableFolder, found: Mapping[str, Listing], text: TextFormat
    ) -> tuple[Landed, ...]:
        moved: list[Landed] = []
        for part, listing in found.items():
            for name in CLEANUP_FOLDERS:
                if name in listing.folders:
                    location = "/".join(filter(None, [folder.path, part, name]))
                    moved += _parted(location, part, self._store.list(location), text)
        return tuple(moved)

    def _read_metadata(self, folder: TableFolder, listing: Listing) -> Metadata | TableError | None:
        entry = _metadata_entry(listing)
        if entry is None:
            return None
        known = self._metadata.get(folder.path)
        if known is None or known[0] != entry:  # another size, time or ETag (LZ-054, LZ-055)
            parsed: Metadata | TableError
            try:
                content = self._store.read(f"{folder.path}/{layout.METADATA}")
            except FileNotFoundError:
                return None  # deleted since it was listed
            try:
                parsed = metadata.decode(content, table=str(folder.table), file=layout.METADATA)
                if known is None or known[1] != parsed:  # reported once (LZ-051)
                    _warn_members(folder, parsed, self._partitions)
            except TableError as error:
                parsed = error
            known = self._metadata[folder.path] = (entry, parsed)
        return known[1]

    def _moved(self, folder: TableFolder, text: TextFormat, detection: str) -> tuple[Landed, ...]:
        locations = [f"{folder.path}/{name}" for name in CLEANUP_FOLDERS]
        found = [
            file
            for location in locations
            for file in data_files(location, self._store.list(location), text, detection)
        ]
        return tuple(sorted(found, key=order))


def _metadata_entry(listing: Listing) -> Entry | None:
    return next((f for f in listing.files if f.name == layout.METADATA), None)


def _has_cleanup(listing: Listing) -> bool:
    return any(name in listing.folders for name in CLEANUP_FOLDERS)


def _is_partitioned(described: Metadata) -> bool:
    """Whether each partition folder has its own sequence. Files in timestamp mode have none, and
    the files of our own capture have a single one."""
    return described.partitioned and described.detection == SEQUENTIAL and not described.ours


def _warn_members(folder: TableFolder, found: Metadata, partitions: bool) -> None:
    """Warn about members of `_metadata.json` that have no effect or should be written
    differently."""
    table = str(folder.table)
    if found.unknown:
        log.warning(UNKNOWN_MEMBERS, table=table, members=list(found.unknown))
    is_ignored = found.partitioned and not (partitions and _is_partitioned(found))
    idle = ["ConditionalUpdateColumn"] if found.conditional is not None else []
    if idle := idle + (["isPartitionEnabled"] if is_ignored else []):
        log.warning(WITHOUT_EFFECT, table=table, members=idle)
    if found.notes:
        log.warning(LENIENT, table=table, tolerated=[str(note) for note in found.notes])


def _inspected(handle: BinaryIO, table: TableId, file: Landed) -> parquet.Inspected:
    named = {"table": str(table), "file": str(file.name)}
    if file.text is None:
        return parquet.inspect(handle, file.size, **named)
    return delimited.inspect(handle, file.size, file.text, **named)


def data_files(
    folder: str,
    listing: Listing,
    text: TextFormat | None = None,
    detection: str = SEQUENTIAL,
) -> tuple[Landed, ...]:
    """The data files of a listing, in the order of the detection (LZ-116, LZ-125); every other name
    is ignored (LZ-021, LZ-023).

    text: the format of files that are not Parquet (LZ-158), which may be compressed (LZ-209).
    """
    return _files(folder, list(listing.files), text or TextFormat(), detection)


def _files(
    folder: str, entries: list[Entry], form: TextFormat, detection: str
) -> tuple[Landed, ...]:
    """See `data_files`. Empties `entries`, so that the two lists are never both complete in
    memory."""
    known = _extensions(form)
    entries.reverse()
    found: list[Landed] = []
    while entries:
        entry = entries.pop()
        if name := _data_name(entry.name, known, detection):
            found.append(_landed(folder, entry, name, form))
    if detection == BY_TIME:
        found.sort(key=order)
    else:  # names are listed in order, which is that of their numbers
        found.sort(key=lambda file: file.number)
    return tuple(found)


def _extensions(form: TextFormat) -> tuple[str, ...]:
    """The extensions of data files, in lower case."""
    return (_PARQUET, form.extension, f"{form.extension}.gz", f"{form.extension}.zst")


def _landed(folder: str, entry: Entry, name: FileName | FreeName, form: TextFormat) -> Landed:
    text = None if name.extension.lower() == _PARQUET else form
    return Landed(name, folder, entry.size, entry.modified, entry.etag, text)


def _parted(location: str, part: str, listing: Listing, text: TextFormat) -> tuple[Landed, ...]:
    """The data files of the partition folder `part`, or of its cleanup folder, by number.

    location: the folder that was listed.
    """
    found = data_files(location, listing, text)
    return tuple(
        replace(file, name=PartName(part, file.name))
        for file in found
        if isinstance(file.name, FileName)
    )


def _data_name(
    text: str, extensions: tuple[str, ...], detection: str
) -> FileName | FreeName | None:
    if detection == BY_TIME:
        return FreeName.parse(text, extensions)
    name = FileName.parse(text)
    return name if name and name.extension.lower() in extensions else None


def order(file: Landed) -> tuple[float, str]:
    """The sort key of a file among those of its table, in any folder (LZ-116, LZ-125).

    Files in several partitions are sorted by modification time and name.
    """
    in_sequence = isinstance(file.name, FileName)
    return (file.number if in_sequence else file.modified, str(file.name))


def _detection(described: Metadata | None) -> str:
    return described.detection if described else SEQUENTIAL


def _refusal(
    table: TableId, described: Metadata | None, files: tuple[Landed, ...]
) -> TableError | None:
    if _detection(described) == BY_TIME:
        return None
    if files and files[0].number == 0:
        # If it were treated as applied, it would be moved and its rows lost (LZ-251).
        return BadFile(
            "its number is 0, but numbers begin at 1 (LZ-112)",
            table=str(table),
            file=str(files[0].name),
            hint="Number the files from 1.",
        )
    for earlier, later in pairwise(files):
        if earlier.number == later.number:
            return DuplicateNumber(
                f"{earlier.name} and {later.name} have the same number",
                table=str(table),
                file=str(later.name),
                hint="Delete the one that does not belong there.",
            )
    return None
