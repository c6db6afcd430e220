"""Quotes names in SQL."""

from __future__ import annotations


def quoted(name: str) -> str:
    """A user-defined name as an identifier in a statement."""
    return "`" + name.replace("`", "``") + "`"
