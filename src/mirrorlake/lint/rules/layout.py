"""Rules on folders and names of the landing zone (section 1 of the specification)."""

from __future__ import annotations

from mirrorlake import root
from mirrorlake.landing import layout
from mirrorlake.landing.layout import SCHEMA_SUFFIX, TableFolder
from mirrorlake.lint.finding import (
    FindingLocation,
    Report,
    Rule,
    Severity,
    Version,
    listed,
    shown,
)
from mirrorlake.lint.rules import sequence as sequence_rules
from mirrorlake.lint.target import Target
from mirrorlake.model.landed import FileName
from mirrorlake.storage.store import Absence, Listing

ERROR, WARNING, NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE

NAME = Rule(
    "LZ-006",
    "name-not-a-table",
    "The name of a folder cannot be the name of a table",
    ERROR,
    "a name in UTF-8 without a backslash",
    "The name of a table folder is the name of its table. A name that is not valid text, or that "
    "contains a backslash, cannot be part of a path on every storage: the folder is not read.",
    "Encode the characters that a folder name cannot contain, and store the true name elsewhere.",
    "Files/LandingZone/sales\\orders/",
)
ALIKE = Rule(
    "LZ-006",
    "names-alike",
    "The names of two tables differ only in case",
    WARNING,
    "table names that differ in more than case",
    "The name of a table folder is the name of its table. Catalogs and several storages compare "
    "names without regard to case, so they treat the two tables as one.",
    "Rename one of the folders; the table is then loaded again under its new name.",
    "Files/LandingZone/Orders/\nFiles/LandingZone/orders/",
)
CONTROL = Rule(
    "LZ-006",
    "control-character",
    "The name of a folder contains a control character",
    WARNING,
    "a name of printable characters",
    "The name of a table folder is the name of its table, and a name with a line break or a tab "
    "is hard to write in a query.",
    "Rename the folder; the table is then loaded again under its new name.",
    "Files/LandingZone/or<tab>ders/",
)
LINK = Rule(
    "LZ-007",
    "link",
    "There is a link in the place of a file or folder",
    ERROR,
    "a file or folder, not a link",
    "A table is a folder in the landing zone. Links are never followed, so that nothing outside "
    "the root can be read through them: the target of the link is not mirrored.",
    "Put the file or folder itself into the landing zone.",
    "Files/LandingZone/orders -> /data/orders",
)
V1_PATH = Rule(
    "LZ-008",
    "path-of-v1",
    "The landing zone has the path of the v1 page",
    WARNING,
    f"the landing zone at {root.LANDING}",
    "The v1 page shows `LandingZone` directly below the root, the v2 page `Files/LandingZone`. "
    "Our engine reads both; the original service reads only the second.",
    "Write to `Files/LandingZone`, or lint with `--version v1`.",
    "shop/LandingZone/orders/",
    only=Version.V2,
)
TWO_ZONES = Rule(
    "LZ-009",
    "two-zones",
    "The root has two landing zones",
    WARNING,
    "one landing zone",
    "`Files/LandingZone` and `LandingZone` both exist. The first is read, the second is ignored.",
    "Move the content of `LandingZone` to `Files/LandingZone`, and delete it.",
    "shop/Files/LandingZone/\nshop/LandingZone/",
)
NO_SCHEMA_NAME = Rule(
    "LZ-013",
    "schema-without-name",
    "A schema folder has no schema name",
    ERROR,
    "a folder <schema>.schema",
    "A schema folder is named `<schema>.schema`. A folder named only `.schema` has no schema "
    "name: its tables are not read.",
    "Rename the folder.",
    "Files/LandingZone/.schema/orders/",
)
SCHEMA_CASE = Rule(
    "LZ-013",
    "schema-suffix-case",
    "The suffix of a schema folder is not in lower case",
    ERROR,
    "a folder <schema>.schema",
    "A schema folder is named `<schema>.schema`, in lower case. With another spelling the folder "
    "is treated as a table, and the tables in it are not read.",
    "Rename the folder so that it ends in `.schema`.",
    "Files/LandingZone/Sales.SCHEMA/orders/",
)
SCHEMA_AS_TABLE = Rule(
    "LZ-016",
    "schema-folder-with-files",
    "A schema folder contains files of a table",
    ERROR,
    "table folders in the schema folder, and files in those",
    "A folder whose name ends in `.schema` contains tables and is never a table itself: its "
    "files are not read.",
    "Move the files into a table folder of the schema. If the folder is a table whose name ends "
    "in `.schema`, rename the table.",
    "Files/LandingZone/Sales.schema/_metadata.json",
)
SCHEMA_IN_SCHEMA = Rule(
    "LZ-016",
    "schema-in-schema",
    "A schema folder lies in another one",
    ERROR,
    "table folders in the schema folder",
    "A folder whose name ends in `.schema` is never a table, and schemas are not nested: nothing "
    "in the inner folder is read.",
    "Move the inner folder to the landing zone.",
    "Files/LandingZone/Sales.schema/North.schema/orders/",
)
NESTED = Rule(
    "LZ-019",
    "table-beside-schema",
    "A table outside any schema has the same name as a schema",
    ERROR,
    "a table name that is not also the name of a schema",
    "Without a default schema, table `X` is written to `Tables/X` and table `T` of schema `X` to "
    "`Tables/X/T`, one inside the other: a vacuum of the first would delete the second, so "
    "neither is applied.",
    "Rename one of them, move the table into a schema folder, or set `default_schema`.",
    "Files/LandingZone/sales/\nFiles/LandingZone/sales.schema/orders/",
)
UNDERSCORE = Rule(
    "LZ-021",
    "table-with-underscore",
    "The name of a folder that looks like a table begins with an underscore",
    WARNING,
    "a table name without a leading underscore",
    "Files and folders whose names begin with an underscore are ignored. This folder contains a "
    "`_metadata.json` or data files, which are not read.",
    "Rename the folder, unless it is a staging area.",
    "Files/LandingZone/_orders/_metadata.json",
)
METADATA_LEVEL = Rule(
    "LZ-021",
    "metadata-at-wrong-level",
    "_metadata.json lies outside a table folder",
    WARNING,
    "_metadata.json in the folder of its table",
    "`_metadata.json` describes one table and is read only in table folders; elsewhere it is "
    "ignored.",
    "Move it into the table folder that it describes.",
    "Files/LandingZone/_metadata.json",
)
STRAY = Rule(
    "LZ-025",
    "file-outside-tables",
    "A file lies outside any table folder",
    WARNING,
    "data files in the folder of their table",
    "Directly in the landing zone only `_partnerEvents.json` is read, and directly in a schema "
    "folder nothing; every other file there is ignored.",
    "Move the file into the folder of its table.",
    "Files/LandingZone/00000000000000000001.parquet",
)
TABLES = Rule(
    "LZ-278",
    "many-tables",
    "The landing zone has more tables than the original supports",
    None,
    "at most 1,000 tables",
    "The original is limited to 1,000 tables per mirrored database and ignores the others. Our "
    "engine has no limit unless `mirror.max_tables` sets one.",
    "Spread the tables over several mirrored databases.",
    "Files/LandingZone/table_0001/ … table_1001/",
    strict=WARNING,
)

RULES = (
    NAME, ALIKE, CONTROL, LINK, V1_PATH, TWO_ZONES, NO_SCHEMA_NAME, SCHEMA_CASE, SCHEMA_AS_TABLE,
    SCHEMA_IN_SCHEMA, NESTED, UNDERSCORE, METADATA_LEVEL, STRAY, TABLES,
)  # fmt: skip

_MOST_TABLES = 1_000


def check_zone(target: Target, folders: tuple[TableFolder, ...], report: Report) -> None:
    """The zone as a whole: its place, what lies in it, the names of its tables."""
    zone = target.zone
    if len(target.zones) > 1:
        report.add(
            TWO_ZONES, FindingLocation(target.zones[1]), f"{target.zones[0]} and {target.zones[1]}"
        )
    elif zone == root.LANDING_V1:
        report.add(V1_PATH, FindingLocation(zone), zone)
    listing = target.store.list(zone)
    _files_of_zone(zone, listing, report)
    _unlisted(target, zone, report)
    for name in listing.folders:
        _folder(target, f"{zone}/{name}", name, report)
    _names(folders, report)
    if len(folders) > _MOST_TABLES:
        report.add(TABLES, FindingLocation(zone), f"{len(folders):,} tables")


def check_folder(target: Target, folder: TableFolder, report: Report) -> None:
    """What a table folder holds that no listing shows."""
    for item in target.store.unlisted(folder.path):
        if item.name.startswith("_"):
            continue
        location = FindingLocation(f"{folder.path}/{item.name}", folder.table)
        if item.why in {Absence.LINK, Absence.LINK_OUT}:
            report.add(LINK, location, f"{item.why}: {shown(item.name)}")
        else:
            report.add(sequence_rules.OTHER, location, f"{item.why}: {shown(item.name)}")


def is_schema_misspelt(target: Target, folder: TableFolder) -> bool:
    """Whether the folder is meant as a schema and counts as a table (SCHEMA_CASE)."""
    name = folder.path.rpartition("/")[2]
    return name.lower().endswith(SCHEMA_SUFFIX) and any(
        looks_like_table(target.store.list(f"{folder.path}/{inner}"))
        for inner in target.store.list(folder.path).folders
        if not inner.startswith("_")
    )


def looks_like_table(listing: Listing) -> bool:
    """Whether a folder holds what only table folders hold."""
    return any(f.name == layout.METADATA or FileName.parse(f.name) for f in listing.files)


def _stray(folder: str, listing: Listing, report: Report) -> None:
    stray = [file.name for file in listing.files if not file.name.startswith(("_", "."))]
    if stray:
        report.add(STRAY, FindingLocation(f"{folder}/{stray[0]}"), listed(stray))


def _files_of_zone(zone: str, listing: Listing, report: Report) -> None:
    _stray(zone, listing, report)
    if any(file.name == layout.METADATA for file in listing.files):
        report.add(
            METADATA_LEVEL,
            FindingLocation(f"{zone}/{layout.METADATA}"),
            "it lies directly in the landing zone",
        )


def _unlisted(target: Target, folder: str, report: Report) -> None:
    for item in target.store.unlisted(folder):
        if item.name.startswith("_"):
            continue
        location = FindingLocation(f"{folder}/{item.name}")
        if item.why is Absence.NAME:
            report.add(NAME, location, shown(item.name))
        elif item.why is not Absence.KIND:
            report.add(LINK, location, f"{item.why}: {shown(item.name)}")


def _folder(target: Target, path: str, name: str, report: Report) -> None:
    if name.startswith("_"):
        if name != "_mirrorlake" and looks_like_table(target.store.list(path)):
            report.add(UNDERSCORE, FindingLocation(path), shown(name))
    elif name == SCHEMA_SUFFIX:
        report.add(NO_SCHEMA_NAME, FindingLocation(path), name)
    elif name.endswith(SCHEMA_SUFFIX):
        _schema_folder(target, path, report)


def _schema_folder(target: Target, path: str, report: Report) -> None:
    listing = target.store.list(path)
    _unlisted(target, path, report)
    if looks_like_table(listing):
        files = [file.name for file in listing.files]
        report.add(SCHEMA_AS_TABLE, FindingLocation(path), listed(files))
    else:
        _stray(path, listing, report)
    for name in listing.folders:
        inner = f"{path}/{name}"
        if name.startswith("_"):
            if looks_like_table(target.store.list(inner)):
                report.add(UNDERSCORE, FindingLocation(inner), shown(name))
        elif name.endswith(SCHEMA_SUFFIX):
            report.add(SCHEMA_IN_SCHEMA, FindingLocation(inner), shown(name))


def _names(folders: tuple[TableFolder, ...], report: Report) -> None:
    known: dict[str, TableFolder] = {}
    schemas = {folder.table.schema for folder in folders}
    for folder in folders:
        location = FindingLocation(folder.path, folder.table)
        name = str(folder.table)
        if not name.isprintable():
            report.add(CONTROL, location, shown(name))
        if (twin := known.setdefault(name.casefold(), folder)) is not folder:
            report.add(ALIKE, location, f"{shown(twin.table)} and {shown(folder.table)}")
        if not folder.table.schema and folder.table.name in schemas:
            report.add(NESTED, location, f"the table and the schema {shown(name)}")
