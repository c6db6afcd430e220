"""Which files a table without one sequence has applied (LZ-127), as far as is known.

Such are tables in timestamp mode, and those with a sequence in each partition folder (LZ-059).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mirrorlake import root
from mirrorlake.model.landed import PartName


@dataclass(slots=True)
class Processed:
    """The names of the files that `batches` batches have applied, and the last of them.

    numbers: the highest number among them in each partition folder, where they have numbers.
    has_all_aside: whatever is in the cleanup folder is among them, as far as that was looked at.
    Memory: about 150 bytes for each name.
    """

    names: set[str] = field(default_factory=set)
    batches: int = 0
    last: str | None = None
    numbers: dict[str, int] = field(default_factory=dict)
    has_all_aside: bool = False

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def add(self, number: int, names: Sequence[str]) -> None:
        """What batches up to `number` have applied."""
        self.names.update(names)
        self.batches, self.last = number, names[-1] if names else self.last
        for part in filter(None, map(PartName.parse, names)):
            self.numbers[part.folder] = max(part.number, self.numbers.get(part.folder, 0))


def folder_of(path: str) -> str:
    """Where the side records of the table at `path` are, those of earlier generations too."""
    return f"{root.STATE}/processed/{path}"
