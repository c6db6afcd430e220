"""What every way to apply batches has in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mirrorlake.delta.schema import TableSchema
from mirrorlake.mirror.engine import Outcome
from mirrorlake.mirror.progress import Progress
from mirrorlake.mirror.steps import ApplyFiles
from mirrorlake.mirror.strategy import Choice
from mirrorlake.storage.urls import ObjectOptions


@dataclass(frozen=True, slots=True)
class Begun:
    """A batch, and the one version of its table that all of it rests on.

    choice: by which way it goes; location: of the table; files: the add actions of its live files;
    options: how the location is reached when that is a URL.
    """

    choice: Choice
    step: ApplyFiles
    location: str
    version: int
    progress: Progress
    schema: TableSchema
    files: Sequence[Mapping[str, Any]]
    options: ObjectOptions | None = None


class Strategy(Protocol):
    """A way to apply batches that fit their tables.

    Each batch is one commit, on the version it has begun on or not at all, with rows, change images
    and the recorded number; see `mirror.engine.MirrorEngine`.
    """

    def apply(
        self, batches: Sequence[Begun], before_commit: Callable[[], None]
    ) -> Sequence[Outcome]:
        """Apply one batch per table; outcomes in their order."""
        ...
