"""The content of a JSON file with the locations of its members."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Self

from mirrorlake.landing import lenient_json
from mirrorlake.landing.lenient_json import NotJson, Path
from mirrorlake.landing.text.members import Members
from mirrorlake.lint.finding import FindingLocation, Report, shown


class Record(Members):
    """An object of the file; a value that is not an object has no members."""

    def __init__(
        self,
        value: Any,
        location: FindingLocation,
        locate: Callable[[Path], tuple[int, int] | None],
        path: Path = (),
    ) -> None:
        """path: of the object, from the outermost object; locate: returns line and character of a
        value."""
        super().__init__(value if isinstance(value, dict) else {}, path)
        self.location, self._locate = location, locate

    @classmethod
    def read(
        cls,
        content: bytes,
        location: FindingLocation,
        report: Report,
        *,
        unreadable: str,
        lenient: str,
        no_object: str,
        expected: str = "",
    ) -> Self | None:
        """Parse the outermost object; None if there is none.

        unreadable, lenient, no_object: the rules for invalid JSON, for applied tolerances (with the
        text `expected`), and for a value that is not an object.
        """
        try:
            parsed = lenient_json.parse(content)
        except NotJson as error:
            at = replace(location, line=error.line, character=error.column)
            report.add(unreadable, at, shown(error.message))
            return None
        for note in parsed.notes:
            at = replace(location, line=note.line, character=note.column)
            report.add(lenient, at, shown(note.what), expected)
        if not isinstance(parsed.value, dict):
            report.add(no_object, location, written(parsed.value))
            return None
        return cls(parsed.value, location, lenient_json.locator(content))

    def spelt(self, name: str) -> str:
        """The name of a member as the file spells it."""
        return str(self.path(name)[-1])

    def add_finding(self, key: str, name: str, report: Report) -> None:
        """Report a rule that the value of a member violates."""
        report.add(key, self.at(name), written(self.get(name)))

    def at(self, name: str, *, column: str | None = None) -> FindingLocation:
        """The location of a member's value."""
        return self._located(self.path(name), column)

    def here(self) -> FindingLocation:
        """The location of the object itself."""
        return self._located(self._path)

    def inside(self, name: str) -> Record:
        """The object in a member."""
        return Record(self.get(name), self.location, self._locate, self.path(name))

    def elements(self, name: str) -> Iterator[tuple[Any, Record]]:
        """The elements of the array in a member, also as records."""
        values = self.get(name)
        for index, value in enumerate(values if isinstance(values, list) else ()):
            yield value, Record(value, self.location, self._locate, (*self.path(name), index))

    def _located(self, path: Path, column: str | None = None) -> FindingLocation:
        line, character = self._locate(path) or (None, None)
        return replace(self.location, line=line, character=character, column=column)


def written(value: Any, longest: int = 120) -> str:
    """A value as JSON text, for a finding."""
    return shown(json.dumps(value, ensure_ascii=False, default=str), longest)


def repeated(content: bytes) -> list[str]:
    """Names of members that occur twice in one object, except for case; empty for invalid JSON."""
    found: list[str] = []

    def count(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        counts = Counter(name.lower() for name, _ in pairs)
        found.extend(name for name, _ in pairs if counts[name.lower()] > 1)
        return dict(pairs)

    try:
        json.loads(content.decode("utf-8-sig"), object_pairs_hook=count)
    except (ValueError, RecursionError):
        return []
    return list(dict.fromkeys(found))
