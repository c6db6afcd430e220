"""Whether the log of a source stands still, so that a look at the source would find what the last
one has found.

Everything that is looked for (tables, columns, keys, publications, how much of its log the source
keeps, what it counts) changes the log as well, or because the log grows. So a source is looked at
as often as is configured while its log moves, at once when it moves again, and otherwise only now
and then, for what the log does not tell: settings of the server.
"""

from __future__ import annotations

from mirrorlake.model.clock import Clock

AFTER_SECONDS = 60.0
"""How long looks go on after the log has moved: what was written to it may be seen only later (a
commit that waits for a standby, the counters of a server)."""

STILL_SECONDS = 300.0
"""Between two looks at a source whose log stands still."""


class StillLog:
    """For one stream. Not for several threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._moved = clock, clock.monotonic()

    def moved(self) -> None:
        """The log has moved, or it is unknown whether it has."""
        self._moved = self._clock.monotonic()

    @property
    def is_still(self) -> bool:
        return self._clock.monotonic() - self._moved >= AFTER_SECONDS

    def pause(self, usual: float, still: float) -> float:
        """How long to wait between two looks: as usual, or longer while the log stands still."""
        return max(usual, still) if self.is_still else usual
