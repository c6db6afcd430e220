"""The applied file names of tables whose files have no single sequence (LZ-127).

These are tables in timestamp mode, and tables with a sequence in each partition folder (LZ-059).
Each commit records the number of its batch and the names of its files. Because the log of a table
is truncated, the names are also written to a side record, and cached in memory:

    batch committed → commit durable → names recorded → files moved to the cleanup folder

After a crash in between, the names that the side record lacks are read from the commits. If these
are no longer in the log, it is unknown what was applied, and the table stops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from mirrorlake import root
from mirrorlake.errors import ProgressLost
from mirrorlake.landing.applied_names import SideRecord
from mirrorlake.landing.metadata import NAMED
from mirrorlake.landing.names import folder_name
from mirrorlake.landing.scan import TableScan
from mirrorlake.mirror.table.processed import Processed, folder_of
from mirrorlake.mirror.table.progress import Progress
from mirrorlake.model.landed import LaterFormat, NamedBatch
from mirrorlake.storage.store import Store


class Table(Protocol):
    """The part of an engine that is needed here."""

    def progress(self, path: str) -> Progress: ...

    def named_batches(self, path: str, after: int) -> Sequence[NamedBatch]: ...


class TableProcessedNames:
    """The applied names of one generation of a table, and the batches that are not in the side
    record yet."""

    def __init__(self, record: SideRecord, table: str, path: str) -> None:
        self._record, self._table, self.path = record, table, path
        self._unrecorded: list[NamedBatch] = []
        self._is_read = False
        self.processed = Processed()

    @property
    def unrecorded(self) -> Sequence[NamedBatch]:
        return self._unrecorded

    def update(self, recorded: int, engine: Table) -> Processed:
        """The names that batches up to `recorded` have applied. Raises ProgressLost."""
        if not self._is_read:
            self._read()
        if recorded < self.processed.batches:
            # Another process has applied batches since the progress was read.
            recorded = engine.progress(self.path).recorded
        if recorded < self.processed.batches:
            raise self._lost(f"the table has recorded {recorded} batches, fewer than before")
        if recorded > self.processed.batches:
            self._catch_up(engine.named_batches(self.path, self.processed.batches))
        if recorded > self.processed.batches:
            raise self._lost(
                f"the files of batch {self.processed.batches + 1} are recorded nowhere"
            )
        return self.processed

    def save(self) -> None:
        """Append the unrecorded batches to the side record; durable on return."""
        if self._unrecorded:
            self._record.append(self._unrecorded)
            self._unrecorded = []

    def _read(self) -> None:
        try:
            segments = self._record.read()
        except LaterFormat as error:
            raise ProgressLost(
                str(error), table=self._table, hint="Use the release that wrote it, or a later one."
            ) from error
        for segment in segments:
            self.processed.add(segment.last, segment.names)
        self._is_read = True

    def _catch_up(self, batches: Iterable[NamedBatch]) -> None:
        for batch in batches:
            if batch.number == self.processed.batches + 1:
                self.processed.add(batch.number, batch.names)
                self._unrecorded.append(batch)

    def _lost(self, what: str) -> ProgressLost:
        return ProgressLost(
            f"the record of the files that were applied is incomplete: {what}",
            table=self._table,
            hint=f"Restore {root.STATE} and {self.path} from the same backup, or have the "
            "publisher recreate the folder with all its data and run `mirrorlake reset "
            f"{self._table}`.",
        )


class ProcessedNames:
    """The applied names of all tables, cached in this process."""

    def __init__(self, store: Store, engine: Table) -> None:
        self._store, self._engine = store, engine
        self._known: dict[str, tuple[str, TableProcessedNames]] = {}

    def processed(self, scan: TableScan, path: str, progress: Progress) -> Processed:
        """The files that a table has applied; empty if its files have a single sequence. Raises
        ProgressLost."""
        if not (scan.detection == progress.detection in NAMED and progress.generation):
            return Processed()
        generation, follower = self._known.get(path, ("", None))
        if follower is None or generation != progress.generation:
            folder = f"{folder_of(path)}/{folder_name(progress.generation)}"
            follower = TableProcessedNames(SideRecord(self._store, folder), str(scan.table), path)
            self._known[path] = progress.generation, follower
        return follower.update(progress.recorded, self._engine)

    def record(self, make_durable: Callable[[str, int], None]) -> Iterator[str]:
        """Append the unrecorded batches of all tables to their side records. Yields the paths of
        these tables.

        make_durable: makes a version of the table at a path durable; called before.
        """
        for _generation, follower in self._known.values():
            if follower.unrecorded:
                for batch in follower.unrecorded:
                    make_durable(follower.path, batch.version)
                follower.save()
                yield follower.path
