"""What is known of a table before its files are looked at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from mirrorlake.landing.metadata import BY_TIME, IN_PARTITIONS, NAMED
from mirrorlake.landing.scan import Landed, TableScan
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.mirror.table.file_detection import ByTime, Detection, InPartitions, InSequence
from mirrorlake.mirror.table.processed import Processed
from mirrorlake.mirror.table.progress import Progress
from mirrorlake.mirror.table.recreated import is_begun_anew, is_recreated


@dataclass(frozen=True, slots=True)
class CutTarget:
    """How far a table should go in this cycle: a file number, and the cut that it belongs to."""

    number: int | None = None
    cut: int | None = None


@dataclass(frozen=True, slots=True)
class KnownTable:
    """What is known of a table before its files are looked at.

    tail: as `Tails` tells it; processed: what it has applied where there is not one sequence;
    platform: why `direct` is not open with this Spark.
    """

    scan: TableScan
    path: str
    progress: Progress
    settings: MirrorSettings = field(default_factory=MirrorSettings)
    target: CutTarget = field(default_factory=CutTarget)
    tail: Callable[[Landed], str] = lambda _file: ""
    processed: Processed = field(default_factory=Processed)
    platform: str = ""

    @property
    def is_unread(self) -> bool:
        """Its files are not looked at before it is described (LZ-040), texts never (LZ-042)."""
        undescribed = self.scan.metadata is None and self.settings.metadata_required
        return undescribed or self.scan.is_undescribed_text

    @property
    def is_reseeded(self) -> bool:
        """The publisher began the table anew since it was made (LZ-232, LZ-233)."""
        if not self.progress.exists or self.is_unread or self.scan.error:
            return False
        described = self.scan.metadata
        if described and described.ours:
            return described.ours.generation != self.progress.generation
        # Without a generation the table is not ours to make anew.
        if not self.progress.generation:
            return False
        if self.scan.detection == self.progress.detection in NAMED:
            return is_begun_anew(self.scan, self.progress, self.processed, self.tail)
        return is_recreated(self.scan, self.progress, self.tail)

    @property
    def recorded(self) -> int:
        """The last file that need not be applied again."""
        return 0 if self.is_reseeded else self.progress.recorded

    @property
    def detection(self) -> Detection:
        """How its new files are found."""
        applied = Processed() if self.is_reseeded else self.processed
        if self.scan.detection == BY_TIME:
            return ByTime(applied)
        if self.scan.detection == IN_PARTITIONS:
            return InPartitions(applied)
        return InSequence(self.recorded, self.target.number)
