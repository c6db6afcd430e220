"""The mark by which a mirror knows its landing zone again.

A folder that is not there was deleted only if the zone is the one it was in: a share that is not
mounted, or another one in its place, is an empty folder too. So the mirror leaves an id in the
zone, below a name that nobody reads (LZ-021), and keeps the same id beside its leases.
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
    """The id of the mirror at this root, made when it is first asked for."""
    if known := _id(store, KNOWN):
        return known
    store.replace(KNOWN, _content(new()))
    return _id(store, KNOWN)


def mark(store: Store, zone: str) -> None:
    """Leave the id in a zone that has none. Somebody else's stays."""
    if not _marked(store, zone):
        store.replace(f"{zone}/{MARK}", _content(mirror_id(store)))


def is_marked(store: Store, zone: str) -> bool:
    """Whether the zone bears the id of this mirror."""
    found = _marked(store, zone)
    return bool(found) and found == _id(store, KNOWN)


def _marked(store: Store, zone: str) -> str:
    """The id in a zone. Of what cannot be read it is as good as none."""
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
