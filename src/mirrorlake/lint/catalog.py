"""All rules, in the order of the specification; `catalog.toml` has what there is to say of each."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from typing import Any


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
        """The severity under a profile; None where it asks for nothing."""
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
