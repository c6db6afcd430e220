"""Writes commits to the log of a Delta table."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mirrorlake.delta.log.files import FOLDER
from mirrorlake.storage.local import LocalStore
from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.urls import addressed, is_url


def write_commit(
    location: str,
    version: int,
    actions: Sequence[Mapping[str, Any]],
    options: ObjectOptions | None = None,
    **info: Any,
) -> bool:
    """Write a commit. Returns False if the version exists. info: members of commitInfo; options:
    how to access a URL."""
    commit_info = {"timestamp": int(time.time() * 1000), **info}
    # Without \u escapes, as Delta writes it: some readers do not support all of them.
    lines = [
        json.dumps(line, ensure_ascii=False) for line in [{"commitInfo": commit_info}, *actions]
    ]
    content = ("\n".join(lines) + "\n").encode()
    name = f"{FOLDER}/{version:020d}.json"
    try:
        if is_url(location):
            store, key = addressed(location, options)
            store.create(f"{key}/{name}", content)
        else:
            LocalStore(Path(location)).create(name, content)
    except FileExistsError:
        return False
    return True
