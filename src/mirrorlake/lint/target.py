"""What `mirrorlake lint` is pointed at: a root, a landing zone, a schema or a table folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath

from mirrorlake.errors import UsageError
from mirrorlake.landing import layout
from mirrorlake.landing.layout import SCHEMA_SUFFIX, TableFolder
from mirrorlake.model.landed import FileName
from mirrorlake.model.table import TableId
from mirrorlake.root import LANDING, LANDING_V1
from mirrorlake.storage.local import LocalStore
from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.store import Store
from mirrorlake.storage.urls import is_url, open_store, split

_LANDING_FOLDER = "LandingZone"


@dataclass(frozen=True, slots=True)
class Target:
    """A store and what of it is looked at.

    root: where the paths of the store begin, a folder or a URL; zones: the landing zones that
    exist, first the one that is used; folders: the tables, None for all of the zone.
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
    """The target at a path or a URL. Raises UsageError where nothing of a landing zone is."""
    if not is_url(location):
        return of_path(Path(location))
    bucket, path = split(str(location))
    ground = _Bucket(bucket, options)
    listing = ground.store(PurePosixPath(path)).list("")
    if not listing.files and not listing.folders:
        raise UsageError("nothing was found", where=str(location), hint=_HINT)
    return _found(ground, PurePosixPath(path))


def of_path(path: Path) -> Target:
    """The target at a local path. Raises UsageError where nothing of a landing zone is."""
    path = path.resolve()
    if not path.is_dir():
        raise UsageError("the folder does not exist", where=str(path), hint=_HINT)
    return _found(_Local(), path)


_HINT = (
    "Name the folder that contains Files/LandingZone, the landing zone itself, or a table folder."
)


class _Local:
    """Where paths are those of this machine."""

    def store(self, path: PurePath) -> LocalStore:
        return LocalStore(Path(path))

    def target(
        self, root: PurePath, zones: tuple[str, ...], folders: tuple[TableFolder, ...] | None
    ) -> Target:
        store = self.store(root)
        return Target(store, store.root, zones, folders)

    def named(self, path: PurePath) -> str:
        return str(path)


@dataclass(frozen=True)
class _Bucket:
    """Where paths are those below `bucket`, a URL."""

    bucket: str
    options: ObjectOptions | None

    def store(self, path: PurePath) -> Store:
        return open_store(self.named(path), self.options)

    def target(
        self, root: PurePath, zones: tuple[str, ...], folders: tuple[TableFolder, ...] | None
    ) -> Target:
        store = self.store(root)
        return Target(store, self.named(root), zones, folders)

    def named(self, path: PurePath) -> str:
        return f"{self.bucket}/{path.as_posix()}" if path.name else self.bucket


_Ground = _Local | _Bucket


def _found(ground: _Ground, path: PurePath) -> Target:
    zones = layout.landing_zones(ground.store(path))
    if zones:
        return ground.target(path, tuple(zones), None)
    if path.name == _LANDING_FOLDER:
        below = path.parent.name == "Files"
        root = path.parent.parent if below else path.parent
        return ground.target(root, (LANDING if below else LANDING_V1,), None)
    if path.name.endswith(SCHEMA_SUFFIX) and path.parent.name:
        return _schema(ground, path)
    if path.name and _is_table(ground, path):
        return _table(ground, path)
    if path.name and _is_zone(ground, path):
        return ground.target(path.parent, (path.name,), None)
    raise UsageError(
        "this is not a landing zone and does not contain one", where=ground.named(path), hint=_HINT
    )


def _schema(ground: _Ground, path: PurePath) -> Target:
    root, zone = path.parent.parent, path.parent.name
    schema = path.name.removesuffix(SCHEMA_SUFFIX)
    tables = ground.target(root, (zone,), None).tables()
    return ground.target(
        root, (zone,), tuple(folder for folder in tables if folder.table.schema == schema)
    )


def _table(ground: _Ground, path: PurePath) -> Target:
    above = path.parent
    if above.name.endswith(SCHEMA_SUFFIX):
        zone = f"{above.parent.name}/{above.name}" if above.parent.name else above.name
        table = TableId(above.name.removesuffix(SCHEMA_SUFFIX), path.name)
        root = above.parent.parent
    else:
        zone, table, root = "", TableId("", path.name), above
    folder = f"{zone}/{path.name}" if zone else path.name
    return ground.target(root, (zone,), (TableFolder(table, folder),))


def _is_table(ground: _Ground, path: PurePath) -> bool:
    """Whether the folder holds what only table folders hold."""
    return any(
        file.name == layout.METADATA
        or FileName.parse(file.name)
        or file.name.lower().endswith(".parquet")
        for file in ground.store(path).list("").files
    )


def _is_zone(ground: _Ground, path: PurePath) -> bool:
    """Whether folders in it hold what only table folders hold."""
    listing = ground.store(path).list("")
    return any(file.name == layout.PARTNER for file in listing.files) or any(
        name.endswith(SCHEMA_SUFFIX) or _is_table(ground, path / name) for name in listing.folders
    )
