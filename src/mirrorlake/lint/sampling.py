"""How much of a zone is read: all of a small one, footers and samples of a large one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from mirrorlake.lint.finding import counted
from mirrorlake.lint.table_view import LintedFile

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Reading:
    """How much is read.

    everything: of every file all rows; budget: bytes of data files whose rows are read, over all
    tables; opened: files of a table that are opened at all; sampled: files of a table of which rows
    are read when the table is larger than its share; least: bytes that each table may read.
    """

    everything: bool = False
    budget: int = 512 * MIB
    opened: int = 200
    sampled: int = 8
    least: int = MIB

    def share(self, tables: int) -> int:
        """What one of the tables may have of the budget, in bytes."""
        return max(self.budget // max(tables, 1), self.least)

    def depths(self, files: Sequence[LintedFile], share: int) -> Mapping[str, int | None]:
        """The files to open by path, and how many bytes of each to read; None for all."""
        if self.everything:
            return dict.fromkeys((file.path for file in files), None)
        if sum(f.size for f in files) <= share and len(files) <= self.opened:
            return dict.fromkeys((file.path for file in files), None)
        opened = _spread(files, self.opened)
        sampled = {file.path for file in _spread(opened, self.sampled)}
        each = max(share // max(len(sampled), 1), 1)
        depths: dict[str, int | None] = {}
        for file in opened:
            is_left = file.path not in sampled
            depths[file.path] = 0 if is_left else None if file.size <= each else each
        return depths


@dataclass(slots=True)
class Unread:
    """What was not read, in files."""

    unopened: int = 0
    """Only their names and sizes were looked at."""
    footers: int = 0
    """Their columns were looked at, and no row."""
    partly: int = 0
    """The first of their rows were read."""
    vanished: int = 0
    """They were gone when they were to be opened: an engine is at work."""
    uncompared: int = 0
    """Their keys were too many to be compared with each other."""

    def facts(self) -> dict[str, int]:
        return asdict(self)

    def told(self) -> str:
        """As a sentence; empty when everything was read."""
        parts = [
            f"{counted(count, 'file')} {what}"
            for count, what in (
                (self.unopened, "not opened"),
                (self.footers, "read for their columns only"),
                (self.partly, "read for their first rows only"),
                (self.vanished, "deleted in the meantime"),
                (self.uncompared, "not checked for repeated keys"),
            )
            if count
        ]
        return f"Not fully read: {', '.join(parts)}." if parts else ""


def _spread(files: Sequence[LintedFile], most: int) -> Sequence[LintedFile]:
    """At most so many files, the first and the last among them, evenly apart."""
    if len(files) <= most:
        return files
    if most < 2:
        return files[:most]
    step = (len(files) - 1) / (most - 1)
    return [files[round(index * step)] for index in range(most)]
