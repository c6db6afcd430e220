"""Each mirror has a storage location of its own (LZ-001)."""

from __future__ import annotations

from pathlib import Path

from mirrorlake.errors import UsageError
from mirrorlake.root import STATE


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
