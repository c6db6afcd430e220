"""Input splits: the files, or parts of files, that each task of a load reads.

Large delimited texts are split, small files are read together. A text can be split if all its rows
are inserts, because no task then needs the rows of another. Files without markers contain only
inserts. Large files with markers may contain only inserts, so it is tried: a task that reads
another marker gives up.
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

MIN_BYTES = 32 << 20
"""Minimum bytes of text per task."""
MAX_BYTES = 128 << 20
"""Maximum bytes of text per task, about the rows of one data file."""
MIN_GROUP_BYTES = 8 << 20
"""Minimum bytes of other landed files per task."""


@dataclass(frozen=True, slots=True)
class SurveyTask:
    """A range of a file to survey, in bytes."""

    location: str
    size: int
    text: TextFormat
    range: tuple[int, int]
    options: ObjectOptions | None = None


def split_inserts(
    runner: Runner, landed: Sequence[LandedPath], *, is_load: bool
) -> list[tuple[LandedPath, ...]] | None:
    """The files of each task, in row order; None if one task has to read all files.

    is_load: whether all rows are known to be inserts, because the files have no markers.
    """
    if not landed or any(file.text is None for file in landed):
        return None
    if not is_load and not any(file.size >= 2 * MIN_BYTES for file in landed):
        return None
    parts = _parts(runner, landed)
    if parts is None:
        return None
    found: list[tuple[LandedPath, ...]] = []
    group: list[LandedPath] = []
    for part in parts:
        is_alone = part.part is not None
        if group and (is_alone or sum(file.size for file in group) >= MIN_BYTES):
            found.append(tuple(group))
            group = []
        group.append(part)
        if is_alone:
            found.append((part,))
            group = []
    return [*found, tuple(group)] if group else found


def group_files(landed: Sequence[LandedPath], slots: int) -> list[tuple[LandedPath, ...]]:
    """Group the files of a load by task, in their order.

    The files of a group become one data file, so that small files need not be compacted later. A
    group has at most `MAX_BYTES` bytes, unless a single file has more.
    """
    most = _bytes_each(landed, slots, MIN_GROUP_BYTES)
    found: list[list[LandedPath]] = []
    size = 0
    for file in landed:
        size += file.size
        if not found or size > most:
            found.append([])
            size = file.size
        found[-1].append(file)
    return [tuple(group) for group in found]


def _parts(runner: Runner, landed: Sequence[LandedPath]) -> list[LandedPath] | None:
    """The files, with large files split into parts; None if a surveying task dies."""
    part = _bytes_each(landed, runner.slots, MIN_BYTES)
    surveyed = [_survey_tasks(file, part) for file in landed]
    try:
        surveys = iter(runner.run(_survey, [task for tasks in surveyed for task in tasks]))
    except TasksDied:
        return None
    found: list[LandedPath] = []
    for file, tasks in zip(landed, surveyed, strict=True):
        cut = splits.joined([next(surveys) for _ in tasks], file.size) if tasks else []
        found += [replace(file, part=part) for part in cut] if len(cut) > 1 else [file]
    return found


def _bytes_each(landed: Sequence[LandedPath], slots: int, least: int) -> int:
    """The bytes per task: about two tasks per slot, within `least` and `MAX_BYTES`."""
    each = sum(file.size for file in landed) // (2 * max(slots, 1))
    return min(max(each, least), MAX_BYTES)


def _survey_tasks(file: LandedPath, part: int) -> list[SurveyTask]:
    """The tasks that survey a file; none if it is too small to be split."""
    assert file.text is not None
    if file.size < 2 * MIN_BYTES or not splits.can_be_cut(file.text):
        return []
    ranges = splits.survey_ranges(file.size, part)
    return [
        SurveyTask(file.location, file.size, file.text, bounds, file.options) for bounds in ranges
    ]


def _survey(task: SurveyTask) -> Survey | None:
    """Survey a range in a task. A missing file is reported by the task that reads it."""
    try:
        with open_file(task.location, task.options) as handle:
            return splits.survey_range(handle, task.size, task.text, task.range)
    except OSError:
        return None
