"""A folder of event files, and the project that makes tables of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from mirrorlake.apply.events.batches.spread import EventSpread
from mirrorlake.apply.events.batches.tasks import EventPlaces
from mirrorlake.apply.events.consumer import EventConsumer
from mirrorlake.apply.events.listing import FoundFile
from mirrorlake.apply.events.settings import EventInput
from mirrorlake.apply.events.table_report import EventTableReport
from mirrorlake.apply.runner import Runner
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.errors import TableError
from mirrorlake.model.crash_points import CrashHook, no_crash
from mirrorlake.model.table import TableId
from mirrorlake.storage.local import LocalStore
from mirrorlake.storage.store import Listing
from tests.apply.events.drawn_files import rows_of

MINUTE = "2026/11/20/10/05"


def event(
    number: int,
    payload: Mapping[str, Any],
    change: str = "INSERT",
    key: Sequence[str | None] = ("id",),
    **changed: Any,
) -> dict[str, Any]:
    """A change of PostgreSQL, the later the larger its number. changed: other fields of the event,
    those of `source_metadata` among them."""
    head = {
        "uuid": f"0f0f0f0f-0000-0000-0000-00{number:02}00000000",
        "read_timestamp": number,
        "source_timestamp": number,
        "object": "public_orders",
        "read_method": "postgres-cdc-wal",
        "stream_name": "s",
        "sort_keys": [number, f"0/{number:X}"],
    }
    metadata = {
        "schema": "public",
        "table": "orders",
        "is_deleted": change in {"DELETE", "UPDATE-DELETE"},
        "change_type": change,
        "tx_id": "1",
        "lsn": f"0/{number:X}",
        "primary_keys": list(key),
    }
    own = {name: value for name, value in changed.items() if name in head}
    rest = {name: value for name, value in changed.items() if name not in head}
    return {**head, **own, "source_metadata": metadata | rest, "payload": dict(payload)}


class Time:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.moment = datetime(2026, 11, 23, 12, tzinfo=UTC)

    def now(self) -> datetime:
        return self.moment

    def monotonic(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        raise AssertionError(seconds)


class Bucket:
    """Event files below `bucket`, tables below `lake`."""

    def __init__(self, folder: Path, **asked: Any) -> None:
        self.folder, self.root = folder / "bucket", folder / "lake"
        self.settings = EventInput(self.folder, **asked)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.clock = Time()
        self.opened: list[str] = []
        self.done: list[tuple[TableId, EventTableReport]] = []
        self.errors: dict[str, TableError] = {}
        self.runner: Runner | None = None  # whose tasks apply each batch
        self._consumer: EventConsumer | None = None

    def put(
        self,
        name: str,
        *events: Mapping[str, Any] | str,
        minute: str = MINUTE,
        of: str = "public_orders",
    ) -> Path:
        """Write a file of JSON. minute: of its folder, "" for none; of: the object."""
        folder = self.folder / of / minute if minute else self.folder
        folder.mkdir(parents=True, exist_ok=True)
        lines = [one if isinstance(one, str) else json.dumps(one) for one in events]
        path = folder / name
        path.write_text("".join(f"{line}\n" for line in lines))
        return path

    def cycle(self, reached: CrashHook = no_crash, *, anew: bool = False) -> int:
        """Apply what is new. anew: as another process."""
        if self._consumer is None or anew or reached is not no_crash:
            self._consumer = self.consumer(reached)
        return self._consumer.cycle()

    def consumer(
        self, reached: CrashHook = no_crash, ended: Callable[[], bool] = lambda: False
    ) -> EventConsumer:
        spread = None
        if (runner := self.runner) is not None:
            stores = partial(LocalStore, self.folder), partial(LocalStore, self.root)
            places = EventPlaces(*stores, self.settings)
            spread = _Always(lambda: runner, places)
        return EventConsumer(
            LocalStore(self.root),
            Noted(self.folder, self.opened.append),
            self.settings,
            self.clock,
            self,
            reached=reached,
            check=self.check,
            ended=ended,
            spread=spread,
        )

    def check(self) -> None:
        """Called before each table is written."""

    def applied(
        self, table: TableId, done: EventTableReport, _files: int, held: TableError | None
    ) -> None:
        self.done.append((table, done))
        self.errors.pop(str(table), None)
        if held is not None:
            self.errors[str(table)] = held

    def stopped(self, table: TableId, error: TableError) -> None:
        self.errors[str(table)] = error

    def rows(self, table: str = "public/orders") -> list[dict[str, Any]]:
        return rows_of(self.root / "Tables" / table)

    def plain(self, table: str = "public/orders") -> list[dict[str, Any]]:
        """Rows without what is told of their events."""
        found = [
            {k: v for k, v in row.items() if k != "datastream_metadata"} for row in self.rows(table)
        ]
        return sorted(found, key=repr)

    def log(self, table: str = "public/orders") -> TableLog:
        return TableLog(str(self.root / "Tables" / table))


class _Always(EventSpread):
    """Spreads batches of any size."""

    def suits(self, files: Sequence[FoundFile]) -> bool:
        return bool(files)


class Noted(LocalStore):
    """A store that tells which folders are listed and which files are opened."""

    def __init__(self, folder: Path, told: Callable[[str], None]) -> None:
        super().__init__(folder)
        self._told = told

    def list(self, folder: str) -> Listing:
        self._told(folder)
        return super().list(folder)

    def open(self, path: str) -> BinaryIO:
        self._told(path)
        return super().open(path)
