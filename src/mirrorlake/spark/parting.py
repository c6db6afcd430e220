"""What each task of a load reads: of delimited text large files in parts and small ones together,
of other files small ones together.

To part a text is worth it where rows touch nothing, each an insert, so that no task needs the rows
of another. A file says so by having no marker; one with markers may still hold nothing but inserts,
and is tried when it is large: a task that meets another marker gives up at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mirrorlake.landing.text import splits as parts
from mirrorlake.landing.text.format import TextFormat
from mirrorlake.landing.text.survey import Survey
from mirrorlake.spark.jobs import Jobs
from mirrorlake.spark.refusals import RAISED, death
from mirrorlake.spark.task import LandedPath
from mirrorlake.storage.urls import ObjectOptions, open_file

LEAST = 32 << 20
"""Bytes of text that are worth a task of their own."""
MOST = 128 << 20
"""Bytes of text that a task reads: the rows of about one data file."""
LEAST_TOGETHER = 8 << 20
"""Bytes of other landed files that are worth a task of their own."""


@dataclass(frozen=True, slots=True)
class Look:
    """A place of a file that a task surveys."""

    location: str
    size: int
    text: TextFormat
    place: tuple[int, int]
    options: ObjectOptions | None = None


def groups(
    jobs: Jobs, landed: Sequence[LandedPath], *, is_load: bool
) -> list[tuple[LandedPath, ...]] | None:
    """What each task reads, in the order of the rows; None where one task has to read all.

    is_load: it is known that every row is an insert; it is not for files that have markers.
    """
    if not landed or any(file.text is None for file in landed):
        return None
    if not is_load and not any(file.size >= 2 * LEAST for file in landed):
        return None
    parts = _parts(jobs, landed)
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


def _parts(jobs: Jobs, landed: Sequence[LandedPath]) -> list[LandedPath] | None:
    """The files, large ones of them in parts; None when a task dies of the look at them."""
    part = _bytes_each(landed, jobs.slots, LEAST)
    looks = [_looks(file, part) for file in landed]
    try:
        surveys = iter(jobs.map(_survey, [look for some in looks for look in some]))
    except RAISED as error:
        if death(error) is None:
            raise
        return None
    found: list[LandedPath] = []
    for file, some in zip(landed, looks, strict=True):
        cut = parts.joined([next(surveys) for _ in some], file.size) if some else []
        found += [replace(file, part=part) for part in cut] if len(cut) > 1 else [file]
    return found


def _bytes_each(landed: Sequence[LandedPath], slots: int, least: int) -> int:
    """As much as a task may read, unless slots would have nothing to do."""
    each = sum(file.size for file in landed) // (2 * max(slots, 1))
    return min(max(each, least), MOST)


def _looks(file: LandedPath, part: int) -> list[Look]:
    """The places to survey of a file that is large enough; none otherwise."""
    assert file.text is not None
    if file.size < 2 * LEAST or not parts.can_be_cut(file.text):
        return []
    places = parts.offsets(file.size, part)
    return [Look(file.location, file.size, file.text, place, file.options) for place in places]


def _survey(look: Look) -> Survey | None:
    """Runs in a task. A file that is not there is told by the task that reads it."""
    try:
        with open_file(look.location, look.options) as handle:
            return parts.look(handle, look.size, look.text, look.place)
    except OSError:
        return None
