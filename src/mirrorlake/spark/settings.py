"""What a project may say about Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """master: None for the session that is there. jars: a folder, for sites without a registry."""

    master: str | None = "local[*]"
    jars: Path | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    driver_memory: str = "2g"
