"""Landed files: numbers, names and footers."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Self

from mirrorlake.errors import UsageError
from mirrorlake.model.change import Alteration
from mirrorlake.model.keys import KeyRange

_NEEDED = "Use the release that wrote it, or a later one."
FORMAT = "1"
_NAME = re.compile(r"([0-9]{20})\.([A-Za-z0-9][A-Za-z0-9.]*)")
_PREFIX = "mirrorlake."

DEFAULT_STREAM = "default"
"""The id of the only stream of a project, and of records that were stored without a stream id."""


@dataclass(frozen=True, order=True, slots=True)
class FileName:
    """The name of a data file in sequential mode: 20 digits and an extension (LZ-112, LZ-115)."""

    number: int
    extension: str = "parquet"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Parse a name; None if it is not the name of a data file (LZ-023)."""
        match = _NAME.fullmatch(text)
        # A folder may have a million names: they share one object per extension.
        return cls(int(match[1]), sys.intern(match[2])) if match else None

    def __str__(self) -> str:
        return f"{self.number:020d}.{self.extension}"


@dataclass(frozen=True, slots=True)
class PartName:
    """A data file in sequential mode below its table folder (LZ-059).

    folder: the partition folder relative to the table folder, "" for the table folder itself.
    """

    folder: str
    name: FileName

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Parse the printed form; None if its last part is not the name of a data file."""
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
        """Parse a name; None if it has none of the extensions (in any case), or begins with an
        underscore (LZ-021)."""
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
    """What a commit records for a table whose files have no single sequence: the number of the
    batch, counted from 1, the version of the commit, and the names of the files in the order of
    their application."""

    number: int
    version: int
    names: tuple[str, ...]


class FileKind(StrEnum):
    """The kind of content of a file that mirrorlake landed."""

    LOAD = "load"
    CHANGES = "changes"
    TRUNCATE = "truncate"
    BACKFILL = "backfill"


class LaterFormat(UsageError, ValueError):
    """The format was written by a later release."""

    def __init__(self, what: str, *, where: str = "", hint: str = _NEEDED) -> None:
        super().__init__(what, where=where, hint=hint)


@dataclass(frozen=True, slots=True)
class BackfillChunk:
    """The content of a backfill file: all rows of the source with a key in a range, as of the
    file's position. Other rows of the table in that range no longer exist in the source.

    backfill: the id of the backfill; number: of the chunk, from 1.
    """

    backfill: str
    number: int
    keys: KeyRange

    def encode(self) -> str:
        record = {"id": self.backfill, "chunk": self.number, "keys": self.keys.as_record()}
        return json.dumps(record, sort_keys=True)

    @classmethod
    def decode(cls, text: str) -> Self:
        """The inverse of `encode`. Raises ValueError, KeyError, TypeError."""
        record = json.loads(text)
        return cls(str(record["id"]), int(record["chunk"]), KeyRange.parse(record["keys"]))


@dataclass(frozen=True, slots=True)
class Checksum:
    """The CRC-32 of the first `size` bytes of a file: all of its pages, but not its footer."""

    size: int
    crc32: int

    def __str__(self) -> str:
        return f"{self.size}:{self.crc32:08x}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The inverse of `str`. Raises ValueError."""
        size, _, crc32 = text.partition(":")
        return cls(int(size), int(crc32, 16))


@dataclass(frozen=True, slots=True)
class RowKey:
    """By what changes find their rows: by these columns, by `whole_rows`, or by nothing."""

    columns: tuple[str, ...]
    whole_rows: bool = False

    def encode(self) -> str:
        return json.dumps({"columns": list(self.columns), "whole_rows": self.whole_rows})

    @classmethod
    def decode(cls, text: str) -> Self:
        facts = json.loads(text)
        return cls(tuple(map(str, facts["columns"])), bool(facts["whole_rows"]))


@dataclass(frozen=True, slots=True)
class Footer:
    """The footer of a file that mirrorlake landed, format version 1.

    stream: the UUID of the stream; a stream that is set up again has another one.
    stream_id: the id of the stream in the project.
    first, last: the printed positions of the first and last change; only the source can order them.
        For a load both are the snapshot's point with ordinal 0, for a backfill the point of its
        read.
    complete: whether the last transaction ends in this file; for a load, whether it is the last
        file.
    commit_times: of the first and last transaction.
    rows: the number of rows by marker.
    alteration: the change of columns before the first row of the file.
    backfill: the chunk that a file of a backfill contains.
    data_file: the checksum of a file that is written as a data file of the table would be.
    key: of the table as of the file; earlier releases did not record it, and loads do not.
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
    data_file: Checksum | None = None
    key: RowKey | None = None

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
        if self.data_file:
            facts["data_file"] = str(self.data_file)
        if self.alteration:
            facts["alteration"] = self.alteration.encode()
        if self.key:
            facts["key"] = self.key.encode()
        return {_PREFIX + name: value for name, value in facts.items()}

    @classmethod
    def decode(cls, metadata: Mapping[str, str]) -> Self | None:
        """Read the footer; None if another program published the file.

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
                data_file=Checksum.parse(facts["data_file"]) if "data_file" in facts else None,
                key=RowKey.decode(facts["key"]) if "key" in facts else None,
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


def readable_time(time: datetime | str) -> str:
    """For people: in UTC, to the second. A text is what `format_time` wrote."""
    moment = parse_time(time) if isinstance(time, str) else time
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def parse_time(text: str) -> datetime:
    """Read RFC 3339; without a zone it is UTC."""
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)
