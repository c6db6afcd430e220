"""The linter checks one table after another: names, metadata, files, rows.

It only reads. Memory: the names of one table, a block of one file, and the keys of that file up to
a limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from mirrorlake.errors import BadValue, TableError, UnknownMarker
from mirrorlake.landing import layout
from mirrorlake.landing.layout import TableFolder
from mirrorlake.landing.parquet import bounded
from mirrorlake.landing.parquet import reader as parquet
from mirrorlake.landing.parquet.reader import Rows
from mirrorlake.landing.partitions import partitions
from mirrorlake.lint import text_files
from mirrorlake.lint.catalog import Profile
from mirrorlake.lint.finding import Finding, FindingLocation, Report, shown
from mirrorlake.lint.rules import columns as column_rules
from mirrorlake.lint.rules import layout as layout_rules
from mirrorlake.lint.rules import metadata as metadata_rules
from mirrorlake.lint.rules import parquet as parquet_rules
from mirrorlake.lint.rules import partner_events as partner_rules
from mirrorlake.lint.rules import sequence as sequence_rules
from mirrorlake.lint.rules.evolution import History
from mirrorlake.lint.rules.metadata import Described
from mirrorlake.lint.rules.parquet import NOT_OURS, UNREADABLE, Opener
from mirrorlake.lint.rules.rows import RowCheck, RowCounts
from mirrorlake.lint.sampling import Reading, Unread
from mirrorlake.lint.table_view import (
    LintedFile,
    Seen,
    TableView,
    cleanup_listings,
    has_metadata,
)
from mirrorlake.lint.target import Target
from mirrorlake.model.change import Marker
from mirrorlake.model.table import TableId

BLOCK = bounded.BLOCK_ROWS
"""Maximum number of rows of a Parquet file that are checked at once."""

WIDEST = 256 << 20
"""Maximum bytes of the pages of a single row; the rows of files that exceed it are not read."""

Progress = Callable[[TableId, int, int], None]
"""Called before each table with its index, from 0, and the number of tables; at the end with both
equal."""


def _silent(_table: TableId, _done: int, _all: int) -> None:
    pass


@dataclass(slots=True)
class Result:
    """The result of a run. unreadable: folders and files that could not be read, with the
    reason."""

    report: Report
    tables: int = 0
    files: int = 0
    unread: Unread = field(default_factory=Unread)
    unreadable: list[tuple[str, str]] = field(default_factory=list)

    @property
    def findings(self) -> list[Finding]:
        return self.report.findings

    @property
    def is_good(self) -> bool:
        return not self.report.errors and not self.unreadable


def lint(
    target: Target,
    profile: Profile = Profile(),  # noqa: B008  both are frozen
    reading: Reading = Reading(),  # noqa: B008
    progress: Progress = _silent,
) -> Result:
    """Check the target. Raises OSError only if the landing zone itself cannot be read."""
    result = Result(Report(profile))
    folders = target.tables()
    if target.folders is None:
        layout_rules.check_zone(target, folders, result.report)
        partner_rules.check(target, result.report)
    share = reading.share(len(folders))
    for location, folder in enumerate(folders):
        progress(folder.table, location, len(folders))
        try:
            _Table(target, folder, result).check(reading, share)
        except OSError as error:
            result.unreadable.append((folder.path, shown(error)))
    if folders:
        progress(folders[-1].table, len(folders), len(folders))
    return result


class _Table:
    """One table folder."""

    def __init__(self, target: Target, folder: TableFolder, result: Result) -> None:
        self._target = target
        self._store = target.store
        self._folder = folder
        self._result = result
        self._report = result.report

    def check(self, reading: Reading, share: int) -> None:
        if layout_rules.is_schema_misspelt(self._target, self._folder):
            location = FindingLocation(self._folder.path)
            self._report.add("LZ-013/schema-suffix-case", location, location.file)
            return
        self._result.tables += 1
        layout_rules.check_folder(self._target, self._folder, self._report)
        view = self._view()
        partner_rules.check_level(view.listing, view.location, self._report)
        text_files.check_described(view, self._report)
        metadata = view.described.metadata
        history = History(metadata.key_columns if metadata else (), self._report)
        for part in self._parts(view):
            sequence_rules.check(part, self._report)
            sequence_rules.check_cleanup(part, self._store, self._report)
            self._files(part, reading, share, history)

    def _parts(self, view: TableView) -> list[TableView]:
        """The folders with a sequence of files: of a table its own, where partitions are read those
        of its partitions too."""
        if not view.is_partitioned(self._report.profile):
            return [view]
        parts = [view]
        for path, listing in partitions(self._store, self._folder.path, view.listing):
            if path:
                folder = TableFolder(self._folder.table, f"{self._folder.path}/{path}")
                moved = cleanup_listings(self._store, folder.path, listing)
                parts.append(replace(view, folder=folder, listing=listing, moved=moved))
        return [part for part in parts if part.files or part.moved] or parts[:1]

    def _view(self) -> TableView:
        listing = self._store.list(self._folder.path)
        described = Described(None, None)
        location = FindingLocation(f"{self._folder.path}/{layout.METADATA}", self._folder.table)
        if has_metadata(listing):
            described = metadata_rules.check(
                self._store.read(location.path), location, self._report
            )
        moved = cleanup_listings(self._store, self._folder.path, listing)
        return TableView(self._folder, listing, described, moved)

    def _files(self, view: TableView, reading: Reading, share: int, history: History) -> None:
        files = view.files
        depths = reading.depths(files, share)
        self._result.files += len(files)
        self._result.unread.unopened += len(files) - len(depths)
        for file in files:
            location = FindingLocation(file.path, self._folder.table)
            if file.path not in depths:
                parquet_rules.check_size(file, location, self._report)
                continue
            try:
                seen, counts = self._file(view, file, location, depths[file.path])
            except FileNotFoundError:
                self._result.unread.vanished += 1
                continue
            except OSError as error:
                self._result.unreadable.append((file.path, shown(error)))
                continue
            if seen:
                history.next(seen, counts, location)

    def _file(
        self, view: TableView, file: LintedFile, location: FindingLocation, depth: int | None
    ) -> tuple[Seen | None, RowCounts | None]:
        open_: Opener = partial(self._store.open, file.path)
        metadata = view.described.metadata
        text = view.text
        if metadata is None and not file.is_parquet:
            self._result.unread.unopened += 1  # its format is not known
            return None, None
        seen = (
            parquet_rules.check_file(open_, file, location, self._report)
            if file.is_parquet
            else text_files.check_file(open_, text, file, location, self._report)
        )
        if seen is None:
            return None, None
        key = metadata.key_columns if metadata else ()
        names = column_rules.check_key(key, seen.schema, seen.names, location, self._report)
        if metadata is None or names is None or depth == 0:
            self._result.unread.footers += 1  # not to be read, or the meaning of rows is unknown
            return seen, None
        rows = RowCheck(
            names,
            is_keyless=not (key or metadata.whole_rows),
            has_marker=seen.has_marker,
            location=location,
            report=self._report,
        )
        default = Marker.UPSERT if metadata.upsert_default else Marker.INSERT
        if file.is_parquet:
            blocks = _parquet_blocks(open_, seen, default, location, depth)
            return seen, self._rows(rows, blocks, seen, location, depth)
        blocks = text_files.read_blocks(open_, text, seen, default, names, location, depth)
        counts = self._rows(rows, blocks, seen, location, depth)
        if counts and not counts.is_only_deletes:
            text_files.check_declared(seen, text, location, self._report)
        return seen, counts

    def _rows(
        self,
        rows: RowCheck,
        blocks: Iterator[Rows],
        seen: Seen,
        location: FindingLocation,
        depth: int | None,
    ) -> RowCounts | None:
        try:
            for block in blocks:
                rows.block(block)
        except TableError as error:
            self._refused(error, seen, location)
            return None
        except NOT_OURS:
            raise
        except bounded.TooWide:
            self._result.unread.footers += 1
            return None
        except bounded.TooLarge as error:
            self._report.add("LZ-267/refused", location, shown(error))
            return None
        except UNREADABLE as error:
            self._report.add("LZ-276/incomplete", location, shown(error))
            return None
        is_complete = depth is None or rows.rows_read == seen.rows
        self._result.unread.partly += not is_complete
        counts = rows.end(is_complete=is_complete)
        self._result.unread.uncompared += not rows.has_compared
        return counts

    def _refused(self, error: TableError, seen: Seen, location: FindingLocation) -> None:
        """Report an error of the engine's reader as a finding."""
        if not seen.file.is_parquet:
            text_files.refuse(error, location, header=seen.names, report=self._report)
            return
        at = location.of(error)
        if isinstance(error, UnknownMarker):
            value = "NULL" if error.value is None else shown(error.value)
            self._report.add("LZ-085/marker-unknown", at, f"marker {value}")
        elif isinstance(error, BadValue):
            self._report.add("LZ-151/value-does-not-fit", at, shown(error.what))
        else:
            self._report.add("LZ-276/incomplete", at, shown(error.what))


def _parquet_blocks(
    open_: Opener, seen: Seen, default: Marker, location: FindingLocation, depth: int | None
) -> Iterator[Rows]:
    """The rows of a Parquet file, converted by the code of the engine. depth: bytes to read.

    Raises TableError, whose row number counts from the beginning of the file, and the errors of
    damaged files.
    """
    size = seen.file.size
    most = None if depth is None else max(BLOCK, (seen.rows or 0) * depth // size)
    done = 0
    with open_() as handle:
        opened = bounded.opened(handle, size)
        blocks = bounded.read_blocks(opened, handle, bounded.FILE_BYTES, widest=WIDEST)
        for batch in blocks:
            try:
                yield parquet.converted(
                    pa.Table.from_batches([batch]),
                    seen.schema,
                    default,
                    table=str(location.table),
                    file=seen.file.name,
                )
            except TableError as error:
                if error.row is not None:
                    error.row += done
                raise
            done += batch.num_rows
            if most is not None and done >= most:
                return
