"""Keeps what the commits of tables say of positions, before their logs are cleaned (CF-155)."""

from __future__ import annotations

import structlog

from mirrorlake.delta.log.table_log import BrokenLog, TableLog
from mirrorlake.feed.commits.position_map import PositionMap
from mirrorlake.storage.store import Store, UnsafePath

log = structlog.get_logger()

POSITION_MAP_FAILED = "position_map_failed"


def keep_positions(store: Store, path: str) -> None:
    """Bring the map of the table at a path up to date. What fails is tried again next time: a log
    keeps its commits for much longer than that takes."""
    try:
        PositionMap(store, path).keep(TableLog.below(store, path))
    except (BrokenLog, OSError, UnsafePath) as error:
        log.warning(POSITION_MAP_FAILED, path=path, reason=type(error).__name__)
