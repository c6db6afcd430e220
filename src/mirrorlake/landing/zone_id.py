"""The marker file by which a mirror recognizes its landing zone.

A missing table folder means a deleted table only if the landing zone is the same as before: an
unmounted share, or a different one, also looks like an empty folder. So the mirror writes an id
into the landing zone, under a name that readers ignore (LZ-021), and stores the same id next to its
leases.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable

from mirrorlake import root
from mirrorlake.storage.store import Store

MARK = "_mirrorlake/zone.json"
KNOWN = f"{root.STATE}/zone.json"


def mirror_id(store: Store, new: Callable[[], str] = lambda: str(uuid.uuid4())) -> str:
    """The id of the mirror at this root, created on first use."""
    if known := _id(store, KNOWN):
        return known
    store.replace(KNOWN, _content(new()))
    return _id(store, KNOWN)


def mark(store: Store, zone: str) -> None:
    """Write the id into a landing zone that has none. The id of another mirror is not replaced."""
    if not _marked(store, zone):
        store.replace(f"{zone}/{MARK}", _content(mirror_id(store)))


def is_marked(store: Store, zone: str) -> bool:
    """Whether the landing zone has the id of this mirror."""
    found = _marked(store, zone)
    return bool(found) and found == _id(store, KNOWN)


def _marked(store: Store, zone: str) -> str:
    """The id in a landing zone; empty if it cannot be read."""
    try:
        return _id(store, f"{zone}/{MARK}")
    except OSError:
        return ""


def _content(identity: str) -> bytes:
    return json.dumps({"mirrorlake": 1, "id": identity}).encode()


def _id(store: Store, path: str) -> str:
    try:
        found = json.loads(store.read(path))["id"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return ""
    return found if isinstance(found, str) else ""
