"""Selects the files of the next batch of a table.

A batch is a run of contiguous file numbers that follows the recorded number. It ends at the end of
a transaction, so that readers never see a part of one, unless the transaction alone exceeds the
limits of a batch. Files of a load and files of changes are never in the same batch, and each file
of a backfill is a batch of its own.
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
    """Contiguous files after the recorded number. error: set if a gap ends the run."""

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
    """The files that may be applied now, by their numbers.

    files: ascending, of the table folder and if needed of its cleanup folder. target: the last
    number of the target cut. within: the partition folder, if any. A gap blocks all later files
    (LZ-117, LZ-119).
    """
    newest = files[-1].number if files else 0
    last = newest if target is None else min(newest, target)
    run: list[Landed] = []
    # There may be a million files, so only the needed ones are accessed.
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
    run: Sequence[Landed],
    inspected: Mapping[str, Inspected],
    limits: BatchLimits,
    *,
    soft: bool = False,
) -> Sequence[Landed]:
    """The first batch of a run; empty if the rest of its last transaction has not landed yet.

    inspected: the footers of the files by path. soft: with soft deletes, so a truncation is a batch
    of its own.
    """
    rows = size = 0
    batch: list[Landed] = []
    complete = 0  # length of the longest prefix that ends with a transaction
    for file in run:
        facts = inspected[file.path]
        if batch and not _share_batch(inspected[batch[0].path], facts):
            return batch  # what follows stands between two transactions: no more of this one comes
        if batch and (_alters(facts) or _has_other_types(inspected[batch[-1].path], facts)):
            return batch[:complete] if complete else batch
        emptied = soft and batch and (_empties(inspected[batch[-1].path]) or _empties(facts))
        if emptied:
            return batch[:complete] if complete else batch
        full = rows + facts.rows > limits.rows or size + facts.size > limits.size
        if batch and full:
            return batch[:complete] if complete else batch
        batch.append(file)
        rows, size = rows + facts.rows, size + facts.size
        if facts.footer is None or facts.footer.complete or _is_load(facts):
            complete = len(batch)
    # A run of maximum length is applied even if its last transaction is incomplete.
    return batch[:complete] if complete or len(batch) < limits.files else batch


def _empties(facts: Inspected) -> bool:
    return facts.footer is not None and facts.footer.kind is FileKind.TRUNCATE


def _alters(facts: Inspected) -> bool:
    """Whether the columns are altered before the first row of a file."""
    return facts.footer is not None and facts.footer.alteration is not None


def _has_other_types(earlier: Inspected, later: Inspected) -> bool:
    """Whether a column has different types in two files."""
    types = {column.name: column.type for column in earlier.schema}
    return any(types.get(column.name, column.type) != column.type for column in later.schema)


def _share_batch(first: Inspected, facts: Inspected) -> bool:
    """Whether two files may be in one batch. A backfill chunk is compared with the table as of all
    earlier files, so it is a batch of its own."""
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
