"""Refuses settings that another one leaves without effect."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from mirrorlake.capture.watch.retention import RetentionPolicy
from mirrorlake.errors import ConfigError

_OF_LANDED_FILES = ("roll_bytes", "roll_seconds", "debounce_seconds")
"""Settings of capture that say when landed files are published."""


def check_release(path: Path, policy: RetentionPolicy, limit: int | None) -> None:
    """Raises ConfigError for a policy that would never come to act."""
    if policy is RetentionPolicy.RELEASE and limit is None:
        raise ConfigError(
            "no slot is ever released, because there is no limit of what the source may keep",
            where=f"{path}, field capture.retained_policy",
            hint="Set capture.retained_limit, such as 20GiB, or remove this setting.",
        )


def check_executors(path: Path, load: Collection[str], *, on_spark: bool) -> None:
    """load: the settings that are given. Raises ConfigError."""
    if "connections" in load and not on_spark:
        raise ConfigError(
            "the connections are those of executors, and capture reads all tables",
            where=f"{path}, field load.connections",
            hint="Set load.on: spark, or set source.load_workers instead.",
        )


def check_events_alone(path: Path, project: Collection[str], capture: Collection[str]) -> None:
    """project, capture: the settings that are given in a file whose only destinations are event
    files. Raises ConfigError."""
    if "default_schema" in project:
        raise ConfigError(
            "it names folders of tables, and event files take their place",
            where=f"{path}, field default_schema",
            hint="Remove this setting.",
        )
    for name in (one for one in _OF_LANDED_FILES if one in capture):
        earlier = " settle_seconds is its earlier name." if name == "debounce_seconds" else ""
        raise ConfigError(
            f"event files are closed by settings of their destination, so {name} has no effect",
            where=f"{path}, field capture.{name}",
            hint=f"Set destination.rotation_seconds and destination.rotation_mb instead.{earlier}",
        )
