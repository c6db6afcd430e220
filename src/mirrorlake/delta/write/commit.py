"""The next commit of a Delta table, written as a file of its log."""

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
    """Write a commit; False where that version exists. info: what it says of itself; options: how
    a URL is reached."""
    said = {"timestamp": int(time.time() * 1000), **info}
    # Without escapes, as Delta writes it: not every reader understands all of them.
    lines = [json.dumps(one, ensure_ascii=False) for one in [{"commitInfo": said}, *actions]]
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
