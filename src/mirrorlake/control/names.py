"""Names of resources: `projects/p/locations/l/streams/s/objects/o` (ST-339)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from mirrorlake.errors import InvalidRequest, printable

_PART = r"[A-Za-z0-9][A-Za-z0-9._~-]{0,62}"
_LOCATION = re.compile(rf"projects/({_PART})/locations/({_PART})")
_ID = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
_ANY_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


HOME = "projects/local/locations/local"
"""The default parent of names."""


class ResourceKind(StrEnum):
    """A kind of resource, named by the segment of its collection."""

    STREAM = "streams"
    OBJECT = "objects"
    PROFILE = "connectionProfiles"
    OPERATION = "operations"


@dataclass(frozen=True, slots=True)
class ResourceName:
    """A name: parent, kind and identifier. Printed as in the API."""

    parent: str
    kind: ResourceKind
    id: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises InvalidRequest."""
        parent, _, last = text.rpartition("/")
        around, _, segment = parent.rpartition("/")
        if segment not in list(ResourceKind) or not _ANY_ID.fullmatch(last):
            raise _invalid(text)
        kind = ResourceKind(segment)
        if kind is ResourceKind.OBJECT:
            if cls.parse(around).kind is not ResourceKind.STREAM:
                raise _invalid(text)
        else:
            location(around)
        return cls(around, kind, last)

    def __str__(self) -> str:
        return f"{self.parent}/{self.kind.value}/{self.id}"


def location(text: str) -> tuple[str, str]:
    """Project and location of `projects/p/locations/l`. Raises InvalidRequest."""
    found = _LOCATION.fullmatch(text)
    if found is None:
        raise _invalid(text)
    return found[1], found[2]


def new_name(parent: str, kind: ResourceKind, identifier: str) -> ResourceName:
    """The name of a new stream or profile. Raises InvalidRequest."""
    location(parent)
    if not _ID.fullmatch(identifier):
        raise InvalidRequest(
            f"{printable(identifier[:80]) or 'an empty text'} is not a valid identifier",
            where=f"{parent}/{kind.value}",
            hint="Use 1 to 63 lower-case letters, digits and hyphens, beginning with a letter and "
            "not ending with a hyphen.",
        )
    return ResourceName(parent, kind, identifier)


def identifier_like(text: str) -> str:
    """A valid identifier derived from a text; different texts may give the same one."""
    found = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return (found if found[:1].isalpha() else f"s-{found}")[:63].rstrip("-")


def _invalid(text: str) -> InvalidRequest:
    return InvalidRequest(
        f"{printable(text[:200])} is not the name of a resource",
        hint="Names look like projects/p/locations/l/streams/s.",
    )
