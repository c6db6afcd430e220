"""The requests of readers: bounds and options, validated before anything is read (CF-158)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from enum import StrEnum
from typing import Literal, Self, TypedDict, TypeVar, Unpack
from zoneinfo import ZoneInfo

from mirrorlake.errors import FeedError
from mirrorlake.feed.reasons import HINTS, FeedReason
from mirrorlake.model.position import LogNumber, Lsn, Position

_TIME = re.compile(
    r"(?P<day>\d{4}-\d{2}-\d{2})"
    r"(?:[ T](?P<clock>\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?)(?P<offset>Z|[+-]\d{2}:?\d{2})?)?"
    r"(?: (?P<zone>[A-Za-z][\w+/-]*))?"
)
_VERSION = re.compile(r"[+-]?\d+")
_POSITION, _SOURCE = "position:", "source:"
_POINTS = (Lsn, LogNumber)

Moment = str | datetime | date
Choice = TypeVar("Choice", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class AtVersion:
    """A version of the table."""

    version: int

    def __str__(self) -> str:
        return f"version {self.version}"


@dataclass(frozen=True, slots=True)
class AtTime:
    """A time of commits to the table, in UTC."""

    time: datetime

    def __str__(self) -> str:
        return f"time {self.time.isoformat(' ')}"


@dataclass(frozen=True, slots=True)
class AtPosition:
    """A position in the log of the source."""

    position: Position
    text: str

    def __str__(self) -> str:
        return f"position {self.text}"


@dataclass(frozen=True, slots=True)
class AtSourceTime:
    """A time of commits in the source, in UTC."""

    time: datetime

    def __str__(self) -> str:
        return f"source time {self.time.isoformat(' ')}"


@dataclass(frozen=True, slots=True)
class Beginning:
    """The first readable version."""

    def __str__(self) -> str:
        return "the beginning"


End = AtVersion | AtTime | AtPosition | AtSourceTime
Start = End | Beginning


class BeyondLatest(StrEnum):
    """The effect of a bound after the latest version (CF-162)."""

    CLIP = "clip"
    ERROR = "error"


class OnGap(StrEnum):
    """The effect of versions without the feed (CF-172)."""

    ERROR = "error"
    REPORT = "report"


class OnSchemaChange(StrEnum):
    """The effect of a schema change that old rows do not fit (CF-174)."""

    PIECES = "pieces"
    UNITE = "unite"
    ERROR = "error"


class FeedArguments(TypedDict, total=False):
    """The arguments of a reader, by name. One start is required; `to_` bounds the end."""

    from_version: int | None
    from_time: Moment | None
    from_position: str | None
    from_source_time: Moment | None
    from_beginning: bool
    to_version: int | None
    to_time: Moment | None
    to_position: str | None
    to_source_time: Moment | None
    beyond_latest: Literal["clip", "error"]
    on_gap: Literal["error", "report"]
    on_schema_change: Literal["pieces", "unite", "error"]
    pair_updates: bool
    skip_unchanged: bool
    sort: bool
    key: Sequence[str] | None


@dataclass(frozen=True, slots=True)
class FeedRequest:
    """A range of the feed of a table, both ends inclusive, and how to read it.

    key: columns that identify a row; by default those of the mirrored table.
    pair_updates: return a delete and an insert of one key in one version as an update (CF-146).
    skip_unchanged: omit updates that change nothing (CF-023).
    is_sorted: sort the rows of a version by key (CF-178).
    """

    table: str
    start: Start
    end: End | None = None
    beyond_latest: BeyondLatest = BeyondLatest.CLIP
    on_gap: OnGap = OnGap.ERROR
    on_schema_change: OnSchemaChange = OnSchemaChange.PIECES
    pair_updates: bool = False
    skip_unchanged: bool = False
    is_sorted: bool = False
    key: tuple[str, ...] | None = None

    def __str__(self) -> str:
        return f"{self.start} to {self.end or 'the latest version'}"

    @classmethod
    def of(cls, table: str, **given: Unpack[FeedArguments]) -> Self:
        """Check the arguments of a reader. Raises FeedError, which names the argument."""
        check = _Check(table)
        if unknown := given.keys() - FeedArguments.__annotations__.keys():
            raise check.refused(f"{min(unknown)} is no argument of a reader of the feed")
        starts = check.given(
            from_version=given.get("from_version"),
            from_time=given.get("from_time"),
            from_position=given.get("from_position"),
            from_source_time=given.get("from_source_time"),
        )
        is_beginning, is_paired, is_skipping, is_sorted = (
            check.switch(name, given.get(name, False))
            for name in ("from_beginning", "pair_updates", "skip_unchanged", "sort")
        )
        if is_beginning:
            starts["from_beginning"] = Beginning()
        ends = check.given(
            to_version=given.get("to_version"),
            to_time=given.get("to_time"),
            to_position=given.get("to_position"),
            to_source_time=given.get("to_source_time"),
        )
        for several in (starts, ends):
            if len(several) > 1:
                raise check.refused(f"{' and '.join(several)} are given; one bound has one of them")
        if not starts:
            raise check.refused("the start of the range is missing", FeedReason.START_MISSING)
        (start,) = starts.values()
        end = next(iter(ends.values()), None)
        assert not isinstance(end, Beginning)
        request = cls(
            table,
            start,
            end,
            check.choice("beyond_latest", given.get("beyond_latest", "clip"), BeyondLatest),
            check.choice("on_gap", given.get("on_gap", "error"), OnGap),
            check.choice(
                "on_schema_change", given.get("on_schema_change", "pieces"), OnSchemaChange
            ),
            is_paired,
            is_skipping,
            is_sorted,
            check.columns("key", given.get("key")),
        )
        if _is_before(end, start):
            raise request.refused("the end is before the start", FeedReason.INVALID_RANGE)
        return request

    def refused(
        self, what: str, reason: FeedReason, readable: tuple[int, int] | None = None, hint: str = ""
    ) -> FeedError:
        """An error of this request."""
        return FeedError(
            what,
            reason=reason,
            table=self.table,
            requested=str(self),
            readable=readable,
            hint=hint or HINTS[reason],
        )


def start_named(text: str) -> FeedArguments:
    """Parse a start: `10` is a version, `beginning` the first readable version,
    `position:0/4BFD4D8` a position of the source, `source:2026-11-23 10:00` a time of the source,
    anything else a time of the table."""
    if text == "beginning":
        return {"from_beginning": True}
    if _VERSION.fullmatch(text):
        return {"from_version": int(text)}
    if text.startswith(_POSITION):
        return {"from_position": text.removeprefix(_POSITION)}
    if text.startswith(_SOURCE):
        return {"from_source_time": text.removeprefix(_SOURCE)}
    return {"from_time": text}


def end_named(text: str) -> FeedArguments:
    """Like `start_named`, for an end, without `beginning`."""
    if _VERSION.fullmatch(text):
        return {"to_version": int(text)}
    if text.startswith(_POSITION):
        return {"to_position": text.removeprefix(_POSITION)}
    if text.startswith(_SOURCE):
        return {"to_source_time": text.removeprefix(_SOURCE)}
    return {"to_time": text}


@dataclass(frozen=True, slots=True)
class _Check:
    table: str

    def refused(
        self, what: str, reason: FeedReason = FeedReason.INVALID_ARGUMENT, hint: str = ""
    ) -> FeedError:
        return FeedError(what, reason=reason, table=self.table, hint=hint or HINTS[reason])

    def given(self, **bounds: object) -> dict[str, Start]:
        """The given bounds of one side, by the names of their arguments."""
        found: dict[str, Start] = {}
        for name, value in bounds.items():
            if value is not None:
                found[name] = self._bound(name, value)
        return found

    def _bound(self, name: str, value: object) -> End:
        if name.endswith("version"):
            return self._version(name, value)
        if name.endswith("position"):
            return self._position(name, value)
        moment = self._time(name, value)
        return AtSourceTime(moment) if name.endswith("source_time") else AtTime(moment)

    def choice(self, name: str, value: str, kind: type[Choice]) -> Choice:
        try:
            return kind(value)
        except ValueError:
            known = ", ".join(kind)
            raise self.refused(f"{name} is {value!r}; it can be {known}") from None

    def switch(self, name: str, value: object) -> bool:
        if not isinstance(value, bool):
            raise self.refused(f"{name} is {value!r}, and not true or false")
        return value

    def columns(self, name: str, value: object) -> tuple[str, ...] | None:
        if value is None:
            return None
        # A text is a sequence of texts, too.
        names = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else None
        if names is None or not all(isinstance(column, str) for column in names):
            raise self.refused(f"{name} is {value!r}, and not a list of columns")
        return names

    def _version(self, name: str, value: object) -> AtVersion:
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.refused(f"{name} is {value!r}, which is not a whole number")
        if value < 0:
            raise self.refused(f"{name} is {value}, and versions are not negative")
        return AtVersion(value)

    def _time(self, name: str, value: object) -> datetime:
        """In UTC, unless an offset or a time zone is given (CF-159)."""
        try:
            moment = _parsed(value) if isinstance(value, str) else value
            if isinstance(moment, date) and not isinstance(moment, datetime):
                moment = datetime.combine(moment, time())
            if not isinstance(moment, datetime):
                raise self._no_time(name, value)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
        except (ValueError, OverflowError, OSError, KeyError) as error:
            # ZoneInfo raises OSError and KeyError for invalid names.
            raise self._no_time(name, value) from error

    def _no_time(self, name: str, value: object) -> FeedError:
        return self.refused(
            f"{name} is {value!r}, which is not a time",
            hint="Write a time as yyyy-MM-dd[ HH:mm:ss[.SSS]], which is in UTC, or in ISO 8601 "
            "with an offset.",
        )

    def _position(self, name: str, text: object) -> AtPosition:
        try:
            return AtPosition(parse_position(str(text)), str(text))
        except ValueError:
            raise self.refused(
                f"{name} is {text!r}, which is not a position",
                hint="`mirrorlake status` shows the position of each table.",
            ) from None


def parse_position(text: str) -> Position:
    """A position in the log of any source; a point alone means the position after its transactions.
    Raises ValueError."""
    for kind in _POINTS:
        with suppress(ValueError):
            return Position.parse(text, kind.parse)
        with suppress(ValueError):
            return Position.after(kind.parse(text))
    raise ValueError(f"not a position: {text!r}")


def _parsed(text: str) -> datetime:
    match = _TIME.fullmatch(text)
    if not match or (match["offset"] and match["zone"]):
        raise ValueError(text)
    moment = datetime.fromisoformat(f"{match['day']}T{match['clock'] or '00:00'}")
    if match["offset"]:
        return moment.replace(
            tzinfo=datetime.fromisoformat(f"{moment.date()}T00:00{match[3]}").tzinfo
        )
    return moment.replace(tzinfo=ZoneInfo(match["zone"])) if match["zone"] else moment


def _is_before(end: End | None, start: Start) -> bool:
    """Whether two bounds of the same kind are in the wrong order."""
    match start, end:
        case AtVersion(first), AtVersion(last):
            return last < first
        case (AtTime(begin), AtTime(until)) | (AtSourceTime(begin), AtSourceTime(until)):
            return until < begin
        case AtPosition(begin), AtPosition(until) if type(begin.point) is type(until.point):
            return not until.covers(begin) and begin.covers(until)
    return False
