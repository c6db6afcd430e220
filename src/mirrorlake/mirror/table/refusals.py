"""Reasons why a table cannot be processed, independent of its files."""

from __future__ import annotations

from mirrorlake.delta.schema import FeedMode
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
from mirrorlake.mirror.strategy import (
    REFUSED_PROPERTIES,
    Choice,
    StrategyFacts,
    StrategyName,
    choose_strategy,
)
from mirrorlake.mirror.table.known_table import KnownTable
from mirrorlake.mirror.table.progress import DELETES, SOFT, Progress
from mirrorlake.mirror.table.recreated import likely_recreated, missing_last_file
from mirrorlake.model.change import ROW_DELETED


def refusal(known: KnownTable) -> TableError | None:
    """The error if the table cannot be processed; None if it can."""
    scan, progress = known.scan, known.progress
    name = str(scan.table)
    if scan.error:
        return scan.error
    if progress.exists and not progress.generation:
        return ForeignTable(
            f"{known.path} contains a table that was not created by mirrorlake",
            table=name,
            hint="Move it away, or use another root.",
        )
    if progress.unsupported and not known.is_reseeded:
        return UnsupportedTable(
            f"the table cannot be written: {progress.unsupported}",
            table=name,
            hint=f"{_undone(progress)}, or run `mirrorlake reset {name}` to rebuild the table.",
        )
    if progress.restored is not None and not known.is_reseeded:
        return TableRestored(
            f"the table was restored to an older version (version {progress.restored} is a "
            f"RESTORE), so changes up to file {progress.recorded} would be lost",
            table=name,
            hint=f"Run `mirrorlake reset {name}` to rebuild the table.",
        )
    if known.is_reseeded:
        return _whole_rows_refusal(known, name)
    choice = choose_strategy(
        StrategyFacts(known.settings.strategy, known.platform, progress.delegated)
    )
    return (
        strategy_refusal(name, choice, feed=known.options.feed)
        or _whole_rows_refusal(known, name)
        or _deletes_refusal(known, name)
        or _detection_refusal(known, name)
        or _key_refusal(known, name)
        or _recreation_refusal(known)
    )


def _undone(progress: Progress) -> str:
    """How to undo what prevents writing the table, as the beginning of a sentence."""
    named = [name for name in REFUSED_PROPERTIES if f"{name} is set" in progress.unsupported]
    if not named:
        return "Undo that"
    return f"Run `alter table ... unset tblproperties ('{named[0]}')`"


def strategy_refusal(table: str, choice: Choice, *, feed: FeedMode) -> UnsupportedTable | None:
    """The error if the configured strategy is not possible for the table. feed: its change feed,
    where only `direct` supports what is configured."""
    if feed is FeedMode.REPLACE and (choice.refused or choice.strategy is not StrategyName.DIRECT):
        return UnsupportedTable(
            "mirror.tables has apply: replace, which this table or this Spark does not support: "
            f"{choice.refused or choice.reason}",
            table=table,
            hint="Undo what prevents it, or set apply to images.",
        )
    if not choice.refused:
        return None
    return UnsupportedTable(
        f"mirror.strategy is {choice.strategy}, which this table or this Spark does not support: "
        f"{choice.refused}",
        table=table,
        hint="Set mirror.strategy to auto, or undo what prevents it.",
    )


def _whole_rows_refusal(known: KnownTable, name: str) -> UnsupportedTable | None:
    """Soft deletes need a key."""
    if not (known.settings.soft_deletes and known.whole_rows):
        return None
    return no_soft_deletes(name)


def no_soft_deletes(name: str) -> UnsupportedTable:
    """The error of a table without a key in a project with soft deletes."""
    return UnsupportedTable(
        "the table has no key, so soft deletes could not identify the rows that are deleted",
        table=name,
        hint="Give the table a key in the source, leave it out of the mirror, or set "
        "mirror.deletes to hard.",
    )


def _deletes_refusal(known: KnownTable, name: str) -> UnsupportedTable | None:
    """Soft deletes cannot be switched on or off for an existing table."""
    soft = known.settings.soft_deletes
    if not known.progress.exists:
        return None
    made_soft = known.progress.properties.get(DELETES) == SOFT
    if made_soft == soft and (not soft or ROW_DELETED in known.progress.schema):
        return None
    was, now = (SOFT if is_soft else "hard" for is_soft in (made_soft, soft))
    what = f"mirror.deletes was {was} when the table was created and is now {now}"
    if was == now:
        what = f"the column {ROW_DELETED} of soft deletes is missing in the table"
    return UnsupportedTable(
        what,
        table=name,
        hint=f"Restore the first value, or run `mirrorlake reset {name}` to reload the table, "
        "without the rows that are deleted in the source.",
    )


def _detection_refusal(known: KnownTable, name: str) -> TableError | None:
    """The recorded progress is not valid for another file detection strategy."""
    first, now = known.progress.detection, known.scan.detection
    if known.awaits_metadata or not known.progress.exists or first == now:
        return None
    return DetectionChanged(
        f"fileDetectionStrategy was {first} when the table was created and is now {now}",
        table=name,
        file="_metadata.json",
        hint="Restore the first value, together with isPartitionEnabled and landing.partitions; "
        f"or recreate the folder with all data and run `mirrorlake reset {name}`.",
    )


def _recreation_refusal(known: KnownTable) -> TableError | None:
    """The folder of another publisher seems to be recreated. Our own publisher writes a generation
    instead, and files in timestamp mode do not show what is missing."""
    described = known.scan.metadata
    if known.awaits_metadata or not known.progress.recorded or (described and described.ours):
        return None
    if known.scan.detection in NAMED:
        return missing_last_file(known.scan, known.processed)
    return likely_recreated(known.scan, known.progress, known.tail)


def _key_refusal(known: KnownTable, name: str) -> TableError | None:
    """The key of a table that has rows cannot be changed (LZ-036, LZ-038), but by our capture."""
    is_ours = known.progress.whole_rows is not None
    if known.scan.metadata is None or not known.progress.exists or is_ours:
        return None
    now = known.scan.metadata.key_columns
    first = list(known.progress.key)
    matched = match_columns(first, list(now))
    if first and (len(matched) != len(first) or len(now) != len(first)):
        return KeyColumnsChanged(
            f"keyColumns was ({', '.join(first)}) when the table was created and is now "
            f"({', '.join(now)})",
            table=name,
            file="_metadata.json",
            hint="Restore the first value, or recreate the folder with all data.",
        )
    return None
