"""The target of `mirrorlake lint`: a root, a landing zone, a schema or a table folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath

from mirrorlake.errors import UsageError
from mirrorlake.landing import layout
from mirrorlake.landing.layout import SCHEMA_SUFFIX, TableFolder
from mirrorlake.model.landed import FileName
from mirrorlake.model.table import TableId
from mirrorlake.root import LANDING, LANDING_V1
from mirrorlake.storage.local import check_folder
from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.store import Store
from mirrorlake.storage.urls import is_url, open_store, split

_LANDING_FOLDER = "LandingZone"


@dataclass(frozen=True, slots=True)
class Target:
    """A store, and the part of it to check.

    root: of the store, a folder or a URL; zones: the existing landing zones, the one that is used
    first; folders: the tables, None for all tables of the landing zone.
    """

    store: Store
    root: Path | str
    zones: tuple[str, ...]
    folders: tuple[TableFolder, ...] | None = None

    @property
    def zone(self) -> str:
        return self.zones[0]

    def tables(self) -> tuple[TableFolder, ...]:
        if self.folders is not None:
            return self.folders
        return tuple(layout.table_folders(self.store, self.zone))


def of_location(location: str | Path, options: ObjectOptions | None = None) -> Target:
    """The target at a path or a URL. Raises UsageError if there is no part of a landing zone."""
    if not is_url(location):
        return of_path(Path(location))
    bucket, path = split(str(location))
    base = _Base(bucket, options)
    listing = base.store(PurePosixPath(path)).list("")
    if not listing.files and not listing.folders:
        raise UsageError("nothing was found", where=str(location), hint=_HINT)
    return _found(base, PurePosixPath(path))


def of_path(path: Path) -> Target:
    """The target at a local path. Raises UsageError if there is no part of a landing zone."""
    check_folder(path.absolute())
    path = path.resolve()
    if not path.is_dir():
        raise UsageError("the folder does not exist", where=str(path), hint=_HINT)
    return _found(_Base(), path)


_HINT = (
    "Name the folder that contains Files/LandingZone, the landing zone itself, or a table folder."
)


@dataclass(frozen=True, slots=True)
class _Base:
    """The root of paths: the URL of a bucket, or "" for this machine."""

    bucket: str = ""
    options: ObjectOptions | None = None

    def location(self, path: PurePath) -> Path | str:
        if not self.bucket:
            return Path(path)
        return f"{self.bucket}/{path.as_posix()}" if path.name else self.bucket

    def store(self, path: PurePath) -> Store:
        return open_store(self.location(path), self.options)

    def target(
        self, root: PurePath, zone: str, folders: tuple[TableFolder, ...] | None = None
    ) -> Target:
        return Target(self.store(root), self.location(root), (zone,), folders)


def _found(base: _Base, path: PurePath) -> Target:
    zones = layout.landing_zones(base.store(path))
    if zones:
        return Target(base.store(path), base.location(path), tuple(zones))
    if path.name == _LANDING_FOLDER:
        below = path.parent.name == "Files"
        root = path.parent.parent if below else path.parent
        return base.target(root, LANDING if below else LANDING_V1)
    if path.name.endswith(SCHEMA_SUFFIX) and path.parent.name:
        return _schema(base, path)
    if path.name and _is_table(base, path):
        return _table(base, path)
    if path.name and _is_zone(base, path):
        return base.target(path.parent, path.name)
    raise UsageError(
        "this is not a landing zone and does not contain one",
        where=str(base.location(path)),
        hint=_HINT,
    )


def _schema(base: _Base, path: PurePath) -> Target:
    root, zone = path.parent.parent, path.parent.name
    schema = path.name.removesuffix(SCHEMA_SUFFIX)
    tables = base.target(root, zone).tables()
    return base.target(root, zone, tuple(t for t in tables if t.table.schema == schema))


def _table(base: _Base, path: PurePath) -> Target:
    above = path.parent
    if above.name.endswith(SCHEMA_SUFFIX):
        zone = f"{above.parent.name}/{above.name}" if above.parent.name else above.name
        table = TableId(above.name.removesuffix(SCHEMA_SUFFIX), path.name)
        root = above.parent.parent
    else:
        zone, table, root = "", TableId("", path.name), above
    folder = f"{zone}/{path.name}" if zone else path.name
    return base.target(root, zone, (TableFolder(table, folder),))


def _is_table(base: _Base, path: PurePath) -> bool:
    """Whether a folder contains files that only table folders contain."""
    return any(
        file.name == layout.METADATA
        or FileName.parse(file.name)
        or file.name.lower().endswith(".parquet")
        for file in base.store(path).list("").files
    )


def _is_zone(base: _Base, path: PurePath) -> bool:
    """Whether a folder contains table or schema folders."""
    listing = base.store(path).list("")
    return any(file.name == layout.PARTNER for file in listing.files) or any(
        name.endswith(SCHEMA_SUFFIX) or _is_table(base, path / name) for name in listing.folders
    )
