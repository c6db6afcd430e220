"""What the linter says: rules, findings of them, and the report that gathers both."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from mirrorlake.model.table import TableId

ALIKE = 20
"""Findings of one rule in one table; the others are only counted."""

_LONGEST = 120


class Severity(StrEnum):
    """How much a finding weighs."""

    ERROR = "error"
    """Our engine or the original stops, or leaves data unread."""
    WARNING = "warning"
    """It works, and is discouraged or differs between versions."""
    NOTE = "note"
    """Nothing is wrong; a publisher may want to know."""


class Version(StrEnum):
    """The published versions of the contract."""

    V1 = "v1"
    V2 = "v2"


@dataclass(frozen=True, slots=True)
class Profile:
    """What a zone is held to. strict: as the original is known to behave; partitions: the engine is
    told to read partition folders (LZ-059)."""

    version: Version = Version.V2
    strict: bool = False
    partitions: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """Something that a file or a folder can break.

    id: the clause; a clause may have several rules, which `name` tells apart. why, mend and
    example are Markdown. severity: None where only the strict profile minds; strict: where it
    differs from `severity`; only: the version that alone asks for it; also: other clauses that the
    same thing breaks.
    """

    id: str
    name: str
    title: str
    severity: Severity | None
    expected: str
    why: str
    mend: str
    example: str
    strict: Severity | None = None
    only: Version | None = None
    also: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return f"{self.id}/{self.name}"

    def weight(self, profile: Profile) -> Severity | None:
        """The severity under a profile; None where it asks for nothing."""
        if self.only not in {None, profile.version}:
            return None
        return (self.strict if profile.strict else None) or self.severity


@dataclass(frozen=True, slots=True)
class FindingLocation:
    """Where something is. path: below the root of the store; row, line, character: from 1."""

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


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that is broken at a place."""

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
    """Gathers findings under a profile; of many alike only the first are kept."""

    profile: Profile = field(default_factory=Profile)
    findings: list[Finding] = field(default_factory=list)
    more: Counter[tuple[str, TableId | None]] = field(default_factory=Counter)
    """Findings that were counted only, by rule and table."""
    _seen: Counter[tuple[str, TableId | None]] = field(default_factory=Counter)
    _counts: Counter[Severity] = field(default_factory=Counter)

    def add(self, rule: Rule, location: FindingLocation, found: str, expected: str = "") -> None:
        severity = rule.weight(self.profile)
        if severity is None:
            return
        self._counts[severity] += 1
        which = (rule.key, location.table)
        self._seen[which] += 1
        if self._seen[which] > ALIKE:
            self.more[which] += 1
            return
        self.findings.append(Finding(rule, severity, location, found, expected or rule.expected))

    @property
    def errors(self) -> int:
        """How many findings are errors."""
        return self.count(Severity.ERROR)

    def count(self, severity: Severity) -> int:
        """How many findings have a severity, those that were counted only included."""
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
    """Names as a sentence tells them: the first few, and how many there are beyond."""
    told = ", ".join(shown(name, 60) for name in names[:most])
    return f"{told} and {len(names) - most:,} more" if len(names) > most else told
