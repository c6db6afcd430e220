"""`_metadata.json`: the description of a table by its publisher (section 2 of the
specification)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from mirrorlake.errors import BadMetadata
from mirrorlake.landing import lenient_json
from mirrorlake.landing.lenient_json import Note, NotJson
from mirrorlake.landing.text import members as textmembers
from mirrorlake.landing.text.format import TextFormat
from mirrorlake.landing.text.members import Members, WrongMember
from mirrorlake.model.landed import FORMAT

SEQUENTIAL = "SequentialFileName"
BY_TIME = "LastUpdateTimeFileDetection"
IN_PARTITIONS = "SequentialFileName in partitions"
"""A sequence in each partition folder (LZ-059). Not a value of the member: `isPartitionEnabled`
requests it, and the project must allow it."""
NAMED = frozenset({BY_TIME, IN_PARTITIONS})
"""Detections without a single sequence: batches are numbered, and the names of files are
recorded."""
_STRATEGIES = {name.lower(): name for name in (SEQUENTIAL, BY_TIME)}
LIMIT = 4 << 20
"""Maximum size of the file, in bytes: enough for tens of thousands of columns."""
_CORRECT = "Correct the file. It is read again when it changes."


@dataclass(frozen=True, slots=True)
class OurMetadata:
    """The member `mirrorlake`, written by our capture; others ignore it (LZ-051).

    generation: a UUID that changes when the table is loaded again.
    table: the true name.
    source: the identity of the source and the selection of the table.
    whole_rows: the table has no key; a delete (marker 2) removes one row that equals it in all
        columns.
    """

    generation: str
    table: str
    source: Mapping[str, Any] = field(default_factory=dict)
    whole_rows: bool = False


@dataclass(frozen=True, slots=True)
class Metadata:
    """A parsed `_metadata.json`.

    text: the format of delimited text, None if it is not described; conditional: the member
    `ConditionalUpdateColumn`, which has no effect (LZ-058); partitioned: `isPartitionEnabled`
    (LZ-059); unknown: members that were ignored (LZ-051); notes: tolerances that were needed to
    read the file (LZ-052).
    """

    key_columns: tuple[str, ...] = ()
    detection: str = SEQUENTIAL
    upsert_default: bool = False
    file_format: str | None = None
    file_extension: str | None = None
    ours: OurMetadata | None = None
    unknown: tuple[str, ...] = ()
    text: TextFormat | None = None
    conditional: str | None = None
    partitioned: bool = False
    notes: tuple[Note, ...] = ()

    @property
    def whole_rows(self) -> bool:
        """As `OurMetadata.whole_rows`; always false for a table with a key."""
        return self.ours is not None and self.ours.whole_rows and not self.key_columns


def encode(metadata: Metadata) -> bytes:
    """Strict JSON with the spellings of LZ-053."""
    record: dict[str, Any] = {"keyColumns": list(metadata.key_columns)}
    if metadata.detection != SEQUENTIAL:
        record["fileDetectionStrategy"] = metadata.detection
    if metadata.upsert_default:
        record["isUpsertDefaultRowMarker"] = True
    if metadata.text:
        record |= textmembers.encode(metadata.text)
    if metadata.ours:
        record["mirrorlake"] = {
            "format": FORMAT,
            "generation": metadata.ours.generation,
            "table": metadata.ours.table,
            "source": dict(metadata.ours.source),
        }
        if metadata.ours.whole_rows:
            record["mirrorlake"]["whole_rows"] = True
    return (json.dumps(record, indent=2, ensure_ascii=False) + "\n").encode()


def decode(content: bytes, *, table: str, file: str) -> Metadata:
    """Read `_metadata.json` leniently (LZ-052); names and enumerated values in any case (LZ-050).

    Raises BadMetadata with the position of the error (LZ-054).
    """
    bad = partial(BadMetadata, table=table, file=file, hint=_CORRECT)
    if len(content) > LIMIT:
        raise bad(f"it has more than {LIMIT:,} bytes", hint="Write only what describes the table.")
    try:
        parsed = lenient_json.parse(content)
    except NotJson as error:
        at = f"line {error.line}, column {error.column}"
        raise bad(f"not valid JSON at {at}: {error.message}") from error
    if not isinstance(parsed.value, dict):
        hint = 'Write one object, such as {"keyColumns": ["id"]}.'
        raise bad("not a single JSON object (LZ-030)", hint=hint)
    try:
        # JSON can contain an unpaired surrogate, which is not possible in a column name.
        json.dumps(parsed.value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise bad(
            "a string contains an unpaired surrogate, such as \\ud800, which is not a character"
        ) from None
    members = Members(parsed.value)
    try:
        return _metadata(members, parsed.notes, _ours(members.get("mirrorlake"), table, bad))
    except WrongMember as wrong:
        offset = lenient_json.locate(content, wrong.path)
        at = f" at line {offset[0]}, column {offset[1]}" if offset else ""
        raise bad(f"{wrong}{at}") from wrong


MEMBERS = (
    "keyColumns",
    "fileDetectionStrategy",
    "isUpsertDefaultRowMarker",
    "ConditionalUpdateColumn",
    "isPartitionEnabled",
    "mirrorlake",
    *textmembers.MEMBERS,
)


def _metadata(members: Members, notes: tuple[Note, ...], ours: OurMetadata | None) -> Metadata:
    """Raises WrongMember."""
    conditional = members.get("ConditionalUpdateColumn")
    return Metadata(
        key_columns=_key(members),
        detection=_detection(members),
        upsert_default=_upsert(members),
        file_format=members.text("FileFormat"),
        file_extension=members.text("FileExtension"),
        ours=ours,
        unknown=tuple(sorted(members.others(MEMBERS))),
        text=textmembers.decode(members),
        conditional=None if conditional is None else str(conditional),
        partitioned=bool(members.boolean("isPartitionEnabled")),
        notes=notes,
    )


def _key(members: Members) -> tuple[str, ...]:
    keys = members.get("keyColumns")
    if keys is None:
        return ()
    if not isinstance(keys, list) or not all(isinstance(key, str) and key for key in keys):
        raise members.wrong("keyColumns", "an array of column names")
    return tuple(dict.fromkeys(keys))


def _detection(members: Members) -> str:
    found = members.get("fileDetectionStrategy")
    if found is None:
        return SEQUENTIAL
    if str(found).lower() not in _STRATEGIES:
        raise members.wrong("fileDetectionStrategy", " or ".join(_STRATEGIES.values()))
    return _STRATEGIES[str(found).lower()]


def _upsert(members: Members) -> bool:
    found = members.get("isUpsertDefaultRowMarker")
    if found is not None and not isinstance(found, bool):
        raise members.wrong("isUpsertDefaultRowMarker", "true or false")
    return bool(found)


def _ours(member: Any, table: str, bad: Callable[..., BadMetadata]) -> OurMetadata | None:
    if member is None:
        return None
    if not isinstance(member, dict) or member.get("format") != FORMAT:
        found = member.get("format") if isinstance(member, dict) else member
        raise bad(
            f"the member mirrorlake has format {found!r}; this release reads format {FORMAT!r}",
            hint="Use the release that wrote this landing zone, or a later one.",
        )
    generation, name = member.get("generation"), member.get("table")
    source, whole_rows = member.get("source") or {}, member.get("whole_rows", False)
    if not (
        isinstance(generation, str)
        and isinstance(name, str)
        and isinstance(source, dict)
        and isinstance(whole_rows, bool)
    ):
        raise bad(
            "the member mirrorlake is damaged: generation and table must be strings, source an "
            "object, and whole_rows true or false",
            hint=f"Run `mirrorlake reset {table}` to reload the table.",
        )
    return OurMetadata(generation, name, source, whole_rows)
