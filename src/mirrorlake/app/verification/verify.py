"""Verifies mirrored tables: source and mirror by ranges of the key, at one position (CF-085).

In this order, so that both sides are read at one position while changes flow:

    snapshot of the source → a cut at or beyond it is shown → changes up to the cut read
        → ranges of each table compared

Nothing is changed on either side. A table is locked against being altered while it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from mirrorlake import root
from mirrorlake.app.changes import cut
from mirrorlake.app.changes.cut import ConsistentCut
from mirrorlake.app.source import prerequisites
from mirrorlake.app.status import ended
from mirrorlake.app.stores import store_of
from mirrorlake.app.verification.comparison import Differences, compare, plain
from mirrorlake.app.verification.mirrored_rows import opened
from mirrorlake.app.verification.source_rows import RowsAtCut
from mirrorlake.capture.backfill.ranges import requested_range
from mirrorlake.capture.backfill.reading import ChunkLimits
from mirrorlake.capture.landing import table_positions
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.tables import replaced
from mirrorlake.capture.tables.dropped import dropped_names
from mirrorlake.capture.watch.snapshot_waits import logged_waits
from mirrorlake.config import Project
from mirrorlake.delta.log.table_log import BrokenLog
from mirrorlake.delta.workspace import LostFile, Unreachable
from mirrorlake.errors import (
    CannotBackfill,
    NotReached,
    SourceUnavailable,
    TableError,
    UsageError,
    tables_like,
)
from mirrorlake.model.clock import Clock
from mirrorlake.model.keys import KeyRange
from mirrorlake.model.position import LogPoint
from mirrorlake.model.table import named
from mirrorlake.sources.base import Snapshot, Source
from mirrorlake.sources.table import SourceTable
from mirrorlake.storage.lease import holder_of

_WAIT_SECONDS = 0.5
_TIMEOUT = 60.0  # a cut is written and applied every few seconds, also while the source is idle
_START = (
    "Keep `mirrorlake run` running, or run `mirrorlake run --once` while this waits, as with "
    "--timeout 60."
)
_GONE = "it is mirrored, and the source does not have it any more, or it is no longer selected"
_DROPPED = "it was dropped in the source"
_LATER = "it is left out, because it was created later (mirror.schema_change.table_created)"

Progress = Callable[[str, int, int | None], None]
"""Called with a table, how many of its rows are compared, and about how many it has."""


@dataclass(frozen=True, slots=True)
class VerifySettings:
    """How tables are verified. timeout: seconds until the mirror shows the position of the source,
    whether it works or not, None for as long as is usual and only while it works; examples: keys of
    each kind that are reported for a table, and ranges; keys: the first and the last value of the
    first key column, as texts, None for all; limits: of one range."""

    timeout: float | None = None
    examples: int = 10
    max_rows_per_second: int | None = None
    keys: tuple[str, str] | None = None
    limits: ChunkLimits = field(default_factory=lambda: ChunkLimits(rows=250_000, size=128 << 20))


@dataclass(frozen=True, slots=True)
class DifferingRange:
    """A range of the key with differences, behind `after` and up to `upto`; None for no bound."""

    after: Mapping[str, Any] | None
    upto: Mapping[str, Any] | None
    found: Differences


@dataclass(frozen=True, slots=True)
class VerifiedTable:
    """How a table compares. version: of the mirror; unverified: why it could not be compared to the
    end, empty when it was; ranges: how many were compared; differing: some that differ."""

    table: str
    version: int | None = None
    found: Differences = field(default_factory=Differences)
    ranges: int = 0
    differing: Sequence[DifferingRange] = ()
    unverified: str = ""

    @property
    def is_equal(self) -> bool:
        return not self.unverified and not self.found.count

    def facts(self) -> dict[str, Any]:
        """As `mirrorlake verify --json` prints it."""
        found = self.found
        return {
            "table": self.table,
            "version": self.version,
            "equal": self.is_equal,
            "unverified": self.unverified or None,
            "source_rows": found.source,
            "mirror_rows": found.mirrored,
            "missing": found.missing,
            "extra": found.extra,
            "different": found.different,
            "columns": dict(found.columns),
            "examples": {kind: list(keys) for kind, keys in found.examples.items()},
            "ranges": self.ranges,
            "differing_ranges": [
                {
                    "after": one.after,
                    "upto": one.upto,
                    "source_rows": one.found.source,
                    "mirror_rows": one.found.mirrored,
                    "missing": one.found.missing,
                    "extra": one.found.extra,
                    "different": one.found.different,
                }
                for one in self.differing
            ],
        }


@dataclass(frozen=True, slots=True)
class Verification:
    """The result for all tables, at one position of the source. No tables are not equal ones."""

    position: str
    cut: int
    tables: Sequence[VerifiedTable]

    @property
    def is_equal(self) -> bool:
        return bool(self.tables) and all(table.is_equal for table in self.tables)

    def facts(self) -> dict[str, Any]:
        """As `mirrorlake verify --json` prints it."""
        return {
            "position": self.position,
            "cut": self.cut,
            "equal": self.is_equal,
            "tables": [table.facts() for table in self.tables],
        }


def verify(
    project: Project,
    tables: Sequence[str],
    settings: VerifySettings,
    clock: Clock,
    pause: Callable[[float], bool],
    progress: Progress = lambda _table, _rows, _expected: None,
) -> Verification:
    """Compare tables, or all, with the source. pause: waits for so many seconds, and says whether
    to stop. Raises UsageError for a table that there is not, NotReached when the mirror does not
    show the position of the source in time, SourceUnavailable."""
    if not project.lands:
        raise UsageError(
            "this project writes event files, and has no tables to compare with the source",
            where=f"mirror {project.name}",
            hint="Compare what is made of the files.",
        )
    with closing(prerequisites.source_of(project)) as source:
        return _Verifying(project, source, settings, clock, pause, progress).done(tables)


@dataclass(frozen=True)
class _Verifying:
    project: Project
    source: Source
    settings: VerifySettings
    clock: Clock
    pause: Callable[[float], bool]
    progress: Progress

    def done(self, names: Sequence[str]) -> Verification:
        chosen, left_out = self._chosen(names)
        allowed = self.settings.timeout
        deadline = self.clock.monotonic() + (_TIMEOUT if allowed is None else allowed)
        with closing(self._snapshot(deadline)) as snapshot:
            shown = self._shown(str(snapshot.point), [str(one.table) for one in chosen], deadline)
            until = self.source.parse_point(shown.position)
            covered = [table for table in chosen if str(table.table) in shown.tables]
            rows = RowsAtCut(snapshot, covered, until)
            rows.read_changes(self.source, lambda: self._check_time(until, deadline))
            found = [self._table(table, shown, rows) for table in chosen]
        return Verification(shown.position, shown.number, [*found, *left_out])

    def _snapshot(self, deadline: float) -> Snapshot:
        """Raises NotReached where a transaction of others does not end in time."""

        def is_over() -> bool:
            return self.clock.monotonic() > deadline or self.pause(0)

        try:
            with logged_waits(self.source.pulse(), self.clock, is_over):
                return self.source.snapshot()
        except SourceUnavailable as error:
            if not is_over():
                raise
            raise NotReached(
                "the source took no snapshot in time, because a transaction is open",
                where=self.project.name,
                hint="`mirrorlake check` names those that are open for long. Allow more time with "
                "--timeout.",
            ) from error

    def _chosen(self, names: Sequence[str]) -> tuple[list[SourceTable], list[VerifiedTable]]:
        """The named tables as the source has them now, or all; and those that cannot be compared,
        because they are refused or no longer there. Raises UsageError."""
        if self.settings.keys and len({*names}) != 1:
            raise UsageError(
                "a range of keys needs one table",
                where="verify",
                hint="Write `mirrorlake verify TABLE --where-key FROM TO`.",
            )
        records = Records(store_of(self.project), root.LANDING)
        loaded = table_positions.identities(records)
        given_up = replaced.given_up_names(records)
        self.source.keep_names(
            {identity: table for table, identity in loaded.items() if str(table) not in given_up},
            loaded,
            dropped_names(records),
        )
        known = {str(one.table): one for one in self.source.discover()}
        reasons = {name: str(one.refused) for name, one in known.items() if one.refused}
        reasons |= {str(table): _GONE for table in loaded if str(table) not in known}
        admission = records.admission()
        later = {*known} & {*admission.left_out} if admission else set[str]()
        reasons |= dict.fromkeys(later, _LATER)
        dropped = records.dropped().keys() - known.keys()
        reasons |= dict.fromkeys(dropped, _DROPPED)
        names = [named(name, {*known, *reasons}, where="verify") for name in names]
        if unknown := sorted(set(names) - set(known) - set(reasons)):
            raise UsageError(
                f"there is no table {unknown[0]}",
                where="verify",
                hint=tables_like(unknown[0], known),
            )
        everything = [name for name in (*known, *reasons) if name not in later | dropped]
        wanted = dict.fromkeys(names or everything)
        left_out = [
            VerifiedTable(name, unverified=reasons[name]) for name in wanted if name in reasons
        ]
        return [known[name] for name in wanted if name not in reasons], left_out

    def _shown(self, point: str, tables: Sequence[str], deadline: float) -> ConsistentCut:
        """The newest cut at or beyond a point that the tables show, as soon as there is one. Raises
        NotReached."""
        while True:
            # Before the cuts are read: what works now may end with one.
            may_come = self.settings.timeout is not None or self._is_mirroring()
            try:
                return cut.find_beyond(self.project, point, tables)
            except NotReached as error:
                left = deadline - self.clock.monotonic()
                if may_come and left > 0 and not self.pause(min(_WAIT_SECONDS, left)):
                    continue
                nobody = "" if may_come else "nothing is captured or applied here now, and "
                raise NotReached(f"{nobody}{error.what}", where=error.where, hint=_START) from error

    def _is_mirroring(self) -> bool:
        """Whether a process captures or applies, and so may make a cut, or show one."""
        store, now = store_of(self.project), self.clock.now()
        return any(holder_of(store, role, now) for role in (ended.CAPTURE, ended.MIRROR))

    def _check_time(self, until: LogPoint, deadline: float) -> None:
        if self.clock.monotonic() > deadline or self.pause(0):
            raise NotReached(
                f"the log of the source was not read up to {until} in time",
                where=self.project.name,
                hint="Allow more time with --timeout.",
            )

    def _table(self, table: SourceTable, shown: ConsistentCut, rows: RowsAtCut) -> VerifiedTable:
        name = str(table.table)
        if name not in shown.tables:
            return VerifiedTable(name, unverified=shown.excluded[name])
        version = shown.tables[name]
        result = VerifiedTable(name, version.version)
        try:
            with opened(version) as mirrored:
                for keys, source in self._paced(table, rows):
                    found = compare(
                        source,
                        mirrored.within(source, table.key, keys, self.settings.limits),
                        table.key,
                        name,
                        self.settings.examples,
                    )
                    result = self._joined(result, keys, found)
        except CannotBackfill as error:  # the hint is how to load it
            return replace(result, unverified=error.what)
        except TableError as error:
            return replace(result, unverified=str(error))
        except SourceUnavailable as error:
            again = f"{error.what}. Run `mirrorlake verify {name}` again."
            return replace(result, unverified=again)
        except (BrokenLog, LostFile, Unreachable, OSError) as error:
            reason = f"version {version.version} of the mirror cannot be read: {error}"
            return replace(result, unverified=reason)
        return result

    def _paced(self, table: SourceTable, rows: RowsAtCut) -> Iterator[tuple[KeyRange, pa.Table]]:
        """The ranges of a table, no faster than allowed."""
        begun, read = self.clock.monotonic(), 0
        wanted = requested_range(table, self.settings.keys)
        for keys, found in rows.of(table, wanted, self.settings.limits):
            yield keys, found
            read += found.num_rows
            self.progress(str(table.table), read, table.rows)
            most = self.settings.max_rows_per_second
            ahead = read / most - (self.clock.monotonic() - begun) if most else 0.0
            if self.pause(max(ahead, 0.0)):
                raise TableError(
                    "it was stopped before the end of the table",
                    table=str(table.table),
                    hint=f"Run `mirrorlake verify {table.table}` again.",
                )

    def _joined(self, result: VerifiedTable, keys: KeyRange, found: Differences) -> VerifiedTable:
        differing = list(result.differing)
        if found.count and len(differing) < self.settings.examples:
            differing.append(DifferingRange(_bound(keys.low), _bound(keys.high), found))
        joined = result.found.joined(found, self.settings.examples)
        return replace(result, found=joined, ranges=result.ranges + 1, differing=differing)


def _bound(bound: pa.Table | None) -> Mapping[str, Any] | None:
    return None if bound is None else plain(bound)[0]
