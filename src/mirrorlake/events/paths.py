"""Folders and names of event files (ST-164 to ST-170)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Self

_KEY = r"[0-9a-f]{40}"
_WRITTEN = re.compile(rf"({_KEY})_([a-z-]+)_([0-9]+)_([0-9]+)_([0-9]+)(\.avro|\.jsonl(?:\.gz)?)")
_OF_KEY, _OF_FILE = ".avsc", ".schema"
"""How schema files end (ST-175): those of earlier releases, which are named by the schema key, one
for all files of a folder; and those that are named by the file that each is for."""
_ENDS = re.compile(r"\.(avro|jsonl?)(\.gz)?$")
_LONGEST = 200
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f/\\%]")


class EventExtension(StrEnum):
    """The extension determines the format (ST-170)."""

    AVRO = ".avro"
    JSON = ".jsonl"
    JSON_GZIP = ".jsonl.gz"


@dataclass(frozen=True, slots=True)
class EventFileName:
    """`<schema key>_<read method>_<batch>_<worker>_<sequence><extension>` (ST-168)."""

    schema_key: str
    read_method: str
    batch: int
    worker: int
    sequence: int
    extension: EventExtension

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a name that this class printed. Raises ValueError for any other."""
        match = _WRITTEN.fullmatch(text)
        if match is None:
            raise ValueError(f"{text[:200]!r} is no name of an event file of ours")
        batch, worker, sequence = (int(match[group]) for group in (3, 4, 5))
        return cls(match[1], match[2], batch, worker, sequence, EventExtension(match[6]))

    def __str__(self) -> str:
        numbers = f"{self.batch}_{self.worker}_{self.sequence}"
        return f"{self.schema_key}_{self.read_method}_{numbers}{self.extension}"


@dataclass(frozen=True, slots=True)
class NameFacts:
    """The facts that may be derived from the name of a foreign file (ST-169).

    schema_key: None when the name does not start with one.
    """

    schema_key: str | None
    is_backfill: bool

    @classmethod
    def of(cls, name: str) -> Self:
        """name: without its folders."""
        key = name.partition("_")[0]
        return cls(key if re.fullmatch(_KEY, key) else None, "backfill" in name)


def object_name(namespace: str, table: str) -> str:
    """The object name of a table: schema or database, `_`, table (ST-165)."""
    return f"{namespace}_{table}" if namespace else table


def object_folder(name: str) -> str:
    """The folder name of an object; characters that are unsafe in a path are percent-encoded, and
    so is `.` or `_` at the beginning, where readers take it for a name that is not of data.

    A name longer than 200 bytes ends in a hash of it. Raises ValueError for an empty name.
    """
    if not name:
        raise ValueError("an object must have a name")
    encoded = _UNSAFE.sub(lambda match: _percent(match[0]), name)
    if encoded[0] in "._":
        encoded = _percent(encoded[0]) + encoded[1:]
    if len(encoded.encode()) > _LONGEST:
        digest = hashlib.sha256(name.encode()).hexdigest()[:16]
        head = encoded.encode()[: _LONGEST - 20].decode(errors="ignore")
        encoded = f"{head.rstrip('%')}%~{digest}"
    return encoded


def minute_folder(name: str, moment: datetime) -> str:
    """`<object>/yyyy/mm/dd/hh/mm`, from the source timestamp in UTC (ST-164, ST-166).

    moment: aware.
    """
    at = moment.astimezone(UTC)  # strftime does not pad every year to four digits
    return f"{object_folder(name)}/{at.year:04}/{at:%m/%d/%H/%M}"


def schema_file(name: str, folder: str) -> str:
    """The path of the unified schema of a file of JSON in a folder (ST-175)."""
    return f"{folder}/{_stem(name)}{_OF_FILE}"


def is_schema_file(path: str) -> bool:
    return path.endswith((_OF_KEY, _OF_FILE))


@dataclass(frozen=True, slots=True)
class SchemaFiles:
    """The names of the schema files in a folder, by what the names of data files begin with."""

    names: Mapping[str, str]

    @classmethod
    def of(cls, names: Iterable[str]) -> Self:
        """names: of all files in the folder."""
        of_file, of_key = dict[str, str](), dict[str, str]()
        for name in names:
            if name.endswith(_OF_KEY):
                of_key[name.removesuffix(_OF_KEY)] = name
            elif name.endswith(_OF_FILE):
                stem = _stem(name.removesuffix(_OF_FILE))
                of_file[stem] = name
                # Files with one schema key have one schema.
                of_key.setdefault(NameFacts.of(name).schema_key or stem, name)
        return cls(of_key | of_file)

    def find(self, name: str) -> str:
        """That of a data file; "" for none."""
        found = self.names.get(_stem(name))
        return found or self.names.get(NameFacts.of(name).schema_key or "", "")


def _stem(name: str) -> str:
    return _ENDS.sub("", name)


def _percent(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode())
