"""Making tables and columns before batches go into them, several tables at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import structlog
from structlog.contextvars import bind_contextvars, get_contextvars

from mirrorlake.apply.table_definitions import log_created
from mirrorlake.delta.schema import MAPPING, TYPE_WIDENING
from mirrorlake.errors import TableError, UnsupportedTable
from mirrorlake.landing import cleanup, layout
from mirrorlake.mirror.engine import MirrorEngine
from mirrorlake.mirror.steps import (
    AddColumns,
    AlterColumns,
    CreateTable,
    Discard,
    RenameColumns,
    SetFeed,
    SetKey,
    TablePlan,
)
from mirrorlake.model.crash_points import CrashHook, CrashPoint
from mirrorlake.storage.store import Store

log = structlog.get_logger()

COLUMNS_ALTERED = "columns_altered"
COLUMNS_RENAMED = "columns_renamed"
FEED_SET = "feed_set"
_BUILT = Discard | CreateTable | RenameColumns | AddColumns | AlterColumns | SetKey | SetFeed
BUILDERS = 4
"""Tables that are made at the same time."""


class Builder:
    """Does the steps of plans that come before their batches. before: called before each step, and
    refuses it by raising."""

    def __init__(
        self, engine: MirrorEngine, store: Store, reached: CrashHook, before: Callable[[], None]
    ) -> None:
        self._engine, self._store, self._reached, self._before = engine, store, reached, before

    def build(self, planned: Sequence[TablePlan]) -> list[TableError | None]:
        """What went wrong with each table, in the order of the plans; None where nothing did."""
        if not any(isinstance(step, _BUILT) for table in planned for step in table.steps):
            return [None for _table in planned]
        named = partial(bind_contextvars, **get_contextvars())  # whose log lines these are
        with ThreadPoolExecutor(BUILDERS, "build", initializer=named) as pool:
            return list(pool.map(self._build, planned))

    def _build(self, table: TablePlan) -> TableError | None:
        try:
            for step in table.steps:
                if isinstance(step, _BUILT):
                    self._before()
                match step:
                    case Discard():
                        # Before the table is made anew: afterwards these files cannot be told
                        # from those that the new sequence still lacks.
                        self._discard(step)
                        self._reached(CrashPoint.PROCESSED_DISCARDED)
                    case CreateTable():
                        if step.replace or not self._engine.creates_with_batch(step):
                            self._engine.create(step)
                            log_created(step)
                    case RenameColumns():
                        self._enable(step)
                        self._engine.rename_columns(step, self._before)
                        log.info(COLUMNS_RENAMED, table=str(step.table), columns=dict(step.names))
                    case AddColumns():
                        self._engine.add_columns(step)
                    case AlterColumns():
                        self._enable(step)
                        self._engine.alter_columns(step, self._before)
                        log.info(COLUMNS_ALTERED, table=str(step.table), columns=step.columns)
                    case SetKey():
                        self._engine.set_key(step)
                    case SetFeed():
                        self._engine.set_properties(step.path, step.feed.properties)
                        log.info(FEED_SET, table=str(step.table), feed=str(step.feed))
        except TableError as error:
            return error
        return None

    def _enable(self, step: RenameColumns | AlterColumns) -> None:
        """Turn on what the readers of the table have to know."""
        properties = {MAPPING: "name"} if step.maps else {}
        if isinstance(step, AlterColumns) and step.widened:
            properties[TYPE_WIDENING] = "true"
        known = self._engine.progress(step.path).properties if properties else {}
        if not properties.items() <= known.items():
            self._engine.set_properties(step.path, properties)

    def _discard(self, step: Discard) -> None:
        try:
            cleanup.discard(self._store, step.files)
        except cleanup.CLEANUP_ERRORS as error:
            raise UnsupportedTable(
                "its folder was recreated, and the files that were applied before cannot be "
                f"removed: {error}",
                table=str(step.table),
                hint=f"Delete {step.folder}/{layout.CLEANUP}.",
            ) from error
