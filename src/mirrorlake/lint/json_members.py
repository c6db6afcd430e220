"""The record of a `_metadata.json` as it is written, with the places of its members."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from mirrorlake.landing.lenient_json import Path, locator
from mirrorlake.lint.finding import FindingLocation


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a record: its name as it is spelt, and its value."""

    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class Record:
    """An object of the file. members: by name in lower case (LZ-050), the last of equal ones;
    path: the way to it from the outermost object; locate: line and character of a value."""

    members: Mapping[str, Member]
    location: FindingLocation
    path: Path
    locate: Callable[[Path], tuple[int, int] | None]

    @classmethod
    def of(cls, value: Any, content: bytes, location: FindingLocation) -> Record:
        """The record of the outermost value."""
        return cls(_members(value), location, (), locator(content))

    def __contains__(self, name: str) -> bool:
        return self.value(name) is not None

    def value(self, name: str) -> Any:
        """The value of a member; None without it, as where it is null."""
        member = self.members.get(name.lower())
        return member.value if member else None

    def spelt(self, name: str) -> str:
        """The name of a member as the file spells it."""
        member = self.members.get(name.lower())
        return member.name if member else name

    def at(self, name: str, *, column: str | None = None) -> FindingLocation:
        """The place of a member's value."""
        return self._located((*self.path, self.spelt(name)), column)

    def here(self, *, column: str | None = None) -> FindingLocation:
        """The place of the object itself."""
        return self._located(self.path, column)

    def inside(self, name: str) -> Record:
        """The object that a member holds."""
        path = (*self.path, self.spelt(name))
        return Record(_members(self.value(name)), self.location, path, self.locate)

    def elements(self, name: str) -> Iterator[tuple[Any, Record]]:
        """The elements of the array that a member holds."""
        path = (*self.path, self.spelt(name))
        values = self.value(name)
        for at, value in enumerate(values if isinstance(values, list) else ()):
            yield value, Record(_members(value), self.location, (*path, at), self.locate)

    def _located(self, path: Path, column: str | None) -> FindingLocation:
        found = self.locate(path)
        line, character = found or (None, None)
        return replace(self.location, line=line, character=character, column=column)


def _members(value: Any) -> dict[str, Member]:
    """By name in lower case; none where the value is no object."""
    pairs = value.items() if isinstance(value, dict) else ()
    return {name.lower(): Member(name, inner) for name, inner in pairs}


def written(value: Any) -> str:
    """A value as JSON writes it."""
    return json.dumps(value, ensure_ascii=False, default=str)


def repeated(content: bytes) -> list[str]:
    """Names of members that stand twice in one object, but for case; none where it is no JSON."""
    found: list[str] = []

    def look(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        counts = Counter(name.lower() for name, _ in pairs)
        found.extend(name for name, _ in pairs if counts[name.lower()] > 1)
        return dict(pairs)

    try:
        json.loads(content.decode("utf-8-sig"), object_pairs_hook=look)
    except (ValueError, RecursionError):
        return []
    return list(dict.fromkeys(found))
