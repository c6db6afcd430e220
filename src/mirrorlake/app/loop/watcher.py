"""What a run reports while it works, for a display."""

from __future__ import annotations

from collections.abc import Mapping

from mirrorlake.app.loop.report import ApplyReport
from mirrorlake.capture.sink import LoadProgress
from mirrorlake.capture.watch.retention import LogRetention
from mirrorlake.errors import SourceUnavailable
from mirrorlake.mirror.engine import Applied, Counts
from mirrorlake.mirror.steps import ApplyFiles
from mirrorlake.model.table import TableId


class Watcher:
    """Called by the thread that runs the mirror, which waits for it. This one shows nothing."""

    def begun(self, report: ApplyReport) -> None:
        """Spark has started, and tables are applied. report: grows while they are."""

    def loading(self, progress: LoadProgress) -> None:
        """Rows of a table were read from the source, for its initial load."""

    def retained(self, log: LogRetention) -> None:
        """What the source keeps of its log for capture."""

    def waiting(self, error: SourceUnavailable | None) -> None:
        """Why capture waits for the source; None whenever it answers."""

    def pending(self, table: TableId, files: int) -> None:
        """So many files of a table wait to be applied; called in each cycle."""

    def applied(self, step: ApplyFiles, outcome: Applied) -> None:
        """A batch is in its table."""

    # -- of event files ---------------------------------------------------------------------------

    def found(self, rows: Mapping[TableId, int]) -> None:
        """Tables that are made of events; how many rows were applied to each before this run."""

    def events_applied(self, counts: Counts) -> None:
        """Events are in their table."""

    def caught_up(self) -> None:
        """The files that were there are applied; called in each cycle."""
