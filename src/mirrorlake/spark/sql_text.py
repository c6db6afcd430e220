"""Names as SQL."""

from __future__ import annotations


def quoted(name: str) -> str:
    """A name of somebody else's, as an identifier in a statement."""
    return "`" + name.replace("`", "``") + "`"
