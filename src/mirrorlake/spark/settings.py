"""The Spark settings of a project."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Settings of the session.

    master: None to use the existing session.
    jars: a folder, for sites without access to a package registry.
    brief: the session will end soon, so its JVM compiles as little as possible.
    """

    master: str | None = "local[*]"
    jars: Path | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    driver_memory: str = "2g"
    brief: bool = False

    @property
    def is_cluster(self) -> bool:
        """Whether tasks run in other processes than those of a session in local mode."""
        master = (self.master or "").lower()
        is_local = master == "local" or master.startswith("local[")
        return bool(master) and not is_local
