"""Each mirror has a storage location of its own (LZ-001)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

from mirrorlake.app.stores import store_at
from mirrorlake.config import Project
from mirrorlake.config.sections import ONLY_ON_OBJECTS, holds_tables
from mirrorlake.delta.tables import delta_tables
from mirrorlake.errors import UsageError, printable
from mirrorlake.landing import layout
from mirrorlake.root import LANDING, LANDING_V1, STATE, TABLES
from mirrorlake.storage.local import check_folder
from mirrorlake.storage.store import Store
from mirrorlake.storage.urls import StorageLocation, is_url, open_store, split


def of_root(given: str | Path) -> Project:
    """A mirror of the landing zone at a root, with nothing configured. Raises UsageError."""
    if is_url(given):
        return _of_url(StorageLocation(str(given)))
    if not str(given):
        raise UsageError(
            "no root was given",
            where="root",
            hint=f"Name the folder or URL that contains {LANDING}.",
        )
    root = Path(given)
    check_folder(root)
    if not root.is_dir():
        raise UsageError(
            "the folder does not exist",
            where=str(root),
            hint=f"Name the folder or URL that contains {LANDING}.",
        )
    return Project.of_root(root)


def _of_url(root: StorageLocation) -> Project:
    store = store_at(root)
    if not holds_tables(root):
        raise UsageError(
            ONLY_ON_OBJECTS,
            where=root.url,
            hint="Set it as landing.url in a project file, with a folder as root.",
        )
    listing = store.list("")
    if not listing.files and not listing.folders:
        raise UsageError(
            "there is nothing at this URL",
            where=root.url,
            hint=f"Name the URL that contains {LANDING}.",
        )
    return Project.of_root(root)


def check_root(project: Project, store: Store) -> None:
    """Refuse a root that cannot be meant, before anything is made there. Raises UsageError."""
    root = project.root
    if isinstance(root, Path):
        check_apart(root)
    else:
        _check_apart_on_objects(root)
    for destination in project.destinations:
        if isinstance(destination.location, Path):
            check_folder(destination.location)
    if project.landing is not None or project.events is not None:
        return
    if not layout.landing_zones(store):
        _check_content(root)
        table = next(delta_tables(store), None)
        if table is not None:
            raise UsageError(
                f"there are tables, such as {table}, and no landing zone",
                where=project.where,
                hint=f"If {LANDING} is on another disk or share, mount it. If the tables are not "
                "those of this mirror, name another root.",
            )


def _check_content(root: Path | StorageLocation) -> None:
    """A folder without a landing zone may be new or empty, and hold project files."""
    others = [name for name in _names(root) if Path(name).suffix not in {".yaml", ".yml"}]
    if not others or {"Files", TABLES} & {*others}:
        return
    near: list[Path] = []
    if isinstance(root, Path):
        around = (*root.resolve().parents, *(root / name for name in others))
        near = [path for path in around if _has_landing_zone(path)]
    guess = f"Did you mean {near[0]}? " if near else ""
    raise UsageError(
        f"the folder holds other things, such as {printable(others[0])}, and no landing zone",
        where=root.url if isinstance(root, StorageLocation) else str(root),
        hint=f"{guess}Name the folder that contains {LANDING}, or a new one.",
    )


def _names(root: Path | StorageLocation) -> list[str]:
    """What lies in a root, without what is hidden."""
    if isinstance(root, StorageLocation):
        listing = store_at(root).list("")
        names = [*listing.folders, *(file.name for file in listing.files)]
        return sorted(name for name in names if not name.startswith((".", "_")))
    try:
        return sorted(path.name for path in root.iterdir() if not path.name.startswith("."))
    except OSError:  # it does not exist yet, or whoever writes there says what is wrong
        return []


def _has_landing_zone(folder: Path) -> bool:
    forms = [LANDING] if folder.name == "Files" else [LANDING, LANDING_V1]
    try:
        return any((folder / form).is_dir() for form in forms)
    except OSError:
        return False


def check_apart(root: Path) -> None:
    """Refuse a root inside that of another mirror, or right around one. Raises UsageError.

    Of two mirrors at one root the lease refuses the second.
    """
    real = root.resolve()
    for outer in real.parents:
        if _is_mirrored(outer):
            raise _inside(root, outer)
    for name in sorted(path.name for path in real.iterdir()) if real.is_dir() else ():
        if _is_mirrored(real / name):
            raise _around(root, real / name)


def _check_apart_on_objects(root: StorageLocation) -> None:
    """As `check_apart`, of a root on objects."""
    bucket, inside = split(root.url)
    whole, here = open_store(bucket, root.options), PurePosixPath(inside)

    def mirrored(folders: Iterator[PurePosixPath]) -> Iterator[str]:
        for folder in folders:
            # What we may not look at is nobody's to us. Where only a landing zone or tables lie,
            # there are leases, and no file beside them.
            with suppress(PermissionError):
                if whole.list(str(folder / STATE)).files:
                    yield f"{bucket}/{folder}" if folder.parts else bucket

    if inside:
        for outer in mirrored(iter(here.parents)):
            raise _inside(root.url, outer)
    names = [name for name in whole.list(inside).folders if name not in {"Files", TABLES}]
    for inner in mirrored(here / name for name in names):
        raise _around(root.url, inner)


def _is_mirrored(folder: Path) -> bool:
    """Whether a mirror keeps its state there."""
    try:
        return (folder / STATE).is_dir()
    except OSError:
        return False  # what we may not look at is nobody's to us


def _inside(root: Path | str, outer: Path | str) -> UsageError:
    return _refusal(root, f"this root lies inside the root of another mirror, {outer}")


def _around(root: Path | str, inner: Path | str) -> UsageError:
    return _refusal(root, f"the root of another mirror lies inside this root: {inner}")


def _refusal(root: Path | str, what: str) -> UsageError:
    return UsageError(
        what, where=str(root), hint="Give each mirror its own root, not inside that of another."
    )
