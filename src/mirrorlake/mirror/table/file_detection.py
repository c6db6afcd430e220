"""The file detection strategies (LZ-047).

In sequence: files have numbers, and are applied without gaps. By time (timestamp mode): files have
any names, and each name is applied once, in the order of the modification times of the files that
exist. In partitions: files have numbers in each partition folder; they are applied without gaps,
and those of several folders in the order of their modification times (LZ-059).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import islice

from mirrorlake.landing.cleanup import processed
from mirrorlake.landing.scan import Landed, TableScan, order
from mirrorlake.mirror.batch import Run, run_of
from mirrorlake.mirror.batch_limits import BatchLimits
from mirrorlake.mirror.table.processed import Processed
from mirrorlake.model.landed import PartName


@dataclass(frozen=True, slots=True)
class Numbering:
    """The numbers that a batch records, and the names of its files without a single sequence."""

    first: int
    last: int
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InSequence:
    """Files with numbers. recorded: the last applied number; target: the last number that may be
    applied now."""

    recorded: int
    target: int | None = None

    def is_new(self, file: Landed) -> bool:
        return file.number > self.recorded

    def run(self, scan: TableScan, limits: BatchLimits) -> Run:
        """The contiguous files after the recorded number (LZ-116, LZ-117)."""
        table = str(scan.table)
        run = run_of(table, scan.files, self.recorded, self.target, limits)
        if run.error is not None and len(run.files) == 0:
            # Files may be in the cleanup folder although the table has not recorded them.
            moved = [file for file in scan.moved() if self.is_new(file)]
            if moved:
                both = {file.number: file for file in [*moved, *scan.files]}
                merged = [both[number] for number in sorted(both)]
                run = run_of(table, merged, self.recorded, self.target, limits)
        return run

    def number(self, batch: Sequence[Landed]) -> Numbering:
        return Numbering(batch[0].number, batch[-1].number)

    def is_more(self, files: Sequence[Landed], batch: Sequence[Landed]) -> bool:
        """Whether there are new files after a batch."""
        return any(file.number > batch[-1].number for file in files[-1:])

    def done(self, files: Sequence[Landed]) -> list[Landed]:
        """The applied files to move to the cleanup folder: all but the last (LZ-243)."""
        return processed(files, self.recorded)


@dataclass(frozen=True, slots=True)
class _Named(ABC):
    """Batches are numbered and record the names of their files. processed: the applied names."""

    processed: Processed

    @abstractmethod
    def is_new(self, file: Landed) -> bool: ...

    def number(self, batch: Sequence[Landed]) -> Numbering:
        following = self.processed.batches + 1
        return Numbering(following, following, tuple(str(file.name) for file in batch))

    def is_more(self, files: Sequence[Landed], batch: Sequence[Landed]) -> bool:
        """Whether there are new files after a batch."""
        taken = {str(file.name) for file in batch}
        return any(str(file.name) not in taken for file in filter(self.is_new, files))

    def _with_moved_files(self, scan: TableScan) -> Sequence[Landed]:
        """The files, including those in the cleanup folder that this table has not applied: the
        table was reset, or the landing zone was copied without it. If there are none, the cleanup
        folder is not listed again."""
        if self.processed.has_all_moved:
            return scan.files
        aside = {str(file.name): file for file in filter(self.is_new, scan.moved())}
        self.processed.has_all_moved = not aside
        both = aside | {str(file.name): file for file in scan.files}
        return sorted(both.values(), key=order) if aside else scan.files


class ByTime(_Named):
    """Files with any names, in timestamp mode."""

    def is_new(self, file: Landed) -> bool:
        """Whether the name has not been applied; a replaced file is not new (LZ-127)."""
        return str(file.name) not in self.processed

    def run(self, scan: TableScan, limits: BatchLimits) -> Run:
        """The new files in order, including late ones (LZ-124, LZ-126)."""
        files = self._with_moved_files(scan)
        return Run(tuple(islice(filter(self.is_new, files), limits.files)))

    def done(self, files: Sequence[Landed]) -> list[Landed]:
        """The applied files to move to the cleanup folder: all but the last applied (LZ-250)."""
        return [
            file
            for file in files
            if not self.is_new(file) and str(file.name) != self.processed.last
        ]


class InPartitions(_Named):
    """Files with numbers in each partition folder. All rows of a key must be in one folder, because
    files of several folders have no order of the publisher."""

    def is_new(self, file: Landed) -> bool:
        return file.number > self.processed.numbers.get(_folder(file), 0)

    def run(self, scan: TableScan, limits: BatchLimits) -> Run:
        """The contiguous files of each folder. A gap is an error, and blocks the later files of its
        folder only (LZ-117)."""
        by_folder: dict[str, list[Landed]] = {}
        for file in filter(self.is_new, self._with_moved_files(scan)):
            by_folder.setdefault(_folder(file), []).append(file)
        runs, error = [], None
        for folder, files in sorted(by_folder.items()):
            files.sort(key=lambda file: file.number)
            recorded = self.processed.numbers.get(folder, 0)
            run = run_of(str(scan.table), files, recorded, None, limits, within=folder)
            runs.append(run.files)
            error = error or run.error
        # Merge the folders by the modification times of their next files.
        return Run(tuple(islice(merge(*runs, key=order), limits.files)), error)

    def done(self, files: Sequence[Landed]) -> list[Landed]:
        """The applied files to move to the cleanup folder: all but the last of each folder
        (LZ-243)."""
        return [
            file for file in files if file.number < self.processed.numbers.get(_folder(file), 0)
        ]


def _folder(file: Landed) -> str:
    """The partition folder of a file, relative to the table folder."""
    assert isinstance(file.name, PartName)
    return file.name.folder


Detection = InSequence | ByTime | InPartitions
