"""The ways to find new files, and all in which they differ (LZ-047).

In sequence: files have numbers, and are applied without a gap. By time: files have any names, and
each is applied once, in the order in which they landed as far as they are there to be seen. In
partitions: files have numbers in each partition folder; these are applied without a gap, and those
of several folders in the order in which they landed (LZ-059).
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
    """What a batch is called: its numbers, and by time the names that it records."""

    first: int
    last: int
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InSequence:
    """recorded: the last applied number; target: the last number that may be applied now."""

    recorded: int
    target: int | None = None

    def is_new(self, file: Landed) -> bool:
        return file.number > self.recorded

    def run(self, scan: TableScan, limits: BatchLimits) -> Run:
        """The contiguous files that follow (LZ-116, LZ-117)."""
        table = str(scan.table)
        run = run_of(table, scan.files, self.recorded, self.target, limits)
        if run.error is not None and len(run.files) == 0:
            # Files move aside after their commit; after a crash in between they are found there.
            moved = [file for file in scan.moved() if self.is_new(file)]
            if moved:
                both = {file.number: file for file in [*moved, *scan.files]}
                merged = [both[number] for number in sorted(both)]
                run = run_of(table, merged, self.recorded, self.target, limits)
        return run

    def number(self, batch: Sequence[Landed]) -> Numbering:
        return Numbering(batch[0].number, batch[-1].number)

    def is_more(self, files: Sequence[Landed], batch: Sequence[Landed]) -> bool:
        """Whether new files are left after a batch."""
        return any(file.number > batch[-1].number for file in files[-1:])

    def done(self, files: Sequence[Landed]) -> list[Landed]:
        """The applied files that may go aside: all but the last (LZ-243)."""
        return processed(files, self.recorded)


@dataclass(frozen=True, slots=True)
class _Named(ABC):
    """processed: what has been applied; the batches that did are counted, and record names."""

    processed: Processed

    @abstractmethod
    def is_new(self, file: Landed) -> bool: ...

    def number(self, batch: Sequence[Landed]) -> Numbering:
        following = self.processed.batches + 1
        return Numbering(following, following, tuple(str(file.name) for file in batch))

    def is_more(self, files: Sequence[Landed], batch: Sequence[Landed]) -> bool:
        """Whether new files are left after a batch."""
        taken = {str(file.name) for file in batch}
        return any(str(file.name) not in taken for file in filter(self.is_new, files))

    def _with_those_aside(self, scan: TableScan) -> Sequence[Landed]:
        """The files, with those that an earlier table of the folder had applied and put aside: it
        was reset, or the zone was copied without it. Once there are none, none will come."""
        if self.processed.has_all_aside:
            return scan.files
        aside = {str(file.name): file for file in filter(self.is_new, scan.moved())}
        self.processed.has_all_aside = not aside
        both = aside | {str(file.name): file for file in scan.files}
        return sorted(both.values(), key=order) if aside else scan.files


class ByTime(_Named):
    """Files have any names."""

    def is_new(self, file: Landed) -> bool:
        """A processed path that is written again is not new (LZ-127)."""
        return str(file.name) not in self.processed

    def run(self, scan: TableScan, limits: BatchLimits) -> Run:
        """The unprocessed files in their order, late ones too (LZ-124, LZ-126)."""
        files = self._with_those_aside(scan)
        return Run(tuple(islice(filter(self.is_new, files), limits.files)))

    def done(self, files: Sequence[Landed]) -> list[Landed]:
        """The applied files that may go aside: all but the last applied (LZ-250)."""
        return [
            file
            for file in files
            if not self.is_new(file) and str(file.name) != self.processed.last
        ]


class InPartitions(_Named):
    """Rows of one key belong into one folder: only there is their order that of the publisher."""

    def is_new(self, file: Landed) -> bool:
        return file.number > self.processed.numbers.get(_folder(file), 0)

    def run(self, scan: TableScan, limits: BatchLimits) -> Run:
        """The contiguous files of each folder. A gap blocks the later files of its folder only, and
        is told (LZ-117)."""
        by_folder: dict[str, list[Landed]] = {}
        for file in filter(self.is_new, self._with_those_aside(scan)):
            by_folder.setdefault(_folder(file), []).append(file)
        runs, error = [], None
        for folder, files in sorted(by_folder.items()):
            files.sort(key=lambda file: file.number)
            recorded = self.processed.numbers.get(folder, 0)
            run = run_of(str(scan.table), files, recorded, None, limits, within=folder)
            runs.append(run.files)
            error = error or run.error
        # Of the files that come next in their folders, the one that landed first.
        return Run(tuple(islice(merge(*runs, key=order), limits.files)), error)

    def done(self, files: Sequence[Landed]) -> list[Landed]:
        """The applied files that may go aside: all but the last of each folder (LZ-243)."""
        return [
            file for file in files if file.number < self.processed.numbers.get(_folder(file), 0)
        ]


def _folder(file: Landed) -> str:
    """The partition folder of a file, relative to the table folder."""
    assert isinstance(file.name, PartName)
    return file.name.folder


Detection = InSequence | ByTime | InPartitions
