"""What a task imports: the releases that are installed where this is asked."""

from __future__ import annotations

import sys
from importlib import metadata

from mirrorlake.version import VERSION

LIBRARIES = ("pyarrow", "numpy", "duckdb", "pyroaring")
"""By the names of the distributions."""


def versions() -> dict[str, str]:
    """The Python here and its libraries, as text."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = {"Python": python, "mirrorlake": VERSION}  # it may be shipped without its metadata
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "missing"
    return found
