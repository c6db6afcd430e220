"""Each mirror has a storage location of its own (LZ-001)."""

from __future__ import annotations

from pathlib import Path

from mirrorlake.config import Project
from mirrorlake.delta.tables import delta_tables
from mirrorlake.errors import UsageError, printable
from mirrorlake.landing import layout
from mirrorlake.root import LANDING, LANDING_V1, STATE, TABLES
from mirrorlake.storage.store import Store


def of_root(root: Path) -> Project:
    """A mirror of the landing zone at a root, with nothing configured. Raises UsageError."""
    if not root.is_dir():
        raise UsageError(
            "the folder does not exist",
            where=str(root),
            hint="Name the folder that contains Files/LandingZone. A landing zone at a URL needs a "
            "project file with landing.url.",
        )
    return Project.of_root(root)


def check_root(project: Project, store: Store) -> None:
    """Refuse a root that cannot be meant, before anything is made there. Raises UsageError."""
    check_apart(project.root)
    if project.landing is not None:
        return
    if not layout.landing_zones(store):
        _check_content(project.root)
        table = next(delta_tables(store), None)
        if table is not None:
            raise UsageError(
                f"there are tables, such as {table}, and no landing zone",
                where=str(project.root),
                hint=f"If {LANDING} is on another disk or share, mount it. If the tables are not "
                "those of this mirror, name another root.",
            )


def _check_content(root: Path) -> None:
    """A folder without a landing zone may be new or empty, and hold project files."""
    try:
        found = sorted(path for path in root.iterdir() if not path.name.startswith("."))
    except OSError:  # it does not exist yet, or whoever writes there says what is wrong
        return
    others = [path for path in found if path.suffix not in {".yaml", ".yml"}]
    if not others or any(path.name in {"Files", TABLES} for path in others):
        return
    near = [path for path in (*root.resolve().parents, *others) if _has_landing_zone(path)]
    guess = f"Did you mean {near[0]}? " if near else ""
    raise UsageError(
        f"the folder holds other things, such as {printable(others[0].name)}, and no landing zone",
        where=str(root),
        hint=f"{guess}Name the folder that contains {LANDING}, or a new one.",
    )


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
            raise _refusal(root, f"this root lies inside the root of another mirror, {outer}")
    for name in sorted(path.name for path in real.iterdir()) if real.is_dir() else ():
        if _is_mirrored(real / name):
            raise _refusal(root, f"the root of another mirror lies inside this root: {real / name}")


def _is_mirrored(folder: Path) -> bool:
    """Whether a mirror keeps its state there."""
    try:
        return (folder / STATE).is_dir()
    except OSError:
        return False  # what we may not look at is nobody's to us


def _refusal(root: Path, what: str) -> UsageError:
    return UsageError(
        what, where=str(root), hint="Give each mirror its own root, not inside that of another."
    )
