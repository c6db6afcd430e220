"""Input splits of a load: what each of its tasks reads.

Large delimited texts are split, small files are read together. To split a text is worth it where
all rows are inserts, so that no task needs the rows of another. A file without markers holds only
inserts; a large one with markers may, and is tried: a task that meets another marker gives up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mirrorlake.apply.runner import Runner, TasksDied
from mirrorlake.apply.task.landed_rows import LandedPath
from mirrorlake.landing.text import splits
from mirrorlake.landing.text.format import TextFormat
from mirrorlake.landing.text.survey import Survey
from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.urls import open_file

LEAST = 32 << 20
"""Bytes of text that are worth a task of their own."""
MOST = 128 << 20
"""Bytes of text that a task reads: the rows of about one data file."""
LEAST_TOGETHER = 8 << 20
"""Bytes of other landed files that are worth a task of their own."""


@dataclass(frozen=True, slots=True)
class SurveyTask:
    """A range of a file to survey, in bytes."""

    location: str
    size: int
    text: TextFormat
    range: tuple[int, int]
    options: ObjectOptions | None = None


def groups(
    runner: Runner, landed: Sequence[LandedPath], *, is_load: bool
) -> list[tuple[LandedPath, ...]] | None:
    """What each task reads, in the order of the rows; None where one task has to read all.

    is_load: it is known that every row is an insert; it is not for files that have markers.
    """
    if not landed or any(file.text is None for file in landed):
        return None
    if not is_load and not any(file.size >= 2 * LEAST for file in landed):
        return None
    parts = _parts(runner, landed)
    if parts is None:
        return None
    found: list[tuple[LandedPath, ...]] = []
    some: list[LandedPath] = []
    for part in parts:
        is_alone = part.part is not None
        if some and (is_alone or sum(file.size for file in some) >= LEAST):
            found.append(tuple(some))
            some = []
        some.append(part)
        if is_alone:
            found.append((part,))
            some = []
    return [*found, tuple(some)] if some else found


def together(landed: Sequence[LandedPath], slots: int) -> list[tuple[LandedPath, ...]]:
    """Files of a load that need not be read as one: what each task reads, in their order.

    Its files become one data file, so that small ones need not be joined afterwards. No task reads
    more of small files than of a large one, and none more than a batch may hold.
    """
    most = _bytes_each(landed, slots, LEAST_TOGETHER)
    found: list[list[LandedPath]] = []
    size = 0
    for file in landed:
        size += file.size
        if not found or size > most:
            found.append([])
            size = file.size
        found[-1].append(file)
    return [tuple(some) for some in found]


def _parts(runner: Runner, landed: Sequence[LandedPath]) -> list[LandedPath] | None:
    """The files, large ones of them in parts; None when a task dies of the survey."""
    part = _bytes_each(landed, runner.slots, LEAST)
    surveyed = [_survey_tasks(file, part) for file in landed]
    try:
        surveys = iter(runner.run(_survey, [one for some in surveyed for one in some]))
    except TasksDied:
        return None
    found: list[LandedPath] = []
    for file, some in zip(landed, surveyed, strict=True):
        cut = splits.joined([next(surveys) for _ in some], file.size) if some else []
        found += [replace(file, part=part) for part in cut] if len(cut) > 1 else [file]
    return found


def _bytes_each(landed: Sequence[LandedPath], slots: int, least: int) -> int:
    """As much as a task may read, unless slots would have nothing to do."""
    each = sum(file.size for file in landed) // (2 * max(slots, 1))
    return min(max(each, least), MOST)


def _survey_tasks(file: LandedPath, part: int) -> list[SurveyTask]:
    """What to survey of a file that is large enough; nothing otherwise."""
    assert file.text is not None
    if file.size < 2 * LEAST or not splits.can_be_cut(file.text):
        return []
    ranges = splits.survey_ranges(file.size, part)
    return [SurveyTask(file.location, file.size, file.text, one, file.options) for one in ranges]


def _survey(task: SurveyTask) -> Survey | None:
    """Runs in a task. A file that is not there is told by the task that reads it."""
    try:
        with open_file(task.location, task.options) as handle:
            return splits.look(handle, task.size, task.text, task.range)
    except OSError:
        return None
