"""A project that is applied with the tasks of the engine, and without a JVM."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mirrorlake.app.loop.apply_loop import ApplyLoop
from mirrorlake.app.loop.report import ApplyReport
from mirrorlake.app.stores import store_of
from mirrorlake.apply.engine import Engine
from mirrorlake.config import Project
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.model.clock import Clock, WallClock
from mirrorlake.storage.store import Store
from tests.doubles.handmade_engine import in_process_engine


class Applying:
    def __init__(
        self, project: Project, engine: Callable[[Store], Engine] = in_process_engine
    ) -> None:
        self.project, self._engine = project, engine
        self.clock: Clock = WallClock()

    @property
    def store(self) -> Store:
        return store_of(self.project)

    def loop(self, **settings: Any) -> ApplyLoop:
        store = self.store
        return ApplyLoop(
            store, self._engine(store), MirrorSettings(**settings), self.clock, holder="m"
        )

    def apply(self) -> ApplyReport:
        loop = self.loop()
        loop.open()
        try:
            return loop.once()
        finally:
            loop.close()
