"""A zone that somebody else fills, and a mirror of it on a modelled lake, in simulated time."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from mirrorlake.app.loop.apply_loop import ApplyLoop
from mirrorlake.app.loop.background import Executors
from mirrorlake.app.loop.report import ApplyReport
from mirrorlake.app.status.operation_log import FOLDER
from mirrorlake.delta.log.table_log import APPLICATION
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.mirror.table.progress import GENERATION, KEY_COLUMNS
from mirrorlake.model.crash_points import CrashHook, no_crash
from mirrorlake.storage.local import LocalStore
from mirrorlake.storage.store import Store
from tests.app.zones import MARKER, Zone
from tests.delta import handmade
from tests.doubles.clock import SteppedClock
from tests.sim.engine import Lake, LakeTable, ModelledEngine

DAY = 86_400


def logged(store: Store) -> list[dict[str, Any]]:
    """What the operation log still holds, oldest first."""
    found = [file.name for file in store.list(FOLDER).files]
    names = sorted(name for name in found if re.fullmatch(r"\d{20}\.jsonl", name))
    lines = [line for name in names for line in store.read(f"{FOLDER}/{name}").splitlines()]
    return [json.loads(line) for line in lines]


class Operated:
    """A root with table folders below the schema `s`. Each `loop` is another process."""

    def __init__(self, root: Path, **settings: Any) -> None:
        self.zone = Zone(root, None)  # type: ignore[arg-type]
        self.root, self.store = root, LocalStore(root)
        self.clock, self.lake = SteppedClock(), Lake()
        self.kind = ModelledEngine
        self.settings = replace(MirrorSettings(cleanup_seconds=0), **settings)

    def engine(self, reached: CrashHook = no_crash) -> ModelledEngine:
        return self.kind(
            self.lake, self.store, Random(1), reached, lost_answers=0.0, wall=self.clock.now
        )

    def loop(
        self, reached: CrashHook = no_crash, executors: Callable[[], Executors] | None = None
    ) -> ApplyLoop:
        return ApplyLoop(
            self.store,
            self.engine(reached),
            self.settings,
            self.clock,
            reached=reached,
            executors=executors,
            name="shop",
            holder="the mirror",
        )

    @contextmanager
    def running(
        self, reached: CrashHook = no_crash, executors: Callable[[], Executors] | None = None
    ) -> Iterator[ApplyLoop]:
        loop = self.loop(reached, executors)
        loop.open()
        try:
            yield loop
        finally:
            loop.close()

    def once(self) -> ApplyReport:
        with self.running() as loop:
            return loop.once()

    def cycles(self, loop: ApplyLoop, seconds: float, *, every: float = 5.0) -> None:
        for _ in range(round(seconds / every)):
            self.clock.advance(every)
            loop.cycle(None)

    # -- the publisher ------------------------------------------------------------------------

    def table(self, name: str, *files: str, key: str = "id") -> None:
        """A folder with files from number 1 on, each with one row: its number and a text."""
        self.zone.table(name, key)
        for number, text in enumerate(files, start=1):
            self.land(name, number, text)

    def land(self, name: str, number: int, text: str = "new", marker: int | None = 0) -> Path:
        columns: dict[str, Any] = {"id": [number], "v": [text]}
        if marker is not None:
            columns[MARKER] = [marker]
        return self.zone.land(name, number, columns)

    def delete(self, name: str) -> None:
        shutil.rmtree(self.zone.folder(name))

    # -- what became of it --------------------------------------------------------------------

    def mirrored(self, name: str) -> LakeTable | None:
        return self.lake.tables.get(f"Tables/s/{name}")

    def rows(self, name: str) -> list[tuple[Any, ...]] | None:
        table = self.mirrored(name)
        return None if table is None else sorted(map(tuple, table.table.rows))

    def files(self, name: str) -> set[int]:
        return {int(path.stem) for path in self.zone.folder(name).glob("*.parquet")}

    def write_log(self, name: str) -> None:
        """The log of a table as Delta would have written it, for who reads it there."""
        table = self.mirrored(name)
        assert table is not None
        metadata = handmade.metadata(table.schema, mapped=False)
        metadata["configuration"] = table.properties | {
            GENERATION: table.generation,
            KEY_COLUMNS: json.dumps(list(table.key)),
        }
        log = self.root / "Tables/s" / name / "_delta_log"
        log.mkdir(parents=True, exist_ok=True)
        commits: list[list[dict[str, Any]]] = [
            [{"protocol": handmade.PROTOCOL}, {"metaData": metadata}]
        ]
        for info, (_first, last) in zip(table.commits, table.applied, strict=True):
            txn = {"appId": APPLICATION + table.generation, "version": last}
            commits.append([{"commitInfo": info}, {"txn": txn}])
        for version, actions in enumerate(commits):
            lines = "\n".join(json.dumps(action) for action in actions)
            (log / f"{version:020d}.json").write_text(lines + "\n")

    def operations(self, name: str) -> list[str]:
        return [o["OperationName"] for o in logged(self.store) if o["SourceTableName"] == name]

    def shown(self, name: str) -> dict[str, Any]:
        """The entry of a table in the status file."""
        found = json.loads((self.root / "Files/Monitoring/tables.json").read_text())["tables"]
        (entry,) = [table for table in found if table["sourceTableName"] == name]
        return dict(entry)
