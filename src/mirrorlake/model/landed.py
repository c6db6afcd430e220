"""Landed files: their numbers, their names, and what their footers say."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Self

from mirrorlake.model.change import Alteration
from mirrorlake.model.keys import KeyRange

FORMAT = "1"
_NAME = re.compile(r"([0-9]{20})\.([A-Za-z0-9][A-Za-z0-9.]*)")
_PREFIX = "mirrorlake."

DEFAULT_STREAM = "default"
"""The id of the only stream of a project, and of what was stored before streams had ids."""


@dataclass(frozen=True, order=True, slots=True)
class FileName:
    """The name of a data file in sequential mode: 20 digits and an extension (LZ-112, LZ-115)."""

    number: int
    extension: str = "parquet"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The parsed name; None when this is not the name of a data file (LZ-023)."""
        match = _NAME.fullmatch(text)
        # A folder may hold a million names: their extensions are one object.
        return cls(int(match[1]), sys.intern(match[2])) if match else None

    def __str__(self) -> str:
        return f"{self.number:020d}.{self.extension}"


@dataclass(frozen=True, slots=True)
class PartName:
    """A data file in sequential mode below its table folder (LZ-059).

    folder: the partition folder, relative to the table folder, and "" for a file that lies in the
    table folder itself.
    """

    folder: str
    name: FileName

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The printed form read again; None when it ends in no name of a data file."""
        folder, _, base = text.rpartition("/")
        name = FileName.parse(base)
        return cls(folder, name) if name else None

    @property
    def number(self) -> int:
        return self.name.number

    @property
    def extension(self) -> str:
        return self.name.extension

    def __str__(self) -> str:
        return f"{self.folder}/{self.name}" if self.folder else str(self.name)


@dataclass(frozen=True, slots=True)
class FreeName:
    """The name of a data file in timestamp mode: any text before the extension (LZ-123)."""

    text: str
    extension: str = "parquet"

    @classmethod
    def parse(cls, text: str, extensions: Iterable[str]) -> Self | None:
        """The parsed name; None when it ends in none of the extensions, in any case, or when an
        underscore hides it (LZ-021)."""
        if text.startswith("_"):
            return None
        for extension in extensions:
            stem = len(text) - len(extension) - 1
            if extension and stem > 0 and text[stem:].lower() == f".{extension.lower()}":
                return cls(text, text[stem + 1 :])
        return None

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class NamedBatch:
    """What a commit of a table without one sequence records: the number of its batch, counted from
    1, the version that it made, and the names of the files in the order in which they were applied.
    """

    number: int
    version: int
    names: tuple[str, ...]


class FileKind(StrEnum):
    """What a landed file of ours holds."""

    LOAD = "load"
    CHANGES = "changes"
    TRUNCATE = "truncate"
    BACKFILL = "backfill"


class LaterFormat(ValueError):
    """A stored format of a later release."""


@dataclass(frozen=True, slots=True)
class BackfillChunk:
    """What a file of a backfill holds: all rows of the source with a key in a range, as they are at
    the file's position. What the table has there besides is gone.

    backfill: its id; number: of the chunk, from 1.
    """

    backfill: str
    number: int
    keys: KeyRange

    def encode(self) -> str:
        record = {"id": self.backfill, "chunk": self.number, "keys": self.keys.as_record()}
        return json.dumps(record, sort_keys=True)

    @classmethod
    def decode(cls, text: str) -> Self:
        """Read it. Raises ValueError, KeyError, TypeError."""
        record = json.loads(text)
        return cls(str(record["id"]), int(record["chunk"]), KeyRange.parse(record["keys"]))


@dataclass(frozen=True, slots=True)
class Footer:
    """What a landed file of ours says about itself, format version 1.

    `stream_id` tells the streams of a project apart, `stream` those of one id from the ones before
    it. `first` and `last` are the positions of its first and last change, in the printed form that
    only their source can order; `complete` tells whether the last transaction ends in this file.
    For a load both positions are the snapshot's point with ordinal 0, and `complete` marks the last
    file. alteration: what happened to the columns before the first row of the file.

    For a backfill both are the point at which its rows hold, and `backfill` says which rows.
    """

    stream: str
    kind: FileKind
    first: str
    last: str
    complete: bool
    commit_times: tuple[datetime, datetime] | None = None
    rows: Mapping[str, int] = field(default_factory=dict)
    stream_id: str = DEFAULT_STREAM
    alteration: Alteration | None = None
    backfill: BackfillChunk | None = None

    def encode(self) -> dict[str, str]:
        """The key-value metadata of the Parquet file."""
        facts = {
            "format": FORMAT,
            "stream": self.stream,
            "stream_id": self.stream_id,
            "kind": str(self.kind),
            "first": self.first,
            "last": self.last,
            "complete": "true" if self.complete else "false",
            "rows": json.dumps(dict(self.rows), sort_keys=True),
        }
        if self.backfill:
            facts["backfill"] = self.backfill.encode()
        if self.commit_times:
            facts["commit_time.first"], facts["commit_time.last"] = map(
                format_time, self.commit_times
            )
        if self.alteration:
            facts["alteration"] = self.alteration.encode()
        return {_PREFIX + name: value for name, value in facts.items()}

    @classmethod
    def decode(cls, metadata: Mapping[str, str]) -> Self | None:
        """Read the footer; None for a file of another publisher.

        Raises LaterFormat for a format of a later release, ValueError for a damaged footer.
        """
        facts = {k.removeprefix(_PREFIX): v for k, v in metadata.items() if k.startswith(_PREFIX)}
        if "format" not in facts:
            return None
        if facts["format"] != FORMAT:
            raise LaterFormat(
                f"landed file format {facts['format']}; this release reads format {FORMAT}"
            )
        try:
            times = None
            if "commit_time.first" in facts:
                times = (
                    parse_time(facts["commit_time.first"]),
                    parse_time(facts["commit_time.last"]),
                )
            kind = FileKind(facts["kind"])
            return cls(
                stream=facts["stream"],
                kind=kind,
                first=facts["first"],
                last=facts["last"],
                complete=_boolean(facts["complete"]),
                commit_times=times,
                rows={str(k): int(v) for k, v in json.loads(facts["rows"]).items()},
                stream_id=facts.get("stream_id", DEFAULT_STREAM),
                alteration=Alteration.decode(facts["alteration"])
                if "alteration" in facts
                else None,
                backfill=(
                    BackfillChunk.decode(facts["backfill"]) if kind is FileKind.BACKFILL else None
                ),
            )
        except KeyError as missing:
            raise ValueError(f"the footer does not have {_PREFIX}{missing.args[0]}") from None
        except (AttributeError, TypeError, RecursionError) as error:
            raise ValueError(f"a member of the footer cannot be read: {error}") from None


def _boolean(text: str) -> bool:
    if text not in {"true", "false"}:
        raise ValueError(f"expected true or false, not {text!r}")
    return text == "true"


def format_time(time: datetime) -> str:
    """RFC 3339 in UTC with microseconds."""
    in_utc = time.astimezone(UTC).replace(tzinfo=None)
    return in_utc.isoformat(timespec="microseconds") + "Z"


def parse_time(text: str) -> datetime:
    """Read RFC 3339; without a zone it is UTC."""
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)
