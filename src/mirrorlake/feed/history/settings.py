"""The settings of a history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any, Literal, Self, TypedDict, TypeVar, Unpack

from mirrorlake.errors import UsageError
from mirrorlake.model import types
from mirrorlake.model.types import DataType

START_AT, END_AT = "__START_AT", "__END_AT"
"""The bounds of the interval in which a row was valid: start inclusive, end exclusive (CF-205)."""

IS_CURRENT = "__IS_CURRENT"
FROM_SNAPSHOT = "__FROM_SNAPSHOT"
"""True for a row that existed when the history began: it may be older (CF-208)."""

IS_DELETED = "__IS_DELETED"


class HistoryType(IntEnum):
    """The type of slowly changing dimension: the newest row of each key, or every row it had."""

    NEWEST = 1
    INTERVALS = 2


class Deletes(StrEnum):
    """The effect of a deletion in a history of type 1."""

    REMOVE = "remove"
    FLAG = "flag"


class IntervalBounds(StrEnum):
    """The content of `__START_AT` and `__END_AT` (CF-204)."""

    VERSION = "version"
    COMMIT_TIME = "commit_time"
    SOURCE_TIME = "source_time"
    SOURCE_POSITION = "source_position"

    @property
    def type(self) -> DataType:
        match self:
            case IntervalBounds.VERSION:
                return types.LONG
            case IntervalBounds.SOURCE_POSITION:
                return types.STRING
            case _:
                return types.TIMESTAMP


class HistoryArguments(TypedDict, total=False):
    """The arguments of a history, by name."""

    type: Literal[1, 2]
    key: Sequence[str] | None
    track: Sequence[str] | None
    deletes: Literal["remove", "flag"]
    bounds: Literal["version", "commit_time", "source_time", "source_position"]
    current: bool


Choice = TypeVar("Choice", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class HistorySettings:
    """A history of type 1 or 2.

    key: columns that identify a row; by default those of the mirrored table.
    deletes: for type 1 (CF-197).
    track: for type 2, the columns whose change opens an interval; by default all (CF-207).
    bounds: for type 2, the kind of interval bounds.
    current: for type 2, whether a column flags the current row (CF-206).
    """

    type: HistoryType = HistoryType.INTERVALS
    key: tuple[str, ...] | None = None
    deletes: Deletes = Deletes.REMOVE
    track: tuple[str, ...] | None = None
    bounds: IntervalBounds = IntervalBounds.VERSION
    current: bool = False

    @classmethod
    def of(cls, **given: Unpack[HistoryArguments]) -> Self:
        """Check the arguments of a caller. Raises UsageError, which names the argument."""
        if unknown := given.keys() - HistoryArguments.__annotations__.keys():
            raise _refused(f"{min(unknown)} is no argument of a history")
        kind = given.get("type", 2)
        if isinstance(kind, bool) or kind not in set(HistoryType):
            raise _refused(f"type is {kind!r}, and not 1 or 2")
        if not isinstance(current := given.get("current", False), bool):
            raise _refused(f"current is {current!r}, and not true or false")
        key, track = _names("key", given.get("key")), _names("track", given.get("track"))
        settings = cls(
            HistoryType(kind),
            key,
            _choice("deletes", given.get("deletes", "remove"), Deletes),
            track,
            _choice("bounds", given.get("bounds", "version"), IntervalBounds),
            current,
        )
        of_other_type = {
            "track": kind == 1 and settings.track is not None,
            "bounds": kind == 1 and settings.bounds is not IntervalBounds.VERSION,
            "current": kind == 1 and settings.current,
            "deletes": kind == 2 and settings.deletes is not Deletes.REMOVE,
        }
        for name in (name for name, is_given in of_other_type.items() if is_given):
            raise _refused(f"{name} has no meaning for a history of type {kind}")
        return settings

    @property
    def columns(self) -> dict[str, DataType]:
        """The history's own columns, in addition to those of its source."""
        if self.type is HistoryType.NEWEST:
            return {IS_DELETED: types.BOOLEAN} if self.deletes is Deletes.FLAG else {}
        found = {START_AT: self.bounds.type, END_AT: self.bounds.type}
        found |= {IS_CURRENT: types.BOOLEAN} if self.current else {}
        return found | {FROM_SNAPSHOT: types.BOOLEAN}

    def as_record(self, key: Sequence[str]) -> Mapping[str, Any]:
        """The form stored in the target. key: the resolved key columns."""
        return {
            "type": int(self.type),
            "key": list(key),
            "deletes": str(self.deletes),
            "track": None if self.track is None else sorted(self.track),
            "bounds": str(self.bounds),
            "current": self.current,
        }


def _names(argument: str, given: Sequence[str] | None) -> tuple[str, ...] | None:
    if given is None:
        return None
    if isinstance(given, str) or not given or len(set(given)) != len(given):
        raise _refused(f"{argument} must be a list of different columns")
    return tuple(given)


def _choice(argument: str, given: str, kind: type[Choice]) -> Choice:
    try:
        return kind(given)
    except ValueError:
        raise _refused(f"{argument} is {given!r}, and not {' or '.join(kind)}") from None


def _refused(what: str) -> UsageError:
    return UsageError(what, hint="docs/how-to/keep-history.md lists the arguments.")
