"""One table of a publisher: its lease, its description, and its batches in order."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import structlog

from mirrorlake.errors import BadMetadata, KeyColumnsChanged, LeaseLost, TableError, UsageError
from mirrorlake.landing import layout, metadata
from mirrorlake.landing.metadata import Metadata
from mirrorlake.model.clock import Clock
from mirrorlake.model.crash_points import CrashHook, CrashPoint
from mirrorlake.model.table import TableId
from mirrorlake.model.types import DataType
from mirrorlake.publisher import state as states
from mirrorlake.publisher.describe import MANY_KEYS, Description, metadata_of
from mirrorlake.publisher.encoding.encoders import Codec
from mirrorlake.publisher.encoding.text import check_form
from mirrorlake.publisher.input.rows import row_blocks
from mirrorlake.publisher.journal import Journal, Published
from mirrorlake.publisher.locations import Workshop
from mirrorlake.publisher.operations import Meaning, Operation
from mirrorlake.publisher.shaping import Shaper
from mirrorlake.publisher.staging import Staging
from mirrorlake.publisher.state import State
from mirrorlake.storage.lease import RENEW, Lease
from mirrorlake.storage.store import Store

log = structlog.get_logger()

FILE_BYTES = 256 << 20  # one Spark task reads a file whole; larger ones would serialize the apply

LONG_KEY = "key_of_many_columns"
_DROP_AGAIN = (
    "Let the mirror run, or stop the process that uses the folder; then drop the table again."
)


@dataclass(frozen=True, slots=True)
class Settings:
    """How files are written; may differ from batch to batch.

    file_bytes: approximate maximum size of a file.
    """

    codec: Codec = Codec.SNAPPY
    file_bytes: int = FILE_BYTES


class AssignedTable:
    """A table that only this publisher writes (LZ-138). Not thread-safe."""

    def __init__(
        self,
        store: Store,
        workshop: Workshop,
        table: TableId,
        role: str,
        clock: Clock,
        reached: CrashHook,
        on_progress: Callable[[int], None],
        introduce: Callable[[], None],
    ) -> None:
        """May be used after `take` has returned. introduce: called before the table is first
        described."""
        self._store, self._workshop, self._table = store, workshop, table
        self._folder = workshop.table
        self._clock, self._reached, self._on_progress = clock, reached, on_progress
        self._introduce = introduce
        self._lease = Lease(store, role, clock)
        self._taken, self._renewed = False, clock.monotonic()
        self._is_begun = self._is_introduced = False

    def take(self) -> None:
        """Take the lease, unless it is held already. Raises LeaseHeld."""
        if not self._taken:
            self._lease.take()
            self._taken, self._renewed = True, self._clock.monotonic()

    def close(self) -> None:
        """Release the lease. Raises OSError if the storage fails."""
        self._lease.release()

    def describe(self, members: Mapping[str, Any], *, hold: bool = False) -> Description:
        """Define how the table is landed, and write `_metadata.json` if it can be written.

        members: members of Description; missing ones stay as they are. hold: do not write the
        metadata before `release` (LZ-056). Raises KeyColumnsChanged (LZ-036), UsageError.
        """
        with self._retracted_on_failure():
            journal = self._journal(members, hold=hold)
            self._write_metadata(journal.state)
        return journal.state.description

    def publish(
        self,
        rows: Any,
        meaning: Meaning,
        members: Mapping[str, Any],
        types: Mapping[str, DataType],
        batch: str | None,
        settings: Settings,
    ) -> Published:
        """Publish one batch, in the order of effects of `journal`.

        If it fails and the table is new, the table is removed.
        """
        with self._retracted_on_failure():
            journal = self._journal(members)
            journal.complete()
            if done := journal.published(batch):
                return done
            self._check(journal.state, meaning, batch)
            journal.begin(batch)
            state = journal.state
            shaper = Shaper(state.description, state.columns, types, meaning)
            first = journal.assign(batch).first
            try:
                staged = self._staging(state, settings).write(
                    first,
                    shaper.shape(row_blocks(rows, table=str(self._table))),
                    empty_file=meaning.is_load and first == 1,
                )
            except Exception:
                self._keep_lease(always=True)  # another publisher may own the state by now
                journal.withdraw()
                raise
            self._keep_lease(always=True)
            self._write_metadata(replace(journal.state, columns=shaper.columns))
            return journal.publish(
                staged, shaper.columns, marked=not meaning.is_load and bool(staged)
            )

    def release(self) -> None:
        """Write the `_metadata.json` of a table that was held back (LZ-056)."""
        state = self._loaded()
        if state is None:
            raise UsageError(
                "there is nothing to release", where=f"table {self._table}", hint="Load it first."
            )
        self._keep_lease(always=True)
        journal = self._journal_of(state)
        journal.complete()
        self._write_metadata(replace(journal.state, held=False))
        journal.save(replace(journal.state, held=False))

    def give_up(self, batch: str) -> bool:
        """Withdraw a batch that was started; False if there is no such pending batch.

        If a part of it is visible, the rest is published: what is visible cannot be withdrawn.
        """
        state = self._loaded()
        if state is None or state.pending is None or state.pending.batch != batch:
            return False
        self._keep_lease(always=True)
        journal = self._journal_of(state)
        if journal.is_visible(state.pending):
            journal.complete()
        else:
            journal.withdraw()
        return True

    def last_batch(self) -> str | None:
        """Complete or withdraw a batch that was begun; then the name of the last one."""
        state = self._loaded()
        if state is None:
            return None
        self._keep_lease(always=True)
        journal = self._journal_of(state)
        journal.complete()
        if journal.state.pending is not None:
            journal.withdraw()
        done = journal.state.done
        return done[-1].batch if done else None

    def drop(self, patience: float, gone: Callable[[], bool] | None) -> None:
        """Delete the folder with all its data (LZ-216, LZ-231).

        If a reader holds it open, the deletion is retried (LZ-236), for at most `patience` seconds.
        gone: called afterwards until it reports that the mirrored table was dropped (LZ-239), which
        took 1 to 2 minutes on the original (LZ-240). Raises TableError after that time.
        """
        self._lease.check()
        until = self._clock.monotonic() + patience
        while (refused := self._delete()) is not None:
            self._wait(until, f"its folder cannot be deleted: {refused}")
        self._reached(CrashPoint.FOLDER_DROPPED)
        while gone is not None and not gone():
            self._wait(until, "the mirrored table is still there")

    def wait_for(self, patience: float, mirrored: Callable[[], bool]) -> None:
        """Wait until the mirrored table exists, for at most `patience` seconds (LZ-239).

        Raises TableError after that time.
        """
        self._lease.check()
        until = self._clock.monotonic() + patience
        hint = "Let the mirror run, then publish the changes again."
        while not mirrored():
            self._wait(until, "the mirror does not have the table yet", hint)

    # -- steps ----------------------------------------------------------------------------------

    @contextmanager
    def _retracted_on_failure(self) -> Iterator[None]:
        """If the first call for a table fails before anything is published or described, remove
        its state and its lease."""
        self._is_begun = False
        try:
            yield
        except Exception:
            with suppress(OSError, LeaseLost, BadMetadata):  # the error of the call is raised
                self._retract()
            raise

    def _retract(self) -> None:
        self._keep_lease(always=True)
        state = self._loaded()
        if state is not None:
            if not (self._is_begun and _is_untouched(state)):
                return
            self._store.delete(f"{self._folder}/{states.FILE}")
        self._taken = not self._lease.withdraw()
        self._store.discard_empty_folders()

    def _delete(self) -> OSError | None:
        try:
            for folder in self._workshop.folders:
                self._store.delete_folder(folder)
        except OSError as error:
            return error
        return None

    def _wait(self, until: float, why: str, hint: str = _DROP_AGAIN) -> None:
        left = until - self._clock.monotonic()
        if left <= 0:
            raise TableError(why, table=str(self._table), hint=hint)
        self._clock.sleep(min(1.0, left))
        self._keep_lease()

    def _journal_of(self, state: State) -> Journal:
        return Journal(
            self._store,
            self._workshop,
            state,
            self._reached,
            self._keep_lease,
            table=str(self._table),
        )

    def _journal(self, members: Mapping[str, Any], *, hold: bool = False) -> Journal:
        """The current journal of the table, with the requested description; durable."""
        self._keep_lease(always=True)
        table = str(self._table)
        found = self._loaded()
        if found is None:
            self._refuse_foreign()
            state = State(self._first(members), held=hold)
            self._is_begun = True
        elif _is_untouched(found):
            state = replace(found, description=replace(found.description, **members), held=hold)
        else:
            state = replace(found, description=_agreed(found.description, members))
        if state.description.text:
            check_form(state.description.text, table=table)
        journal = self._journal_of(state)
        if state != found:
            journal.save(state)
        return journal

    def _first(self, members: Mapping[str, Any]) -> Description:
        """The description of a new table; its key may already be in the folder."""
        described = self._described()
        key = members.get("key")
        if key is None:
            if described is None:
                raise UsageError(
                    "the table is new and its key is not specified",
                    where=f"table {self._table}",
                    hint="Name the key columns, or specify that there is none: key=() in Python, "
                    "--no-key on the command line.",
                )
            members = {**members, "key": described.key_columns}
        elif described and described.key_columns and described.key_columns != key:
            raise _key_changed(str(self._table), described.key_columns, key)
        if len(members["key"]) >= MANY_KEYS:
            log.warning(LONG_KEY, table=str(self._table), columns=len(members["key"]))
        return Description(self._table, str(uuid.uuid4()), **members)

    def _refuse_foreign(self) -> None:
        """Raise UsageError for a table that capture lands, which assigns its own file numbers."""
        described = self._described()
        if described and described.ours and described.ours.source.get("type") != "publisher":
            raise UsageError(
                "the table is captured from a source, and a second writer would damage it (LZ-138)",
                where=f"table {self._table}",
                hint="Publish under another name.",
            )

    def _described(self) -> Metadata | None:
        try:
            content = self._store.read(f"{self._folder}/{layout.METADATA}")
        except FileNotFoundError:
            return None
        return metadata.decode(content, table=str(self._table), file=layout.METADATA)

    def _loaded(self) -> State | None:
        return states.load(self._store, self._folder, table=str(self._table))

    def _write_metadata(self, state: State) -> None:
        """Write `_metadata.json` according to the state, unless it is held back or has no
        columns yet."""
        if not self._is_introduced:
            self._introduce()
            self._is_introduced = True
        described = state.description
        if state.held or (described.text and not state.columns):
            return
        path = f"{self._folder}/{layout.METADATA}"
        content = metadata_of(described, state.columns)
        try:
            found = self._store.read(path)
        except FileNotFoundError:
            found = b""
        if found == content:
            return
        if found:
            there = metadata.decode(found, table=str(self._table), file=layout.METADATA)
            if there.key_columns and there.key_columns != described.key:
                raise _key_changed(str(self._table), there.key_columns, described.key)
        self._store.replace(path, content)
        self._reached(CrashPoint.TABLE_DESCRIBED)

    def _check(self, state: State, meaning: Meaning, batch: str | None) -> None:
        if meaning.is_load and state.marked and not state.known(batch):
            raise UsageError(
                "the table already has changes, so initial rows would be inserted a second time",
                where=f"table {self._table}",
                hint="Publish them as changes, or drop the table and load it again (LZ-239).",
            )
        if meaning.operation is Operation.LOAD and meaning.previous:
            raise UsageError(
                "initial rows cannot have a previous key",
                where=f"table {self._table}",
                hint="Publish changed keys as updates.",
            )

    def _staging(self, state: State, settings: Settings) -> Staging:
        return Staging(
            store=self._store,
            workshop=self._workshop,
            description=state.description,
            codec=settings.codec,
            file_bytes=settings.file_bytes,
            keep=self._keep_lease,
            on_progress=self._on_progress,
            after=lambda: self._reached(CrashPoint.BATCH_STAGED_ONE),
        )

    def _keep_lease(self, *, always: bool = False) -> None:
        """Check that the lease is still held. Raises LeaseLost."""
        now = self._clock.monotonic()
        if always or now - self._renewed >= RENEW.total_seconds():
            self._lease.check()
            self._renewed = now


def _is_untouched(state: State) -> bool:
    """Whether nothing of the table was ever started, so that everything can still be changed."""
    return state.next == 1 and state.pending is None and not state.done and not state.held


def _agreed(description: Description, members: Mapping[str, Any]) -> Description:
    """The description combined with what is requested, if they do not contradict each other."""
    table = str(description.table)
    key: Sequence[str] | None = members.get("key")
    if key is not None and tuple(key) != description.key:
        if description.key:
            raise _key_changed(table, description.key, key)
        description = replace(description, key=tuple(key))  # it can be added at any time (LZ-035)
    for name, value in members.items():
        if name != "key" and value != getattr(description, name):
            raise UsageError(
                f"{name} of an existing table cannot be changed",
                where=f"table {table}",
                hint="Omit it, or drop the table and load it again.",
            )
    return description


def _key_changed(table: str, old: Sequence[str], new: Sequence[str]) -> KeyColumnsChanged:
    return KeyColumnsChanged(
        f"the key columns are {', '.join(old)} and cannot be changed to {', '.join(new) or 'none'}",
        table=table,
        hint="Drop the table and load it again with the other key (LZ-037).",
    )
