"""Folder names of schemas and tables.

A name that cannot be a folder name is percent-encoded; the true name is in `_metadata.json`. The
encoding is injective: `%` itself is always encoded.
"""

from __future__ import annotations

import hashlib
import re

LONGEST = 200
"""Maximum size of a folder name in bytes of UTF-8; file systems allow 255, and suffixes must
fit."""

_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f/\\%]")
_PARTS = re.compile(r"%[0-9A-F]{2}|[^%]")


def folder_name(name: str, *, apart_from: frozenset[str] = frozenset()) -> str:
    """The folder name for `name`.

    apart_from: case-folded names of other tables. If the name equals one of them except for case,
    its letters that `casefold` changes are encoded, or its first letter if there are none, because
    some storages ignore case. Names longer than `LONGEST` are truncated and end in a hash of the
    whole name.
    """
    if not name:
        raise ValueError("a table must have a name")
    encoded = _UNSAFE.sub(lambda match: _percent(match[0]), name)
    if encoded[:1] in {"_", "."}:
        encoded = _percent(encoded[0]) + encoded[1:]
    if encoded[-1:] in {".", " "}:
        encoded = encoded[:-1] + _percent(encoded[-1])
    if encoded.lower().endswith(".schema"):
        encoded = encoded[:-7] + _percent(".") + encoded[-6:]
    if name.casefold() in apart_from:
        encoded = _apart(encoded)
    if len(encoded.encode()) > LONGEST:
        digest = hashlib.sha256(name.encode()).hexdigest()[:16]
        head = encoded.encode()[: LONGEST - 20].decode(errors="ignore")
        encoded = f"{head.rstrip('%')}%~{digest}"
    return encoded


def _apart(encoded: str) -> str:
    """Encode the letters that `casefold` changes, or the first letter if there are none, so that
    names that differ in case only differ in what is encoded."""
    parts = _PARTS.findall(encoded)
    plain = [index for index, part in enumerate(parts) if len(part) == 1]
    cased = [index for index in plain if parts[index] != parts[index].casefold()]
    for index in cased or plain[:1]:
        parts[index] = _percent(parts[index])
    return "".join(parts)


def _percent(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode())
