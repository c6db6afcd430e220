"""The applied files of a table whose files have no single sequence (LZ-127).

These are tables in timestamp mode, and tables with a sequence in each partition folder (LZ-059).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mirrorlake import root
from mirrorlake.model.landed import PartName


@dataclass(slots=True)
class Processed:
    """The applied files, as far as known.

    names: of the files; batches: the number of the last batch; last: the name of the last file.
    numbers: the highest applied number by partition folder, if files have numbers.
    has_all_moved: the cleanup folder was listed, and contains only applied files.
    Memory: about 150 bytes per name.
    """

    names: set[str] = field(default_factory=set)
    batches: int = 0
    last: str | None = None
    numbers: dict[str, int] = field(default_factory=dict)
    has_all_moved: bool = False

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def add(self, number: int, names: Sequence[str]) -> None:
        """Add the names that batches up to `number` have applied."""
        self.names.update(names)
        self.batches, self.last = number, names[-1] if names else self.last
        for part in filter(None, map(PartName.parse, names)):
            self.numbers[part.folder] = max(part.number, self.numbers.get(part.folder, 0))


def folder_of(path: str) -> str:
    """The folder of the side records of the table at `path`, of all its generations."""
    return f"{root.STATE}/processed/{path}"
