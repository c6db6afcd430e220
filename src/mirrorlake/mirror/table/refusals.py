"""Why a table cannot be worked on at all, whatever its files hold."""

from __future__ import annotations

from mirrorlake.errors import (
    DetectionChanged,
    ForeignTable,
    KeyColumnsChanged,
    TableError,
    TableRestored,
    UnsupportedTable,
)
from mirrorlake.landing.metadata import NAMED
from mirrorlake.landing.parquet.reader import match_columns
from mirrorlake.mirror.strategy import Choice, Facts, way_of
from mirrorlake.mirror.table.known_table import KnownTable
from mirrorlake.mirror.table.recreated import lost_last, recreation


def refusal(known: KnownTable) -> TableError | None:
    """Why the table cannot be worked on at all."""
    scan, progress = known.scan, known.progress
    name = str(scan.table)
    if scan.error:
        return scan.error
    if progress.exists and not progress.generation:
        return ForeignTable(
            f"{known.path} holds a table that was not created by mirrorlake",
            table=name,
            hint="Move it away, or use another root.",
        )
    if progress.unsupported and not known.is_reseeded:
        return UnsupportedTable(
            f"the table cannot be written: {progress.unsupported}",
            table=name,
            hint=f"Undo that, or run `mirrorlake reset {name}` to rebuild the table.",
        )
    if progress.restored is not None and not known.is_reseeded:
        return TableRestored(
            f"the table was restored to an older version (version {progress.restored} is a "
            f"RESTORE), so changes up to file {progress.recorded} would be lost",
            table=name,
            hint=f"Run `mirrorlake reset {name}` to rebuild the table.",
        )
    if known.is_reseeded:
        return None
    choice = way_of(Facts(known.settings.strategy, known.platform, progress.delegated))
    return (
        closed(name, choice)
        or _detection_refusal(known, name)
        or _key_refusal(known, name)
        or _recreation(known)
    )


def closed(table: str, choice: Choice) -> UnsupportedTable | None:
    """Of a project that asks for a way which is not open for the table."""
    if not choice.refused:
        return None
    return UnsupportedTable(
        f"mirror.strategy is {choice.way}, which this table or this Spark does not support: "
        f"{choice.refused}",
        table=table,
        hint="Set mirror.strategy to auto, or undo what prevents it.",
    )


def _detection_refusal(known: KnownTable, name: str) -> TableError | None:
    """What is recorded as applied has no meaning under the other strategy."""
    first, now = known.progress.detection, known.scan.detection
    if known.is_unread or not known.progress.exists or first == now:
        return None
    return DetectionChanged(
        f"fileDetectionStrategy was {first} when the table was created and is now {now}",
        table=name,
        file="_metadata.json",
        hint="Restore the first value, together with isPartitionEnabled and landing.partitions; "
        f"or recreate the folder with all data and run `mirrorlake reset {name}`.",
    )


def _recreation(known: KnownTable) -> TableError | None:
    """Of others only the files tell whether the table began anew; we write a generation. Names
    without numbers do not tell what is missing."""
    described = known.scan.metadata
    if known.is_unread or not known.progress.recorded or (described and described.ours):
        return None
    if known.scan.detection in NAMED:
        return lost_last(known.scan, known.processed)
    return recreation(known.scan, known.progress, known.tail)


def _key_refusal(known: KnownTable, name: str) -> TableError | None:
    """The key of a table that has rows cannot be changed (LZ-036, LZ-038)."""
    if known.scan.metadata is None or not known.progress.exists:
        return None
    wanted = known.scan.metadata.key_columns
    first = list(known.progress.key)
    matched = match_columns(first, list(wanted))
    if first and (len(matched) != len(first) or len(wanted) != len(first)):
        return KeyColumnsChanged(
            f"keyColumns was ({', '.join(first)}) when the table was created and is now "
            f"({', '.join(wanted)})",
            table=name,
            file="_metadata.json",
            hint="Restore the first value, or recreate the folder with all data.",
        )
    return None
