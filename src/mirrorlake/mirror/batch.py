"""Which files of a table make the next batch.

A batch is a run of contiguous numbers that begins after the recorded one. It ends where a
transaction ends, so that no reader sees half of one, unless the transaction alone is larger than a
batch may be. Files of a load and files of changes never share a batch, and each file of a backfill
is a batch by itself.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mirrorlake.errors import MissingFile, TableError, printable
from mirrorlake.landing.parquet.reader import Inspected
from mirrorlake.landing.scan import Landed
from mirrorlake.mirror.batch_limits import BatchLimits
from mirrorlake.model.landed import FileKind


@dataclass(frozen=True, slots=True)
class Run:
    """Contiguous files after the recorded number, and why they do not go on, if that is wrong."""

    files: tuple[Landed, ...]
    error: TableError | None = None


def run_of(
    table: str,
    files: Sequence[Landed],
    recorded: int,
    target: int | None,
    limits: BatchLimits,
    *,
    within: str = "",
) -> Run:
    """The files that may be applied now, by their numbers alone.

    files: ascending, of the folder and where needed of its cleanup folder. target: the last number
    that the chosen cut allows. within: the partition folder, when they lie in one. A gap blocks all
    later files (LZ-117, LZ-119).
    """
    newest = files[-1].number if files else 0
    last = newest if target is None else min(newest, target)
    run: list[Landed] = []
    # There may be a million of them: none is looked at that is not needed.
    index = bisect_right(files, recorded, key=lambda file: file.number)
    for number in range(recorded + 1, last + 1):
        if files[index].number != number:
            return Run(tuple(run), _gap(table, number, files[index].number, newest, within))
        run.append(files[index])
        index += 1
        if len(run) >= limits.files:
            break
    return Run(tuple(run))


def batch_of(
    run: Sequence[Landed], inspected: Mapping[str, Inspected], limits: BatchLimits
) -> Sequence[Landed]:
    """The first batch of a run whose files have been looked at; empty when it has to wait."""
    rows = size = 0
    batch: list[Landed] = []
    complete = 0  # length of the longest prefix that ends with a transaction
    for file in run:
        facts = inspected[file.path]
        if batch and not _together(inspected[batch[0].path], facts):
            break
        if batch and (_alters(facts) or _has_other_types(inspected[batch[-1].path], facts)):
            return batch[:complete] if complete else batch
        full = rows + facts.rows > limits.rows or size + facts.size > limits.size
        if batch and full:
            return batch[:complete] if complete else batch
        batch.append(file)
        rows, size = rows + facts.rows, size + facts.size
        if facts.footer is None or facts.footer.complete or _is_load(facts):
            complete = len(batch)
    # A run that ends because it is long enough has no later file that could complete it.
    return batch[:complete] if complete or len(batch) < limits.files else batch


def _alters(facts: Inspected) -> bool:
    """Whether the columns were altered before the first row of a file."""
    return facts.footer is not None and facts.footer.alteration is not None


def _has_other_types(one: Inspected, other: Inspected) -> bool:
    """Whether a column of both files has different types in them."""
    types = {column.name: column.type for column in one.schema}
    return any(types.get(column.name, column.type) != column.type for column in other.schema)


def _together(first: Inspected, facts: Inspected) -> bool:
    """Whether a file may be in a batch: a chunk of a backfill is compared with the table as it is
    behind all files before."""
    if _is_backfill(first) or _is_backfill(facts):
        return False
    return _is_load(first) == _is_load(facts)


def _is_backfill(facts: Inspected) -> bool:
    return facts.footer is not None and facts.footer.kind is FileKind.BACKFILL


def _is_load(facts: Inspected) -> bool:
    return facts.footer is not None and facts.footer.kind is FileKind.LOAD


def _gap(table: str, number: int, following: int, newest: int, within: str) -> MissingFile:
    waiting = (
        f"{following} to {newest} are waiting" if following < newest else f"{newest} is waiting"
    )
    index = f" in {printable(within)}" if within else ""
    return MissingFile(
        f"file {number} is missing{index}, {waiting}",
        table=table,
        hint=f"Upload file {number}, or run `mirrorlake reset {table}` to rebuild the table.",
    )
