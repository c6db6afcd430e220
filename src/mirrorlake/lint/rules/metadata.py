"""Rules on `_metadata.json`, except those on delimited text (section 2 of the specification)."""

from __future__ import annotations

from dataclasses import dataclass

from mirrorlake.errors import BadMetadata
from mirrorlake.landing import metadata
from mirrorlake.landing.metadata import BY_TIME, SEQUENTIAL, Metadata
from mirrorlake.landing.text.members import MEMBERS
from mirrorlake.lint.finding import FindingLocation, Report, listed, shown
from mirrorlake.lint.json_members import Record, repeated
from mirrorlake.lint.rules import text_metadata as text_member_rules

KEY, STRATEGY, UPSERT = "keyColumns", "fileDetectionStrategy", "isUpsertDefaultRowMarker"
_FEW = 5


@dataclass(frozen=True, slots=True)
class Described:
    """The content of `_metadata.json`, and its meaning for the engine, if the engine accepts it."""

    record: Record | None
    metadata: Metadata | None


def check(content: bytes, location: FindingLocation, report: Report) -> Described:
    """Check the file: the rules of section 2, and its members for delimited text."""
    errors = report.errors
    record = Record.read(
        content,
        location,
        report,
        unreadable="LZ-054/metadata-unreadable",
        lenient="LZ-053/metadata-not-strict",
        no_object="LZ-030/metadata-no-object",
    )
    if record is not None:
        _members(record, content, report)
        _key(record, report)
        _switches(record, report)
        text_member_rules.check(record, report)
    try:
        described = metadata.decode(content, table=str(location.table), file=location.file)
    except BadMetadata as error:
        if report.errors == errors:
            report.add("LZ-054/metadata-unreadable", location, shown(error.what))
        return Described(record, None)
    return Described(record, described)


def _members(record: Record, content: bytes, report: Report) -> None:
    if twice := repeated(content):
        report.add("LZ-050/member-twice", record.at(twice[0]), listed(twice))
    for name in (KEY, STRATEGY, UPSERT):
        if name in record and record.spelt(name) != name:
            report.add("LZ-053/member-spelling", record.at(name), shown(record.spelt(name)), name)
    for name in (STRATEGY, UPSERT, *MEMBERS):
        if name in record:
            report.add("LZ-033/member-of-v2", record.at(name), record.spelt(name))
    if unknown := record.others(metadata.MEMBERS):
        report.add("LZ-051/unknown-member", record.at(unknown[0]), listed(unknown))


def _key(record: Record, report: Report) -> None:
    key = record.get(KEY)
    if key is None or key == []:
        report.add("LZ-034/no-key", record.here(), "no keyColumns")
        return
    if not isinstance(key, list) or not all(isinstance(name, str) and name for name in key):
        record.add_finding("LZ-031/key-columns-no-array", KEY, report)
        return
    folded = [name.casefold() for name in key]
    if len(set(folded)) < len(key):
        twice = [name for name in key if folded.count(name.casefold()) > 1]
        report.add("LZ-032/key-column-twice", record.at(KEY), listed(twice))
    if len(set(folded)) >= _FEW:
        report.add("LZ-057/many-key-columns", record.at(KEY), f"{len(set(folded))} columns")


def _switches(record: Record, report: Report) -> None:
    strategy, upsert = record.get(STRATEGY), record.get(UPSERT)
    known = {SEQUENTIAL.lower(), BY_TIME.lower()}
    if strategy is not None and str(strategy).lower() not in known:
        record.add_finding("LZ-047/unknown-detection", STRATEGY, report)
    if upsert is not None and not isinstance(upsert, bool):
        record.add_finding("LZ-048/upsert-default-no-boolean", UPSERT, report)
    if "ConditionalUpdateColumn" in record:
        record.add_finding("LZ-058/conditional-update", "ConditionalUpdateColumn", report)
    is_partitioned = str(record.get("isPartitionEnabled")).lower() == "true"
    if is_partitioned and not report.profile.partitions:
        record.add_finding("LZ-059/partitions", "isPartitionEnabled", report)
