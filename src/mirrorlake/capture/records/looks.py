"""What the last look at the tables of the source found, beside their rows and columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from mirrorlake.capture.records.files import RecordFiles
from mirrorlake.capture.records.names import (
    APPEND_ONLY,
    ATTACHED,
    IGNORED,
    UNFOLLOWED,
    WITHOUT_EFFECT,
)
from mirrorlake.capture.watch.missed_changes import AppendOnly
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.sources.table import Attached


@dataclass(frozen=True, slots=True)
class WithoutEffect:
    """A change of a table's schema in the source that changes no row. at: when it was seen."""

    at: str
    change: str


@dataclass(frozen=True, slots=True)
class Unfollowed:
    """What was done to a table or its columns, and why the mirror does not have it; since: when it
    was seen."""

    since: str
    change: str


class LookRecords(RecordFiles):
    """`append_only.json`, `attached.json`, `without_effect.json`, `unfollowed.json` and
    `ignored.json`."""

    __slots__ = ()

    def append_only(self) -> dict[str, AppendOnly]:
        """By table name, as the last look found them."""
        found = self._tables(APPEND_ONLY)
        return {name: AppendOnly.parse(facts) for name, facts in found.items()}

    def write_append_only(self, tables: Mapping[str, AppendOnly]) -> None:
        found = {name: table.facts() for name, table in tables.items()}
        self._write(APPEND_ONLY, {"tables": found})
        self.reached(CrashPoint.APPEND_ONLY_RECORDED)

    def attached(self) -> dict[str, dict[str, Attached]]:
        """By table name `SourceTable.attached`, as of the last look."""
        found = self._tables(ATTACHED)
        return {
            name: {key: Attached(*facts) for key, facts in attached.items()}
            for name, attached in found.items()
        }

    def write_attached(self, tables: Mapping[str, Mapping[str, Attached]]) -> None:
        found = {
            name: {key: [a.label, a.state, a.column, a.type] for key, a in attached.items()}
            for name, attached in tables.items()
        }
        self._write(ATTACHED, {"tables": found})
        self.reached(CrashPoint.ATTACHED_RECORDED)

    def without_effect(self) -> dict[str, tuple[WithoutEffect, ...]]:
        """By table name the last changes of its schema that change no row, the oldest first."""
        found = self._tables(WITHOUT_EFFECT)
        return {name: tuple(WithoutEffect(**c) for c in changes) for name, changes in found.items()}

    def write_without_effect(self, tables: Mapping[str, Sequence[WithoutEffect]]) -> None:
        found = {name: [asdict(change) for change in changes] for name, changes in tables.items()}
        self._write(WITHOUT_EFFECT, {"tables": found})
        self.reached(CrashPoint.WITHOUT_EFFECT_RECORDED)

    def unfollowed(self) -> dict[str, Unfollowed]:
        """By table name, as of the last look."""
        found = self._tables(UNFOLLOWED)
        return {name: Unfollowed(**facts) for name, facts in found.items()}

    def write_unfollowed(self, tables: Mapping[str, Unfollowed]) -> None:
        found = {name: asdict(change) for name, change in tables.items()}
        self._write(UNFOLLOWED, {"tables": found})
        self.reached(CrashPoint.UNFOLLOWED_RECORDED)

    def ignored(self) -> dict[str, Unfollowed]:
        """By table name, until it is read again."""
        found = self._tables(IGNORED)
        return {name: Unfollowed(**facts) for name, facts in found.items()}

    def write_ignored(self, tables: Mapping[str, Unfollowed]) -> None:
        found = {name: asdict(change) for name, change in tables.items()}
        self._write(IGNORED, {"tables": found})
        self.reached(CrashPoint.IGNORED_RECORDED)
