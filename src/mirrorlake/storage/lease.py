"""The one right to write: a lease with a growing epoch, taken by create-if-absent.

Epoch n is the file `<n>.json`; who creates it holds the lease, who finds a higher one has lost it.
The holder renews its file; a holder that stops renewing is taken over after `TERM` seconds, at
once when it ran on this machine and its process is gone. The lease keeps two processes from doing
the same work; that no work is done twice is kept by the commits themselves.
"""

from __future__ import annotations

import json
import os
import re
import socket
import uuid
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from mirrorlake import root
from mirrorlake.errors import LeaseHeld, LeaseLost
from mirrorlake.model.clock import Clock
from mirrorlake.model.landed import DEFAULT_STREAM, format_time, parse_time
from mirrorlake.storage.store import Store

TERM = timedelta(seconds=30)
RENEW = timedelta(seconds=5)
_NAME = re.compile(r"([0-9]{20})\.json")
_COMMANDS = {
    "capture": "`mirrorlake run` or `mirrorlake capture`",
    "mirror": "`mirrorlake run` or `mirrorlake apply`",
}
"""The commands that hold the lease of a role. Those of publishers are one for each table."""


class Lease:
    """The right to write as `role` (`capture` or `mirror`) below one root, for one stream."""

    def __init__(
        self,
        store: Store,
        role: str,
        clock: Clock,
        holder: str | None = None,
        stream_id: str = DEFAULT_STREAM,
    ) -> None:
        self._store, self._role, self._clock = store, role, clock
        self._folder, self._stream_id = _folder_of(role, stream_id), stream_id
        self._holder = holder or uuid.uuid4().hex
        self._epoch = self._asked = 0
        self._renewed = clock.now() - TERM

    def take(self) -> None:
        """Take the lease. Raises LeaseHeld, which says who holds it.

        When it fails in another way, nobody knows whether it was taken: ask again, which finds out.
        """
        epoch = self._newest()
        record = self._read(epoch) if epoch else {}
        if epoch and epoch == self._asked and self._is_mine(record):
            self._renewed = self._clock.now() - RENEW  # it was made when it was asked for first
        else:
            if _lives(record, self._clock.now()):
                raise self._held(record)
            epoch += 1
            self._create(epoch)
            self._renewed = self._clock.now()
        self._epoch, self._asked = epoch, 0
        with suppress(OSError):  # the next one removes what is left
            for older in range(max(epoch - 4, 1), epoch - 1):
                self._store.delete(self._path(older))

    def check(self) -> None:
        """Be sure to hold the lease still, and renew it when due. Raises LeaseLost."""
        newest = self._newest()
        if newest != self._epoch or not self._is_mine(self._read(newest)):
            holder = self._read(newest) if newest else {}
            raise LeaseLost(
                f"another process took over the lease: {_named(holder)}",
                where=self._store.location(self._folder),
                hint="Let the other process run, or stop it and start this one again.",
            )
        if self._clock.now() - self._renewed >= RENEW:
            self._store.replace(self._path(self._epoch), self._record())
            self._renewed = self._clock.now()

    def release(self) -> None:
        """Give the lease back, if it is still ours."""
        if self._epoch and self._newest() == self._epoch:
            self._store.replace(self._path(self._epoch), self._record(released=True))
        self._epoch = 0

    def _create(self, epoch: int) -> None:
        self._asked = epoch
        try:
            self._store.create(self._path(epoch), self._record())
        except FileExistsError:
            # It may be our own: the answer was lost, and the storage's client asked again.
            found = self._read(epoch)
            if not self._is_mine(found):
                raise self._held(found) from None

    def _is_mine(self, record: Mapping[str, Any]) -> bool:
        return record.get("holder") == self._holder

    def _held(self, record: dict[str, Any]) -> LeaseHeld:
        return LeaseHeld(
            f"{_COMMANDS.get(self._role, 'another publisher')} is already active here, as "
            f"{_named(record)}",
            where=self._store.location(self._folder),
            hint=f"Stop it first; if it crashed, wait {TERM.seconds} seconds.",
        )

    def _record(self, *, released: bool = False) -> bytes:
        return json.dumps(
            {
                "holder": self._holder,
                "stream_id": self._stream_id,
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "started": _start_of(os.getpid()),
                "renewed": format_time(self._clock.now()),
                "released": released,
            }
        ).encode()

    def _newest(self) -> int:
        return _newest_epoch(self._store, self._folder)

    def _read(self, epoch: int) -> dict[str, Any]:
        return _record_of(self._store, self._folder, epoch)

    def _path(self, epoch: int) -> str:
        return _path_of(self._folder, epoch)


def holder_of(
    store: Store, role: str, now: datetime, stream_id: str = DEFAULT_STREAM
) -> str | None:
    """Who works as `role` below this root now, in words; None for nobody. Takes nothing."""
    folder = _folder_of(role, stream_id)
    record = _record_of(store, folder, _newest_epoch(store, folder))
    return _named(record) if _lives(record, now) else None


def _folder_of(role: str, stream_id: str) -> str:
    folder = f"{root.LEASES}/{role}"
    return folder if stream_id == DEFAULT_STREAM else f"{folder}/{stream_id}"


def _newest_epoch(store: Store, folder: str) -> int:
    """The highest epoch that was taken, 0 for none. Other names are files in the making."""
    names = (_NAME.fullmatch(file.name) for file in store.list(folder).files)
    return max((int(name[1]) for name in names if name), default=0)


def _record_of(store: Store, folder: str, epoch: int) -> dict[str, Any]:
    """What a holder wrote; nothing where it is gone, or cannot be read and so holds nothing."""
    try:
        record = json.loads(store.read(_path_of(folder, epoch)))
    except (FileNotFoundError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _path_of(folder: str, epoch: int) -> str:
    return f"{folder}/{epoch:020d}.json"


def _lives(record: dict[str, Any], now: datetime) -> bool:
    """Whether the holder of a lease still works: not released, renewed in time, not known dead."""
    if not record or record.get("released"):
        return False
    try:
        if record["host"] == socket.gethostname() and not _runs(record["pid"], record["started"]):
            return False
        return now - parse_time(record["renewed"]) <= TERM
    except (KeyError, TypeError, ValueError):
        return False


def _named(record: dict[str, Any]) -> str:
    return f"process {record.get('pid', '?')} on {record.get('host', '?')}"


def _runs(pid: int, started: str) -> bool:
    return _start_of(pid) == started


def _start_of(pid: int) -> str:
    """When a process of this machine started: tells it from a later one of the same number."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
