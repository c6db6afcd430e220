"""Spreads a batch of event files over tasks, by the objects that they are of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from mirrorlake.apply.events.batches.tasks import (
    EventPlaces,
    FilesTask,
    ReadReport,
    TableOutcome,
    prepare_files,
)
from mirrorlake.apply.events.listing import FoundFile
from mirrorlake.apply.runner import Runner, TasksDied
from mirrorlake.errors import SparkUnavailable

log = structlog.get_logger()

EVENTS_SPREAD, EVENT_TASKS_DIED = "events_spread", "event_tasks_died"
EVENT_FILES_LEFT = "event_files_left"
LEAST_BYTES = 16 << 20
"""Of the files of a batch that is spread, unpacked; a smaller one takes less time than a job."""
TASKS_PER_SLOT = 4
"""At most: with several, the slots are busy for about as long as each other."""


@dataclass(frozen=True, slots=True)
class SpreadBatch:
    """What became of a batch: for each file that was read, by its path; for each table with events
    in these."""

    files: Mapping[str, ReadReport]
    tables: Sequence[TableOutcome]


class EventSpread:
    """runner: returns the runner; called when a batch is spread first."""

    def __init__(
        self, runner: Callable[[], Runner], places: EventPlaces, least: int = LEAST_BYTES
    ) -> None:
        self._runner, self._places, self._least = runner, places, least

    def suits(self, files: Sequence[FoundFile]) -> bool:
        """Whether a batch is large, and of several objects."""
        size = sum(file.unpacked_size for file in files)
        return size >= self._least and len(self._objects(files)) > 1

    def run(self, files: Sequence[FoundFile]) -> SpreadBatch | None:
        """Read files and prepare what they change; None if tasks died. Raises SparkUnavailable, and
        what else ends a job."""
        groups = self._objects(files)
        items = [FilesTask(self._places, group) for group in groups]
        try:
            runner = self._runner()
            packing = _packed(groups, TASKS_PER_SLOT * runner.slots)
            found = runner.run(prepare_files, items, packing)
        except TasksDied as died:
            log.warning(EVENT_TASKS_DIED, files=len(files), reason=str(died))
            return None
        except OSError as error:  # tasks report theirs
            raise SparkUnavailable(
                f"Spark has ended: {error}", hint="See its log for the reason, and start again."
            ) from error
        for group, outcome in zip(groups, found, strict=True):
            if outcome.left:
                log.info(EVENT_FILES_LEFT, files=len(group), reason=outcome.left)
        tables = [table for outcome in found for table in outcome.tables]
        log.info(EVENTS_SPREAD, files=len(files), tasks=len(packing), tables=len(tables))
        return SpreadBatch(
            {
                file.path: report
                for group, outcome in zip(groups, found, strict=True)
                if not outcome.left
                for file, report in zip(group, outcome.files, strict=True)
            },
            tables,
        )

    def _objects(self, files: Sequence[FoundFile]) -> list[tuple[FoundFile, ...]]:
        """The files of each object, in their order; those that lie in no folder together."""
        found: dict[str, list[FoundFile]] = {}
        for file in files:
            folder, inside, _rest = self._places.settings.inside(file.path).partition("/")
            found.setdefault(folder if inside else "", []).append(file)
        return [tuple(group) for group in found.values()]


def _packed(groups: Sequence[Sequence[FoundFile]], tasks: int) -> list[list[int]]:
    """The groups of each task, by number, so that all have about the same size."""
    packed: list[list[int]] = [[] for _ in range(min(tasks, len(groups)))]
    sizes = [0] * len(packed)
    weights = [sum(file.unpacked_size for file in group) for group in groups]
    for number in sorted(range(len(groups)), key=lambda number: -weights[number]):
        smallest = sizes.index(min(sizes))
        packed[smallest].append(number)
        sizes[smallest] += weights[number]
    return packed
