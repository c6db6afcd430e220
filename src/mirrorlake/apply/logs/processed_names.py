"""Which files a table without one sequence has applied (LZ-127): followed, commit by commit.

Such are tables in timestamp mode, and those with a sequence in each partition folder (LZ-059).

The truth is in the commits of the table: each records the number of its batch and the names of its
files. Here they are held in memory, and kept in a side record, because a log forgets its commits:

    batch committed → commit durable → names recorded → files moved aside

After a crash in between, the record is behind; what it lacks is read from the commits. Where the
commits are gone as well, nobody can tell what was applied, and the table stops.
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
    """What is asked of an engine here."""

    def progress(self, path: str) -> Progress: ...

    def named_batches(self, path: str, after: int) -> Sequence[NamedBatch]: ...


class TableProcessedNames:
    """The processed names of one generation of a table, and what of them is not recorded yet."""

    def __init__(self, record: SideRecord, table: str, path: str) -> None:
        self._record, self._table, self.path = record, table, path
        self._unrecorded: list[NamedBatch] = []
        self._is_read = False
        self.processed = Processed()

    @property
    def unrecorded(self) -> Sequence[NamedBatch]:
        return self._unrecorded

    def follow(self, recorded: int, engine: Table) -> Processed:
        """The names that batches up to `recorded` have applied. Raises ProgressLost."""
        if not self._is_read:
            self._read()
        if recorded < self.processed.batches:
            # Another process got on since it was read.
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
        """Record what is not recorded yet; durable when it returns."""
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
    """The processed names of all tables, for as long as a process looks at them."""

    def __init__(self, store: Store, engine: Table) -> None:
        self._store, self._engine = store, engine
        self._known: dict[str, tuple[str, TableProcessedNames]] = {}

    def processed(self, scan: TableScan, path: str, progress: Progress) -> Processed:
        """What the table has applied, up to its progress; nothing where files have numbers.

        Raises ProgressLost.
        """
        if not (scan.detection == progress.detection in NAMED and progress.generation):
            return Processed()
        generation, follower = self._known.get(path, ("", None))
        if follower is None or generation != progress.generation:
            folder = f"{folder_of(path)}/{folder_name(progress.generation)}"
            follower = TableProcessedNames(SideRecord(self._store, folder), str(scan.table), path)
            self._known[path] = progress.generation, follower
        return follower.follow(progress.recorded, self._engine)

    def record(self, make_durable: Callable[[str, int], None]) -> Iterator[str]:
        """Record what the commits said and the side records lack; yields the path of each table.

        make_durable: makes a version of the table at a path durable, before anything rests on it.
        """
        for _generation, follower in self._known.values():
            if follower.unrecorded:
                for batch in follower.unrecorded:
                    make_durable(follower.path, batch.version)
                follower.save()
                yield follower.path
