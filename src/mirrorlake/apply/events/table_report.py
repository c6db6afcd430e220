"""What became of a batch of events in its table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mirrorlake.apply.events.reading import DeadLetter
from mirrorlake.mirror.engine import Counts


@dataclass(frozen=True, slots=True)
class EventTableReport:
    """The result of a batch.

    version: of the table, -1 if there is none.
    letters: events that could not be applied.
    """

    version: int
    counts: Counts = field(default_factory=Counts)
    letters: Sequence[DeadLetter] = ()
    commits: int = 0

    def then(self, other: EventTableReport) -> EventTableReport:
        """Both, this one first."""
        return EventTableReport(
            other.version,
            Counts.total([self.counts, other.counts]),
            [*self.letters, *other.letters],
            self.commits + other.commits,
        )
