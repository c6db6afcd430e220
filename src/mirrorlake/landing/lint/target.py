"""What `mirrorlake lint` is pointed at: a root, a landing zone, a schema or a table folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mirrorlake.errors import UsageError
from mirrorlake.landing import layout
from mirrorlake.landing.layout import SCHEMA_SUFFIX, TableFolder
from mirrorlake.model.landed import FileName
from mirrorlake.model.table import TableId
from mirrorlake.storage.local import LocalStore, Unlisted
from mirrorlake.storage.store import Store

_LANDING_FOLDER = "LandingZone"


def _nothing(_folder: str) -> Sequence[Unlisted]:
    return ()


@dataclass(frozen=True, slots=True)
class Target:
    """A store and what of it is looked at.

    root: where the paths of the store begin; zones: the landing zones that exist, first the one
    that is used; folders: the tables, None for all of the zone; unlisted: what the store does not
    show of a folder.
    """

    store: Store
    root: Path
    zones: tuple[str, ...]
    folders: tuple[TableFolder, ...] | None = None
    unlisted: Callable[[str], Sequence[Unlisted]] = _nothing

    @property
    def zone(self) -> str:
        return self.zones[0]

    def tables(self) -> tuple[TableFolder, ...]:
        if self.folders is not None:
            return self.folders
        return tuple(layout.table_folders(self.store, self.zone))


def of_path(path: Path) -> Target:
    """The target at a local path. Raises UsageError where nothing of a landing zone is."""
    path = path.resolve()
    if not path.is_dir():
        raise UsageError("there is no such folder", where=str(path), hint=_HINT)
    zones = layout.landing_zones(LocalStore(path))
    if zones:
        return _target(path, tuple(zones))
    if path.name == _LANDING_FOLDER:
        below = path.parent.name == "Files"
        root = path.parent.parent if below else path.parent
        return _target(root, (layout.LANDING if below else layout.LANDING_V1,))
    if path.name.endswith(SCHEMA_SUFFIX):
        return _schema(path)
    if _is_table(path):
        return _table(path)
    if _is_zone(path):
        return _target(path.parent, (path.name,))
    raise UsageError("this is no landing zone, and none is in it", where=str(path), hint=_HINT)


_HINT = (
    "Name the folder that holds Files/LandingZone, the landing zone itself, or the folder of a "
    "table."
)


def _target(
    root: Path, zones: tuple[str, ...], folders: tuple[TableFolder, ...] | None = None
) -> Target:
    store = LocalStore(root)
    return Target(store, root, zones, folders, store.unlisted)


def _schema(path: Path) -> Target:
    zone = path.parent.name
    schema = path.name.removesuffix(SCHEMA_SUFFIX)
    found = _target(path.parent.parent, (zone,))
    return _target(
        path.parent.parent,
        (zone,),
        tuple(folder for folder in found.tables() if folder.table.schema == schema),
    )


def _table(path: Path) -> Target:
    above = path.parent
    if above.name.endswith(SCHEMA_SUFFIX):
        zone = f"{above.parent.name}/{above.name}"
        table = TableId(above.name.removesuffix(SCHEMA_SUFFIX), path.name)
        root = above.parent.parent
    else:
        zone, table, root = "", TableId("", path.name), above
    folder = f"{zone}/{path.name}" if zone else path.name
    return _target(root, (zone,), (TableFolder(table, folder),))


def _is_table(path: Path) -> bool:
    """Whether the folder holds what only table folders hold."""
    listing = LocalStore(path).list("")
    return any(
        file.name == layout.METADATA
        or FileName.parse(file.name)
        or file.name.lower().endswith(".parquet")
        for file in listing.files
    )


def _is_zone(path: Path) -> bool:
    """Whether folders in it hold what only table folders hold."""
    listing = LocalStore(path).list("")
    return any(file.name == layout.PARTNER for file in listing.files) or any(
        name.endswith(SCHEMA_SUFFIX) or _is_table(path / name) for name in listing.folders
    )
