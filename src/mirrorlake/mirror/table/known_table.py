"""The facts about a table that are known before its files are inspected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from mirrorlake.delta.schema import STATISTICS_COLUMNS, VECTORS, FeedMode, is_mapped
from mirrorlake.landing.metadata import BY_TIME, IN_PARTITIONS, NAMED
from mirrorlake.landing.scan import Landed, TableScan
from mirrorlake.mirror.settings import MirrorSettings, TableOptions
from mirrorlake.mirror.strategy import StrategyFacts, StrategyName, choose_strategy
from mirrorlake.mirror.table.file_detection import ByTime, Detection, InPartitions, InSequence
from mirrorlake.mirror.table.processed import Processed
from mirrorlake.mirror.table.progress import Progress
from mirrorlake.mirror.table.recreated import is_recreated, is_recreated_unnumbered


@dataclass(frozen=True, slots=True)
class CutTarget:
    """The last file number that a table should apply in this cycle, and the cut it belongs to."""

    number: int | None = None
    cut: int | None = None


@dataclass(frozen=True, slots=True)
class KnownTable:
    """The facts about a table that are known before its files are inspected.

    tail: the digest of the last bytes of a file, as `Tails`; processed: the applied names, if the
    files have no single sequence; platform: why `direct` is not possible with this Spark, or "".
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
    def awaits_metadata(self) -> bool:
        """Whether the files cannot be read before `_metadata.json` exists: if the settings require
        it (LZ-040), and always for delimited text (LZ-042)."""
        undescribed = self.scan.metadata is None and self.settings.metadata_required
        return undescribed or self.scan.is_undescribed_text

    @property
    def options(self) -> TableOptions:
        """What the project says of it."""
        return self.settings.options_of(self.scan.table)

    @property
    def removes_columns(self) -> bool:
        """Whether columns that are gone in the source are removed: the project wants it, and the
        readers of the table know column mapping, by which a name can be used again."""
        return self.settings.drops_columns and self._has_mapping_readers

    @property
    def renames_columns(self) -> bool:
        """Whether columns that are renamed in the source are renamed by column mapping: the project
        wants it, the readers of the table know column mapping, and nothing but the schema names
        columns of the table."""
        return (
            self.settings.renames_columns
            and self._has_mapping_readers
            and self._is_direct
            and STATISTICS_COLUMNS not in self.progress.properties
        )

    @property
    def widens_types(self) -> bool:
        """Whether columns are widened without rewriting data files: the project wants it, and no
        other writer has to know of it."""
        return self.settings.widens_types and self._is_direct

    @property
    def _is_direct(self) -> bool:
        facts = StrategyFacts(self.settings.strategy, self.platform, self.progress.delegated)
        return choose_strategy(facts).strategy is StrategyName.DIRECT

    @property
    def _has_mapping_readers(self) -> bool:
        properties = self.progress.properties
        return properties.get(VECTORS) == "true" or is_mapped(properties)

    @property
    def feed(self) -> FeedMode:
        """What its commits record."""
        return FeedMode.of(self.progress.properties)

    @property
    def is_reseeded(self) -> bool:
        """Whether the publisher has recreated the folder since the table was created (LZ-232,
        LZ-233)."""
        if not self.progress.exists or self.awaits_metadata or self.scan.error:
            return False
        described = self.scan.metadata
        if described and described.ours:
            return described.ours.generation != self.progress.generation
        # A table without a generation was not created by us, so it is not replaced.
        if not self.progress.generation:
            return False
        if self.scan.detection == self.progress.detection in NAMED:
            return is_recreated_unnumbered(self.scan, self.progress, self.processed, self.tail)
        return is_recreated(self.scan, self.progress, self.tail)

    @property
    def whole_rows(self) -> bool:
        """Whether a change finds its row by all columns, before the next batch."""
        if self.progress.whole_rows is not None and not self.is_reseeded:
            return self.progress.whole_rows
        return self.scan.metadata is not None and self.scan.metadata.whole_rows

    @property
    def recorded(self) -> int:
        """The number of the last file that need not be applied again."""
        return 0 if self.is_reseeded else self.progress.recorded

    @property
    def detection(self) -> Detection:
        """How its new files are detected."""
        applied = Processed() if self.is_reseeded else self.processed
        if self.scan.detection == BY_TIME:
            return ByTime(applied)
        if self.scan.detection == IN_PARTITIONS:
            return InPartitions(applied)
        return InSequence(self.recorded, self.target.number)
