"""Rules on folders and names of the landing zone (section 1 of the specification)."""

from __future__ import annotations

from mirrorlake import root
from mirrorlake.landing import layout
from mirrorlake.landing.layout import SCHEMA_SUFFIX, TableFolder
from mirrorlake.lint.finding import FindingLocation, Report, listed, shown
from mirrorlake.lint.target import Target
from mirrorlake.model.landed import FileName
from mirrorlake.storage.store import Absence, Listing

_MOST_TABLES = 1_000


def check_zone(target: Target, folders: tuple[TableFolder, ...], report: Report) -> None:
    """Check the landing zone as a whole: its path, its content, the names of its tables."""
    zone = target.zone
    if len(target.zones) > 1:
        report.add(
            "LZ-009/two-zones",
            FindingLocation(target.zones[1]),
            f"{target.zones[0]} and {target.zones[1]}",
        )
    elif zone == root.LANDING_V1:
        report.add("LZ-008/path-of-v1", FindingLocation(zone), zone)
    listing = target.store.list(zone)
    _files_of_zone(zone, listing, report)
    _unlisted(target, zone, report)
    for name in listing.folders:
        _folder(target, f"{zone}/{name}", name, report)
    _names(folders, report)
    if len(folders) > _MOST_TABLES:
        report.add("LZ-278/many-tables", FindingLocation(zone), f"{len(folders):,} tables")


def check_folder(target: Target, folder: TableFolder, report: Report) -> None:
    """Report entries of a table folder that are not listed, such as links."""
    for item in target.store.unlisted(folder.path):
        if item.name.startswith("_"):
            continue
        location = FindingLocation(f"{folder.path}/{item.name}", folder.table)
        if item.why in {Absence.LINK, Absence.LINK_OUT}:
            report.add("LZ-007/link", location, f"{item.why}: {shown(item.name)}")
        else:
            report.add("LZ-023/other-file", location, f"{item.why}: {shown(item.name)}")


def is_schema_misspelt(target: Target, folder: TableFolder) -> bool:
    """Whether the folder is intended as a schema, but counts as a table (LZ-013)."""
    name = folder.path.rpartition("/")[2]
    return name.lower().endswith(SCHEMA_SUFFIX) and any(
        looks_like_table(target.store.list(f"{folder.path}/{inner}"))
        for inner in target.store.list(folder.path).folders
        if not inner.startswith("_")
    )


def looks_like_table(listing: Listing) -> bool:
    """Whether a folder contains files that only table folders contain."""
    return any(f.name == layout.METADATA or FileName.parse(f.name) for f in listing.files)


def _stray(folder: str, listing: Listing, report: Report) -> None:
    stray = [file.name for file in listing.files if not file.name.startswith(("_", "."))]
    if stray:
        report.add(
            "LZ-025/file-outside-tables", FindingLocation(f"{folder}/{stray[0]}"), listed(stray)
        )


def _files_of_zone(zone: str, listing: Listing, report: Report) -> None:
    _stray(zone, listing, report)
    if any(file.name == layout.METADATA for file in listing.files):
        report.add(
            "LZ-021/metadata-at-wrong-level",
            FindingLocation(f"{zone}/{layout.METADATA}"),
            "it is directly in the landing zone",
        )


def _unlisted(target: Target, folder: str, report: Report) -> None:
    for item in target.store.unlisted(folder):
        if item.name.startswith("_"):
            continue
        location = FindingLocation(f"{folder}/{item.name}")
        if item.why is Absence.NAME:
            report.add("LZ-006/name-not-a-table", location, shown(item.name))
        elif item.why is not Absence.KIND:
            report.add("LZ-007/link", location, f"{item.why}: {shown(item.name)}")


def _folder(target: Target, path: str, name: str, report: Report) -> None:
    if name.startswith("_"):
        if name != "_mirrorlake" and looks_like_table(target.store.list(path)):
            report.add("LZ-021/table-with-underscore", FindingLocation(path), shown(name))
    elif name == SCHEMA_SUFFIX:
        report.add("LZ-013/schema-without-name", FindingLocation(path), name)
    elif name.endswith(SCHEMA_SUFFIX):
        _schema_folder(target, path, report)


def _schema_folder(target: Target, path: str, report: Report) -> None:
    listing = target.store.list(path)
    _unlisted(target, path, report)
    if looks_like_table(listing):
        files = [file.name for file in listing.files]
        report.add("LZ-016/schema-folder-with-files", FindingLocation(path), listed(files))
    else:
        _stray(path, listing, report)
    for name in listing.folders:
        inner = f"{path}/{name}"
        if name.startswith("_"):
            if looks_like_table(target.store.list(inner)):
                report.add("LZ-021/table-with-underscore", FindingLocation(inner), shown(name))
        elif name.endswith(SCHEMA_SUFFIX):
            report.add("LZ-016/schema-in-schema", FindingLocation(inner), shown(name))


def _names(folders: tuple[TableFolder, ...], report: Report) -> None:
    known: dict[str, TableFolder] = {}
    schemas = {folder.table.schema for folder in folders}
    for folder in folders:
        location = FindingLocation(folder.path, folder.table)
        name = str(folder.table)
        if not name.isprintable():
            report.add("LZ-006/control-character", location, shown(name))
        if (twin := known.setdefault(name.casefold(), folder)) is not folder:
            report.add(
                "LZ-006/names-alike", location, f"{shown(twin.table)} and {shown(folder.table)}"
            )
        if not folder.table.schema and folder.table.name in schemas:
            report.add(
                "LZ-019/table-beside-schema", location, f"the table and the schema {shown(name)}"
            )
