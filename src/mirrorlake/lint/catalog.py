"""All rules, in the order of the specification, read from `catalog.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from typing import Any


class Severity(StrEnum):
    """The severity of a finding."""

    ERROR = "error"
    """Our engine or the original stops, or does not read data."""
    WARNING = "warning"
    """It works, but is discouraged, or depends on the version."""
    NOTE = "note"
    """Nothing is wrong; a publisher may want to know."""


class Version(StrEnum):
    """The published versions of the contract."""

    V1 = "v1"
    V2 = "v2"


@dataclass(frozen=True, slots=True)
class Profile:
    """The requirements on a landing zone. strict: those of the original service, as far as known;
    partitions: the engine reads partition folders (LZ-059)."""

    version: Version = Version.V2
    strict: bool = False
    partitions: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule that a file or folder can violate.

    id: the clause; a clause may have several rules, with different names. why, mend and example are
    Markdown. severity: None if only the strict profile reports it; strict: the severity in the
    strict profile, if it differs; only: the only version with this rule; also: other clauses that
    are violated by the same thing.
    """

    id: str
    name: str
    title: str
    expected: str
    why: str
    mend: str
    example: str
    severity: Severity | None = None
    strict: Severity | None = None
    only: Version | None = None
    also: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return f"{self.id}/{self.name}"

    def weight(self, profile: Profile) -> Severity | None:
        """The severity in a profile; None if the profile does not have this rule."""
        if self.only not in {None, profile.version}:
            return None
        return (self.strict if profile.strict else None) or self.severity


def _rules() -> Iterator[Rule]:
    text = files(__package__).joinpath("catalog.toml").read_text("utf-8")
    for clause, rules in tomllib.loads(text).items():
        for name, facts in rules.items():
            members = {member: _KINDS.get(member, str)(fact) for member, fact in facts.items()}
            yield Rule(clause, name, **members)


_KINDS: Mapping[str, Callable[[Any], Any]] = {
    "severity": Severity,
    "strict": Severity,
    "only": Version,
    "also": tuple,
}

RULES = tuple(_rules())
BY_KEY = {rule.key: rule for rule in RULES}
