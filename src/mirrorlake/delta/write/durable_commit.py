"""Durable commits of tables that are written without Spark, by processes of mirrorlake only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from mirrorlake.delta.log import checkpoint
from mirrorlake.delta.log.durability import flush_commit
from mirrorlake.delta.write.commit import write_commit
from mirrorlake.errors import Unavailable
from mirrorlake.storage.local import flush_folder
from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.urls import is_url

CHECKPOINT = 50
"""Number of commits per checkpoint."""


def flush_names(location: str) -> None:
    """Make the names of new files durable, before a commit refers to them."""
    if not is_url(location):
        for folder in (Path(location), Path(location, "_change_data")):
            if folder.exists():
                flush_folder(folder)


def durable_commit(
    location: str,
    version: int,
    actions: Sequence[Mapping[str, Any]],
    options: ObjectOptions | None,
    **info: Any,
) -> bool:
    """As `write_commit`, but durable on return, and with a checkpoint every `CHECKPOINT` commits.

    Raises Unavailable. The commit may have succeeded then: the caller reads the recorded
    transaction before it tries again.
    """
    try:
        done = write_commit(location, version, actions, options, **info)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise Unavailable(f"the storage does not answer: {why}", where=location) from error
    if done and not is_url(location):
        flush_commit(Path(location), version)
        if version and version % CHECKPOINT == 0:
            with suppress(checkpoint.UnsupportedLog):
                checkpoint.write(Path(location))
    return done
