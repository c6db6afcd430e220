"""Findings of the linter, and the report that collects them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from mirrorlake.errors import TableError
from mirrorlake.lint.catalog import BY_KEY, Profile, Rule, Severity
from mirrorlake.model.table import TableId

ALIKE = 20
"""Maximum number of reported findings per rule and table; further ones are only counted."""

_LONGEST = 120


@dataclass(frozen=True, slots=True)
class FindingLocation:
    """The location of a finding. path: below the root of the store; row, line, character: from
    1."""

    path: str
    table: TableId | None = None
    row: int | None = None
    column: str | None = None
    line: int | None = None
    character: int | None = None

    @property
    def file(self) -> str:
        """The name of the file or folder."""
        return self.path.rpartition("/")[2]

    def in_column(self, name: str) -> FindingLocation:
        return FindingLocation(self.path, self.table, column=shown(name))

    def of(self, error: TableError) -> FindingLocation:
        """The location with the row and column of an error."""
        column = None if error.column is None else shown(error.column)
        return FindingLocation(self.path, self.table, row=error.row, column=column)


@dataclass(frozen=True, slots=True)
class Finding:
    """A violation of a rule."""

    rule: Rule
    severity: Severity
    location: FindingLocation
    found: str
    expected: str

    def facts(self) -> dict[str, Any]:
        """As plain data, for `--json`."""
        location = self.location
        return {
            "id": self.rule.id,
            "rule": self.rule.name,
            "severity": str(self.severity),
            "table": str(location.table) if location.table else None,
            "file": location.file,
            "path": location.path,
            "row": location.row,
            "column": location.column,
            "line": location.line,
            "character": location.character,
            "title": self.rule.title,
            "found": self.found,
            "expected": self.expected,
            "mend": self.rule.mend,
        }


@dataclass(slots=True)
class Report:
    """Collects findings for a profile, at most `ALIKE` per rule and table."""

    profile: Profile = field(default_factory=Profile)
    findings: list[Finding] = field(default_factory=list)
    more: Counter[tuple[str, TableId | None]] = field(default_factory=Counter)
    """Number of further findings, by rule and table."""
    _seen: Counter[tuple[str, TableId | None]] = field(default_factory=Counter)
    _counts: Counter[Severity] = field(default_factory=Counter)

    def add(self, key: str, location: FindingLocation, found: str, expected: str = "") -> None:
        """Report a violation of the rule with this key. expected: overrides the text of the
        rule."""
        rule = BY_KEY[key]
        severity = rule.weight(self.profile)
        if severity is None:
            return
        self._counts[severity] += 1
        which = (key, location.table)
        self._seen[which] += 1
        if self._seen[which] > ALIKE:
            self.more[which] += 1
            return
        self.findings.append(Finding(rule, severity, location, found, expected or rule.expected))

    @property
    def errors(self) -> int:
        """The number of errors."""
        return self.count(Severity.ERROR)

    def count(self, severity: Severity) -> int:
        """The number of findings of a severity, including those that were only counted."""
        return self._counts[severity]


def shown(text: object, longest: int = _LONGEST) -> str:
    """Text from outside, on one line, without control characters and not too long."""
    plain = "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text)
    )
    return plain if len(plain) <= longest else plain[:longest] + "…"


def counted(count: int, noun: str) -> str:
    """A number with its noun."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def listed(names: list[str], most: int = 3) -> str:
    """The first `most` names as text, and the number of further ones."""
    text = ", ".join(shown(name, 60) for name in names[:most])
    return f"{text} and {len(names) - most:,} more" if len(names) > most else text
