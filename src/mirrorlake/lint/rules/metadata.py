"""Rules on `_metadata.json` but for delimited text (section 2 of the specification)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mirrorlake.errors import BadMetadata
from mirrorlake.landing import layout, lenient_json, metadata
from mirrorlake.landing.lenient_json import NotJson
from mirrorlake.landing.metadata import BY_TIME, SEQUENTIAL, Metadata
from mirrorlake.landing.text.members import MEMBERS
from mirrorlake.lint.finding import (
    FindingLocation,
    Report,
    Rule,
    Severity,
    Version,
    listed,
    shown,
)
from mirrorlake.lint.json_members import Record, repeated, written
from mirrorlake.lint.rules import text_metadata as text_member_rules

ERROR, WARNING, NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE

ABSENT = Rule(
    "LZ-029",
    "metadata-absent",
    "A table folder has no _metadata.json",
    ERROR,
    f"{layout.METADATA} in the table folder",
    "Every table folder must contain the file. The original ignores a folder without it, and so "
    "does our engine unless `metadata_required` is false; the table is then insert-only.",
    'Write it, with the key of the table: `{"keyColumns": ["id"]}`.',
    "orders/00000000000000000001.parquet",
    also=(
        "LZ-041",
        "LZ-056",
    ),
)
NO_OBJECT = Rule(
    "LZ-030",
    "metadata-no-object",
    "_metadata.json is not a single JSON object",
    ERROR,
    "one JSON object",
    "The file contains one JSON object. Anything else stops the table.",
    'Write one object, such as `{"keyColumns": ["id"]}`.',
    '["id"]',
)
KEY_SHAPE = Rule(
    "LZ-031",
    "key-columns-no-array",
    "keyColumns is not an array of column names",
    ERROR,
    "an array of column names",
    "`keyColumns` is a list of the columns that form the unique key, even if it is only one.",
    'Write `"keyColumns": ["id"]`.',
    '{"keyColumns": "id"}',
)
KEY_TWICE = Rule(
    "LZ-032",
    "key-column-twice",
    "keyColumns names a column twice",
    WARNING,
    "each column once",
    "Several names form a composite key. A repeated name adds nothing, but may be a mistyped "
    "second column; different rows are then treated as one.",
    "Name each key column once.",
    '{"keyColumns": ["id", "id"]}',
)
V2_MEMBER = Rule(
    "LZ-033",
    "member-of-v2",
    "_metadata.json has a member that the v1 page does not define",
    WARNING,
    "only keyColumns",
    "On the v1 page the object has key columns only. A reader of that version ignores the "
    "member: it reads files in the order of their numbers, and inserts rows without a marker.",
    "Remove the member, or lint with `--version v2`.",
    '{"keyColumns": ["id"], "isUpsertDefaultRowMarker": true}',
    only=Version.V1,
)
NO_KEY = Rule(
    "LZ-034",
    "no-key",
    "The table has no key columns",
    NOTE,
    "keyColumns, unless rows are only ever inserted",
    "Without `keyColumns` the table is insert-only: updates and deletes are not possible.",
    "If rows are ever updated or deleted, name the key columns. They can be added at any time, "
    "once.",
    "{}",
)
DETECTION = Rule(
    "LZ-047",
    "unknown-detection",
    "fileDetectionStrategy has an unknown value",
    ERROR,
    f"{SEQUENTIAL} or {BY_TIME}",
    "The member defines whether files are ordered by number or by time. There is no safe default "
    "for an unknown value.",
    "Write one of the two, or omit the member for the first.",
    '{"fileDetectionStrategy": "Timestamp"}',
)
UPSERT_SHAPE = Rule(
    "LZ-048",
    "upsert-default-no-boolean",
    "isUpsertDefaultRowMarker is neither true nor false",
    ERROR,
    "true or false",
    "The member defines whether a row without a marker is an upsert or an insert. A string such "
    'as `"true"` is not accepted.',
    "Write `true` or `false` without quotes.",
    '{"isUpsertDefaultRowMarker": "true"}',
)
MEMBER_TWICE = Rule(
    "LZ-050",
    "member-twice",
    "A member occurs twice in _metadata.json",
    WARNING,
    "each member once",
    "Names of members are compared without regard to case. Of two equal names our engine uses "
    "the last; the behavior of other readers is not defined.",
    "Keep one of them.",
    '{"keyColumns": ["id"], "KeyColumns": ["no"]}',
    also=("LZ-329",),
)
UNKNOWN_MEMBER = Rule(
    "LZ-051",
    "unknown-member",
    "_metadata.json has an unknown member",
    NOTE,
    "members of the specification",
    "Unknown members are ignored, and so is a mistyped one.",
    "Correct the name, or remove the member.",
    '{"keyColums": ["id"]}',
)
SPELLING = Rule(
    "LZ-053",
    "member-spelling",
    "A member of _metadata.json is written in another case",
    NOTE,
    "keyColumns, fileDetectionStrategy and isUpsertDefaultRowMarker in exactly this case",
    "The v2 page itself shows two spellings, and our engine accepts any. Both pages have the "
    "lower camel case.",
    "Write the member as the specification does.",
    '{"KeyColumns": ["id"]}',
)
LENIENT = Rule(
    "LZ-053",
    "metadata-not-strict",
    "_metadata.json is not strict JSON",
    WARNING,
    "strict JSON in UTF-8 without a byte order mark",
    "Official samples contain trailing commas, an unquoted word, a single backslash and a byte "
    "order mark, so our engine accepts these four. It is not documented that the original does.",
    "Write the file with a JSON library.",
    '{ "keyColumns": ["C1", "C2"], }',
    strict=ERROR,
    also=("LZ-052", "LZ-330", "LZ-331", "LZ-332"),
)
UNREADABLE = Rule(
    "LZ-054",
    "metadata-unreadable",
    "_metadata.json cannot be read",
    ERROR,
    "JSON in UTF-8",
    "A file that cannot be read even leniently stops the table. It is read again when it changes.",
    "Correct the file at the position that the finding names.",
    '{"keyColumns": ["id"',
)
MANY_KEYS = Rule(
    "LZ-057",
    "many-key-columns",
    "The key has five or more columns",
    WARNING,
    "fewer than five key columns",
    "This is a recommendation for performance, not a limit: every change is looked up by all "
    "columns of the key.",
    "Use a shorter unique key, if there is one.",
    '{"keyColumns": ["a", "b", "c", "d", "e"]}',
)
CONDITIONAL = Rule(
    "LZ-058",
    "conditional-update",
    "_metadata.json has ConditionalUpdateColumn",
    WARNING,
    "changes in the order in which they must be applied",
    "One version of the page showed the member without a description. It is ignored: an older "
    "change that arrives later is applied like any other.",
    "Remove the member, and write the changes of a row in order.",
    '{"keyColumns": ["id"], "ConditionalUpdateColumn": "seqNum"}',
)
PARTITIONS = Rule(
    "LZ-059",
    "partitions",
    "The table asks for partition folders",
    WARNING,
    "data files in the table folder itself",
    "`isPartitionEnabled` is undocumented and off by default: files in subfolders are not read.",
    "Write all files into the table folder, in one sequence; or enable `landing.partitions` in "
    "the project, and check the landing zone with `--partitions`.",
    '{"keyColumns": ["id"], "isPartitionEnabled": true}',
)

RULES = (
    ABSENT, NO_OBJECT, KEY_SHAPE, KEY_TWICE, V2_MEMBER, NO_KEY, DETECTION, UPSERT_SHAPE,
    MEMBER_TWICE, UNKNOWN_MEMBER, SPELLING, LENIENT, UNREADABLE, MANY_KEYS, CONDITIONAL, PARTITIONS,
)  # fmt: skip

KEY, STRATEGY, UPSERT = "keyColumns", "fileDetectionStrategy", "isUpsertDefaultRowMarker"
_KNOWN = {
    name.lower()
    for name in (
        KEY, STRATEGY, UPSERT, "mirrorlake", "isPartitionEnabled", "ConditionalUpdateColumn",
        *MEMBERS,
    )
}  # fmt: skip
_FEW = 5


@dataclass(frozen=True, slots=True)
class Described:
    """What `_metadata.json` says: as it is written, and as the engine takes it, if it does."""

    record: Record | None
    metadata: Metadata | None


def check(content: bytes, location: FindingLocation, report: Report) -> Described:
    """All of section 2 that the file alone can break, and what it says of delimited text."""
    errors = report.errors
    record = _record(content, location, report)
    if record is not None:
        _members(record, content, report)
        _key(record, report)
        _switches(record, report)
        text_member_rules.check(record, report)
    try:
        described = metadata.decode(content, table=str(location.table), file=location.file)
    except BadMetadata as error:
        if report.errors == errors:
            report.add(UNREADABLE, location, shown(error.what))
        return Described(record, None)
    return Described(record, described)


def _record(content: bytes, location: FindingLocation, report: Report) -> Record | None:
    try:
        parsed = lenient_json.parse(content)
    except NotJson as error:
        at = replace(location, line=error.line, character=error.column)
        report.add(UNREADABLE, at, shown(error.message))
        return None
    for note in parsed.notes:
        at = replace(location, line=note.line, character=note.column)
        report.add(LENIENT, at, shown(note.what))
    if not isinstance(parsed.value, dict):
        report.add(NO_OBJECT, location, shown(written(parsed.value)))
        return None
    return Record.of(parsed.value, content, location)


def _members(record: Record, content: bytes, report: Report) -> None:
    if twice := repeated(content):
        report.add(MEMBER_TWICE, record.at(twice[0]), listed(twice))
    for name in (KEY, STRATEGY, UPSERT):
        if name in record and record.spelt(name) != name:
            report.add(SPELLING, record.at(name), shown(record.spelt(name)), name)
    for name in (STRATEGY, UPSERT, *MEMBERS):
        if name in record:
            report.add(V2_MEMBER, record.at(name), record.spelt(name))
    unknown = [member.name for name, member in record.members.items() if name not in _KNOWN]
    if unknown:
        report.add(UNKNOWN_MEMBER, record.at(unknown[0]), listed(unknown))


def _key(record: Record, report: Report) -> None:
    key = record.value(KEY)
    if key is None or key == []:
        report.add(NO_KEY, record.here(), "no keyColumns")
        return
    if not isinstance(key, list) or not all(isinstance(name, str) and name for name in key):
        report.add(KEY_SHAPE, record.at(KEY), shown(written(key)))
        return
    folded = [name.casefold() for name in key]
    if len(set(folded)) < len(key):
        twice = [name for name in key if folded.count(name.casefold()) > 1]
        report.add(KEY_TWICE, record.at(KEY), listed(twice))
    if len(set(folded)) >= _FEW:
        report.add(MANY_KEYS, record.at(KEY), f"{len(set(folded))} columns")


def _switches(record: Record, report: Report) -> None:
    strategy, upsert = record.value(STRATEGY), record.value(UPSERT)
    known = {SEQUENTIAL.lower(), BY_TIME.lower()}
    if strategy is not None and str(strategy).lower() not in known:
        report.add(DETECTION, record.at(STRATEGY), shown(written(strategy)))
    if upsert is not None and not isinstance(upsert, bool):
        report.add(UPSERT_SHAPE, record.at(UPSERT), shown(written(upsert)))
    if "ConditionalUpdateColumn" in record:
        name = "ConditionalUpdateColumn"
        report.add(CONDITIONAL, record.at(name), shown(written(record.value(name))))
    partitioned = record.value("isPartitionEnabled")
    if str(partitioned).lower() == "true" and not report.profile.partitions:
        report.add(PARTITIONS, record.at("isPartitionEnabled"), shown(written(partitioned)))
