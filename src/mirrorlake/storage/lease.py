"""The exclusive right to write: a lease with an increasing epoch, taken by create-if-absent.

Epoch n is the file `<n>.json`. The process that creates it holds the lease; a process that finds a
higher epoch has lost it. The holder renews its file. If it stops renewing, the lease can be taken
over after `TERM` seconds, or at once if the holder ran on this machine and its process no longer
exists. The lease avoids duplicate work; that no work takes effect twice is guaranteed by the
commits themselves.
"""

from __future__ import annotations

import json
import os
import re
import socket
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from functools import cache
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

from mirrorlake import root
from mirrorlake.errors import LeaseHeld, LeaseLost
from mirrorlake.model.clock import Clock, WallClock
from mirrorlake.model.crash_points import CrashHook, CrashPoint, no_crash
from mirrorlake.model.landed import DEFAULT_STREAM, format_time, parse_time
from mirrorlake.storage.store import Store

TERM = timedelta(seconds=30)
RENEW = timedelta(seconds=5)
_NAME = re.compile(r"([0-9]{20})\.json")
SUBSCRIPTION = "subscription"
_COMMANDS = {
    "capture": "`mirrorlake run` or `mirrorlake capture`",
    "mirror": "`mirrorlake run` or `mirrorlake apply`",
}
"""The commands that hold the lease of a role. Each publisher has a role per table."""


class Silence(Enum):
    """Why a holder renews its lease no more. ENDED: its process is gone; SUSPENDED: it is stopped
    by a signal, or by a debugger; SILENT: it runs; UNKNOWN: it was on another machine."""

    ENDED = auto()
    SUSPENDED = auto()
    SILENT = auto()
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True)
class Abandoned:
    """A lease that nobody released. renewed: when its holder did so last; pid: of the holder."""

    renewed: str
    holder: str
    pid: int
    silence: Silence


class Lease:
    """The right to write in one role (`capture`, `mirror`, or one per published table or
    subscription) below one root, for one stream."""

    def __init__(
        self,
        store: Store,
        role: str,
        clock: Clock,
        holder: str | None = None,
        stream_id: str = DEFAULT_STREAM,
        reached: CrashHook = no_crash,
    ) -> None:
        self._store, self._role, self._clock = store, role, clock
        self._reached = reached
        folder = f"{root.LEASES}/{role}"
        self._folder = folder if stream_id == DEFAULT_STREAM else f"{folder}/{stream_id}"
        self._stream_id = stream_id
        self._holder = holder or uuid.uuid4().hex
        self._epoch = self._requested = 0
        self.predecessor: str | None = None
        """After `take`: the previous holder, as text, if it never released the lease."""
        self._renewed = clock.now() - TERM
        self._lock = Lock()  # a renewal in another thread must not undo the release

    def take(self) -> None:
        """Take the lease. Raises LeaseHeld, which names the holder.

        After any other error it is unknown whether the lease was taken; a repeated call determines
        it.
        """
        epoch = self._newest()
        record = self._read(epoch) if epoch else {}
        if epoch and epoch == self._requested and self._is_mine(record):
            self._renewed = self._clock.now() - RENEW  # it was created by the first attempt
        else:
            if _lives(record, self._clock.now()):
                raise self._held(record)
            if record and not record.get("released"):
                self.predecessor = _named(record)
            epoch += 1
            self._create(epoch)
            self._renewed = self._clock.now()
            self._reached(CrashPoint.LEASE_TAKEN)
        self._epoch, self._requested = epoch, 0
        with suppress(OSError):  # the next holder deletes what is left
            for older in range(max(epoch - 4, 1), epoch - 1):
                self._store.delete(self._path(older))

    def check(self) -> None:
        """Check that the lease is still held, and renew it when due. Raises LeaseLost."""
        with self._lock:
            self._check()

    def _check(self) -> None:
        newest = self._newest()
        if newest != self._epoch or not self._is_mine(self._read(newest)):
            holder = self._read(newest) if newest else {}
            raise LeaseLost(
                f"another process took over the lease: {_named(holder)}",
                where=self._store.location(self._folder),
                hint="Let the other process run, or stop it and start this one again.",
            )
        if abs(self._clock.now() - self._renewed) >= RENEW:  # or the clock was set back
            self._store.replace(self._path(self._epoch), self._record())
            self._renewed = self._clock.now()
            self._reached(CrashPoint.LEASE_RENEWED)

    def release(self) -> None:
        """Release the lease, if it is still ours."""
        with self._lock:
            if self._epoch and self._newest() == self._epoch:
                self._store.replace(self._path(self._epoch), self._record(released=True))
                self._reached(CrashPoint.LEASE_RELEASED)
            self._epoch = 0

    def withdraw(self) -> bool:
        """Delete a lease that nobody held before, as if it was never taken. Returns False, and
        deletes nothing, if it had another holder before."""
        if self._epoch != 1 or self._newest() != 1:
            return False
        self._store.delete(self._path(1))
        self._epoch = 0
        return True

    def _create(self, epoch: int) -> None:
        self._requested = epoch
        try:
            self._store.create(self._path(epoch), self._record())
        except FileExistsError:
            # It may be ours: the response was lost, and the client of the storage retried.
            found = self._read(epoch)
            if not self._is_mine(found):
                raise self._held(found) from None

    def _is_mine(self, record: Mapping[str, Any]) -> bool:
        return record.get("holder") == self._holder

    def _held(self, record: dict[str, Any]) -> LeaseHeld:
        hint = f"Stop it first; if it crashed, wait {TERM.seconds} seconds."
        if _age(record, self._clock.now()) < -TERM:
            hint = (
                f"Its lease was renewed at {record['renewed']}, which is in the future on this "
                "machine: set the clocks right. Stop it first; if it crashed, delete the newest "
                "file there."
            )
        return LeaseHeld(
            f"{_COMMANDS.get(self._role, self._other())} is already active here, as "
            f"{_named(record)}",
            where=self._store.location(self._folder),
            hint=hint,
        )

    def _other(self) -> str:
        kind, _, name = self._role.partition("/")
        return f"a reader of {name}" if kind == SUBSCRIPTION else "another publisher"

    def _record(self, *, released: bool = False) -> bytes:
        return json.dumps(
            {
                "holder": self._holder,
                "stream_id": self._stream_id,
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "started": _own_start(os.getpid()),
                "renewed": format_time(self._clock.now()),
                "released": released,
            }
        ).encode()

    def holder(self, now: datetime) -> str | None:
        """The holder of the role as text, None if there is none. Does not take the lease."""
        record = self._read(self._newest())
        return _named(record) if _lives(record, now) else None

    def abandoned(self, now: datetime) -> Abandoned | None:
        """The lease if its last holder neither released it nor renews it; None otherwise."""
        record = self._read(self._newest())
        if not record or record.get("released") or _lives(record, now):
            return None
        return Abandoned(
            str(record.get("renewed", "")),
            _named(record),
            record.get("pid", 0),
            _silence(record),
        )

    def check_free(self) -> None:
        """Raise LeaseHeld if `take` would. Does not take the lease."""
        record = self._read(self._newest())
        if _lives(record, self._clock.now()):
            raise self._held(record)

    def _newest(self) -> int:
        """The highest epoch, 0 for none. Files with other names are incomplete."""
        names = (_NAME.fullmatch(file.name) for file in self._store.list(self._folder).files)
        return max((int(name[1]) for name in names if name), default=0)

    def _read(self, epoch: int) -> dict[str, Any]:
        """The record of an epoch; empty, and so of no holder, if it cannot be read."""
        try:
            record = json.loads(self._store.read(self._path(epoch)))
        except (FileNotFoundError, ValueError):
            return {}
        return record if isinstance(record, dict) else {}

    def _path(self, epoch: int) -> str:
        return f"{self._folder}/{epoch:020d}.json"


@contextmanager
def renewed(lease: Lease) -> Iterator[None]:
    """Renew a lease in a thread while the context is open, for a caller that is busy for long.

    If the lease is lost, the renewals stop; the caller learns of it by `check`.
    """
    ended = Event()

    def work() -> None:
        while not ended.wait(RENEW.total_seconds()):
            with suppress(OSError):
                try:
                    lease.check()
                except LeaseLost:
                    return

    thread = Thread(target=work, daemon=True, name="renew")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def holder_of(
    store: Store, role: str, now: datetime, stream_id: str = DEFAULT_STREAM
) -> str | None:
    """As `Lease.holder`."""
    return Lease(store, role, WallClock(), stream_id=stream_id).holder(now)


def abandoned_by(store: Store, role: str, now: datetime) -> Abandoned | None:
    """As `Lease.abandoned`."""
    return Lease(store, role, WallClock()).abandoned(now)


def _lives(record: dict[str, Any], now: datetime) -> bool:
    """Whether the holder of a lease is active: it has not released the lease, has renewed it in
    time, and is not known to have ended."""
    if not record or record.get("released"):
        return False
    try:
        if record["host"] == socket.gethostname() and not _runs(record["pid"], record["started"]):
            return False
    except (KeyError, TypeError):
        return False
    return _age(record, now) <= TERM


def _silence(record: Mapping[str, Any]) -> Silence:
    """Of the holder of a lease that is not active any more."""
    if record.get("host") != socket.gethostname():
        return Silence.UNKNOWN
    state, started = _process(record.get("pid", 0))
    if not started or started != record.get("started"):
        return Silence.ENDED
    return Silence.SUSPENDED if state in _STOPPED else Silence.SILENT


def _age(record: Mapping[str, Any], now: datetime) -> timedelta:
    """The time since the lease was renewed; `timedelta.max` if that is unknown."""
    try:
        return now - parse_time(record["renewed"])
    except (KeyError, TypeError, ValueError):
        return timedelta.max


def _named(record: dict[str, Any]) -> str:
    return f"process {record.get('pid', '?')} on {record.get('host', '?')}"


def _runs(pid: int, started: str) -> bool:
    return _process(pid)[1] == started


@cache
def _own_start(pid: int) -> str:
    """The start time of this process, which asks often."""
    return _process(pid)[1]


def _process(pid: int) -> tuple[str, str]:
    """The state of a process of this machine, and its start time, which distinguishes it from a
    later one with the same number. The time is empty when it has ended, also while its parent has
    not waited for it, and on a system without /proc."""
    try:
        # Its name, in parentheses, may contain anything.
        facts = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].decode().split()
        return facts[0], "" if facts[0] in _ENDED else facts[19]
    except (OSError, IndexError):
        return "", ""


_ENDED = {"Z", "X", "x"}  # zombie, and dead
_STOPPED = {"T", "t"}  # by a signal, and by a debugger
