"""Decides how much of a landing zone is read: all of a small one; footers and samples of a large
one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from mirrorlake.lint.finding import counted
from mirrorlake.lint.table_view import LintedFile

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Reading:
    """Limits of reading.

    everything: read all rows of all files; budget: bytes of data files to read, over all tables;
    opened: maximum number of files to open per table; sampled: number of files to read rows from,
    in a table that is larger than its share; least: minimum bytes per table.
    """

    everything: bool = False
    budget: int = 512 * MIB
    opened: int = 200
    sampled: int = 8
    least: int = MIB

    def share(self, tables: int) -> int:
        """The part of the budget per table, in bytes."""
        return max(self.budget // max(tables, 1), self.least)

    def depths(self, files: Sequence[LintedFile], share: int) -> Mapping[str, int | None]:
        """The files to open by path, and the number of bytes to read of each; None for all."""
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
    """Numbers of files that were not read completely."""

    unopened: int = 0
    """Only names and sizes were checked."""

    footers: int = 0
    """Columns were checked, but no rows."""

    partly: int = 0
    """Only the first rows were read."""

    vanished: int = 0
    """They were deleted before they could be opened, for example by an engine."""

    uncompared: int = 0
    """They had too many keys to look for repeated ones."""

    def facts(self) -> dict[str, int]:
        return asdict(self)

    def summary(self) -> str:
        """As a sentence; "" if everything was read."""
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
    """At most `most` files at equal distances, including the first and the last."""
    if len(files) <= most:
        return files
    if most < 2:
        return files[:most]
    step = (len(files) - 1) / (most - 1)
    return [files[round(index * step)] for index in range(most)]
