"""Spreads a batch of event files over tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import structlog

from mirrorlake.apply.events.batches.tasks import (
    EventPlaces,
    ReadFilesTask,
    ReadReport,
    TableOutcome,
    prepare_tables,
    read_files,
)
from mirrorlake.apply.events.listing import FoundFile
from mirrorlake.apply.runner import Runner, TasksDied

log = structlog.get_logger()

EVENTS_SPREAD, EVENT_TASKS_DIED = "events_spread", "event_tasks_died"
LEAST_BYTES = 16 << 20
"""Of the files of a batch that is spread; a smaller one takes less time than a job."""
TASKS_PER_SLOT = 4
"""Of the second stage: tables that share a task by chance are rare then."""


@dataclass(frozen=True, slots=True)
class SpreadBatch:
    """What became of a batch: for each file, by its path; for each table with events."""

    files: Mapping[str, ReadReport]
    tables: Sequence[TableOutcome]


class EventSpread:
    """runner: returns the runner; called when a batch is spread first."""

    def __init__(
        self, runner: Callable[[], Runner], places: EventPlaces, least: int = LEAST_BYTES
    ) -> None:
        self._runner, self._places, self._least = runner, places, least

    def suits(self, files: Sequence[FoundFile]) -> bool:
        return sum(file.size for file in files) >= self._least

    def run(self, files: Sequence[FoundFile]) -> SpreadBatch | None:
        """Read files and prepare what they change; None if tasks died. Raises what ends a job."""
        runner = self._runner()
        groups, tasks = _groups(files, runner.slots), TASKS_PER_SLOT * runner.slots
        work = partial(prepare_tables, self._places)
        items = [ReadFilesTask(self._places, group, tasks) for group in groups]
        try:
            reports, outcomes = runner.chain(read_files, items, [work], tasks)
        except TasksDied as died:
            log.warning(EVENT_TASKS_DIED, files=len(files), reason=str(died))
            return None
        tables = [outcome for found in outcomes for outcome in found]
        log.info(EVENTS_SPREAD, files=len(files), tasks=len(groups), tables=len(tables))
        return SpreadBatch(
            {
                file.path: report
                for group, found in zip(groups, reports, strict=True)
                for file, report in zip(group, found, strict=True)
            },
            tables,
        )


def _groups(files: Sequence[FoundFile], slots: int) -> list[tuple[FoundFile, ...]]:
    """The files of each task, of about the same size; those of a task in their order."""
    groups: list[list[int]] = [[] for _ in range(min(slots, len(files)))]
    sizes = [0] * len(groups)
    for number in sorted(range(len(files)), key=lambda number: -files[number].size):
        smallest = sizes.index(min(sizes))
        groups[smallest].append(number)
        sizes[smallest] += files[number].size
    return [tuple(files[number] for number in sorted(group)) for group in groups]
