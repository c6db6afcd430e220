"""A table folder, for the rules."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from mirrorlake.landing import layout
from mirrorlake.landing.layout import TableFolder
from mirrorlake.landing.metadata import BY_TIME
from mirrorlake.landing.scan import CLEANUP_FOLDERS, Landed, data_files
from mirrorlake.landing.text.format import TextFormat
from mirrorlake.lint.catalog import Profile
from mirrorlake.lint.finding import FindingLocation
from mirrorlake.lint.rules.metadata import Described
from mirrorlake.model.landed import FileName
from mirrorlake.model.table import Schema
from mirrorlake.storage.store import Entry, Listing, Store

PARQUET = "parquet"


@dataclass(frozen=True)
class TableView:
    """A table folder: its files, its metadata, and its processed files.

    moved: listings of its cleanup folders, by path; files: its data files, in the order of their
    application.
    """

    folder: TableFolder
    listing: Listing
    described: Described
    moved: dict[str, Listing]

    @cached_property
    def extension(self) -> str:
        """The extension of text files, without the leading dot and in lower case (LZ-158,
        LZ-189)."""
        value = self.described.record.get("FileExtension") if self.described.record else None
        return value.lower().removeprefix(".") if isinstance(value, str) and value else "csv"

    @property
    def text(self) -> TextFormat:
        """The format of text files, as far as it is known."""
        found = self.described.metadata
        return (found.text if found else None) or TextFormat(extension=self.extension)

    @property
    def is_timed(self) -> bool:
        """Whether the table is in timestamp mode (LZ-122)."""
        found = self.described.metadata
        return found is not None and found.detection == BY_TIME

    def is_partitioned(self, profile: Profile) -> bool:
        """Whether each partition folder has its own sequence (LZ-059)."""
        found = self.described.metadata
        return bool(profile.partitions and found and found.partitioned and not self.is_timed)

    @cached_property
    def files(self) -> tuple[LintedFile, ...]:
        if self.is_timed:
            timed = [entry for entry in self.listing.files if self.is_data(entry.name)]
            ordered = sorted(timed, key=lambda entry: (entry.modified, entry.name))
            return tuple(LintedFile.of(self.folder.path, entry) for entry in ordered)
        landed = data_files(self.folder.path, self.listing, self.text)
        return tuple(LintedFile.numbered(file) for file in landed)

    def is_data(self, name: str) -> bool:
        """Whether a name has the extension of a data file."""
        text = self.extension
        endings = (f".{PARQUET}", f".{text}", f".{text}.gz", f".{text}.zst")
        return not name.startswith("_") and name.lower().endswith(endings)

    def at(self, name: str) -> FindingLocation:
        return FindingLocation(f"{self.folder.path}/{name}", self.folder.table)

    @property
    def location(self) -> FindingLocation:
        return FindingLocation(self.folder.path, self.folder.table)


@dataclass(frozen=True, slots=True)
class LintedFile:
    """A data file. number: None in timestamp mode."""

    path: str
    name: str
    size: int
    modified: float
    number: int | None

    @classmethod
    def of(cls, folder: str, entry: Entry) -> LintedFile:
        return cls(f"{folder}/{entry.name}", entry.name, entry.size, entry.modified, None)

    @classmethod
    def numbered(cls, file: Landed) -> LintedFile:
        return cls(file.path, file.path.rpartition("/")[2], file.size, file.modified, file.number)

    @property
    def is_parquet(self) -> bool:
        """Whether it is Parquet, by its extension; all other files are text (LZ-158)."""
        return self.name.lower().endswith(f".{PARQUET}")


@dataclass(frozen=True, slots=True)
class Seen:
    """The facts about a data file that the engine knows before it reads rows.

    schema: the columns of its rows in the table; rows: None if unknown; names: the data columns of
    the file.
    """

    file: LintedFile
    schema: Schema
    has_marker: bool
    rows: int | None
    names: tuple[str, ...]


def cleanup_listings(store: Store, folder: str, listing: Listing) -> dict[str, Listing]:
    """The cleanup folders of a table that exist (LZ-244)."""
    names = [name for name in CLEANUP_FOLDERS if name in listing.folders]
    return {f"{folder}/{name}": store.list(f"{folder}/{name}") for name in names}


def moved_numbers(view: TableView) -> set[int]:
    """The numbers of processed files that still exist."""
    return {
        name.number
        for listing in view.moved.values()
        for entry in listing.files
        if (name := FileName.parse(entry.name))
    }


def has_metadata(listing: Listing) -> bool:
    return any(entry.name == layout.METADATA for entry in listing.files)
