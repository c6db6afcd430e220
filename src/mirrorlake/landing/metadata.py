"""`_metadata.json`: what a publisher says about a table (section 2 of the specification)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mirrorlake.errors import BadMetadata
from mirrorlake.model.landed import FORMAT

SEQUENTIAL = "SequentialFileName"
BY_TIME = "LastUpdateTimeFileDetection"
_STRATEGIES = {name.lower(): name for name in (SEQUENTIAL, BY_TIME)}


@dataclass(frozen=True, slots=True)
class OurMetadata:
    """The member `mirrorlake` that our publisher writes; others ignore it (LZ-051).

    `generation` is a UUID that changes when the table is loaded anew; `table` is the true name;
    `source` names the source and what was selected of the table.
    """

    generation: str
    table: str
    source: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Metadata:
    """A parsed `_metadata.json`. `unknown` lists members that were ignored (LZ-051)."""

    key_columns: tuple[str, ...] = ()
    detection: str = SEQUENTIAL
    upsert_default: bool = False
    file_format: str | None = None
    file_extension: str | None = None
    ours: OurMetadata | None = None
    unknown: tuple[str, ...] = ()


def encode(metadata: Metadata) -> bytes:
    """Strict JSON with the spellings of LZ-053."""
    record: dict[str, Any] = {"keyColumns": list(metadata.key_columns)}
    if metadata.detection != SEQUENTIAL:
        record["fileDetectionStrategy"] = metadata.detection
    if metadata.upsert_default:
        record["isUpsertDefaultRowMarker"] = True
    if metadata.ours:
        record["mirrorlake"] = {
            "format": FORMAT,
            "generation": metadata.ours.generation,
            "table": metadata.ours.table,
            "source": dict(metadata.ours.source),
        }
    return (json.dumps(record, indent=2, ensure_ascii=False) + "\n").encode()


def decode(content: bytes, *, table: str, file: str) -> Metadata:
    """Read `_metadata.json`; member names and enumerated values in any case (LZ-050).

    Raises BadMetadata with the place of the fault (LZ-054).
    """
    record = _record(content, table, file)
    members = {name.lower(): (name, value) for name, value in record.items()}
    known: dict[str, Any] = {name: members.pop(name.lower(), ("", None))[1] for name in _MEMBERS}

    def wrong(member: str, expected: str) -> BadMetadata:
        return BadMetadata(
            f"{member} is {known[member]!r}, expected {expected}",
            table=table,
            file=file,
            hint="Mend the file; it is read again when it changes.",
        )

    keys = known["keyColumns"] if known["keyColumns"] is not None else []
    if not isinstance(keys, list) or not all(isinstance(key, str) and key for key in keys):
        raise wrong("keyColumns", "an array of column names")
    detection = known["fileDetectionStrategy"]
    if detection is not None and str(detection).lower() not in _STRATEGIES:
        raise wrong("fileDetectionStrategy", " or ".join(_STRATEGIES.values()))
    upsert = known["isUpsertDefaultRowMarker"]
    if upsert is not None and not isinstance(upsert, bool):
        raise wrong("isUpsertDefaultRowMarker", "true or false")
    return Metadata(
        key_columns=tuple(dict.fromkeys(keys)),
        detection=_STRATEGIES[str(detection or SEQUENTIAL).lower()],
        upsert_default=bool(upsert),
        file_format=_text(known["FileFormat"]),
        file_extension=_text(known["FileExtension"]),
        ours=_ours(known["mirrorlake"], table, file),
        unknown=tuple(sorted(name for name, _ in members.values())),
    )


_MEMBERS = (
    "keyColumns",
    "fileDetectionStrategy",
    "isUpsertDefaultRowMarker",
    "FileFormat",
    "FileExtension",
    "mirrorlake",
)


def _record(content: bytes, table: str, file: str) -> dict[str, Any]:
    try:
        record = json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise BadMetadata(
            f"byte {error.start} is not UTF-8",
            table=table,
            file=file,
            hint="Write the file as UTF-8.",
        ) from error
    except json.JSONDecodeError as error:
        raise BadMetadata(
            f"not JSON at line {error.lineno}, column {error.colno}: {error.msg}",
            table=table,
            file=file,
            hint="Mend the file; it is read again when it changes.",
        ) from error
    except (ValueError, RecursionError) as error:  # a number or a nesting without end
        raise BadMetadata(
            f"cannot be read as JSON: {error}",
            table=table,
            file=file,
            hint="Mend the file; it is read again when it changes.",
        ) from error
    if not isinstance(record, dict):
        raise BadMetadata(
            "not one JSON object (LZ-030)",
            table=table,
            file=file,
            hint='Write one object, such as {"keyColumns": ["id"]}.',
        )
    return record


def _ours(member: Any, table: str, file: str) -> OurMetadata | None:
    if member is None:
        return None
    if not isinstance(member, dict) or member.get("format") != FORMAT:
        found = member.get("format") if isinstance(member, dict) else member
        raise BadMetadata(
            f"the member mirrorlake has format {found!r}, this release reads {FORMAT!r}",
            table=table,
            file=file,
            hint="Read this zone with the release that wrote it, or a later one.",
        )
    generation, name = member.get("generation"), member.get("table")
    source = member.get("source") or {}
    if not (isinstance(generation, str) and isinstance(name, str) and isinstance(source, dict)):
        raise BadMetadata(
            "the member mirrorlake is damaged: generation and table are texts, source is an object",
            table=table,
            file=file,
            hint=f"Load the table anew with `mirrorlake reset {table}`.",
        )
    return OurMetadata(generation, name, source)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
