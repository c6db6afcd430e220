"""mirrorlake keeps Delta tables equal to operational databases, continuously and exactly once.

    from mirrorlake import Mirror

    with Mirror.open("mirrorlake.yaml") as mirror:
        mirror.capture_once()
        report = mirror.apply_once()
        print(mirror.status().facts())

Whatever is done with a mirror is one call of `Mirror`; `init`, `reset`, `sql` and `demo` are
commands only. What is named in `__all__` stays; everything else may move between releases.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mirrorlake.version import VERSION

if TYPE_CHECKING:
    from mirrorlake.app.changes.feed_streams import stream_feed
    from mirrorlake.app.feed import read_feed
    from mirrorlake.app.files import AppliedFiles, TableFiles
    from mirrorlake.app.loop.report import ApplyReport, TableReport
    from mirrorlake.app.mirror import Mirror
    from mirrorlake.app.status.mirror_status import Status
    from mirrorlake.app.status.table_status import TableStatus
    from mirrorlake.app.subscribe import subscribe
    from mirrorlake.app.targets.functions import archive, history, replay
    from mirrorlake.config import Project
    from mirrorlake.errors import (
        FeedError,
        FeedTargetError,
        MirrorlakeError,
        OperatorError,
        SourceGap,
        TableError,
        Unavailable,
        UsageError,
    )
    from mirrorlake.feed.reader import Feed, FeedCommit
    from mirrorlake.feed.subscriptions.record import FeedPosition
    from mirrorlake.feed.subscriptions.subscription import Delivery, Subscription
    from mirrorlake.feed.targets.build import TargetReport

__version__ = VERSION

_HOMES = {
    "AppliedFiles": "app.files",
    "ApplyReport": "app.loop.report",
    "Delivery": "feed.subscriptions.subscription",
    "Feed": "feed.reader",
    "FeedCommit": "feed.reader",
    "FeedError": "errors",
    "FeedPosition": "feed.subscriptions.record",
    "FeedTargetError": "errors",
    "Mirror": "app.mirror",
    "MirrorlakeError": "errors",
    "OperatorError": "errors",
    "Project": "config",
    "SourceGap": "errors",
    "Status": "app.status.mirror_status",
    "Subscription": "feed.subscriptions.subscription",
    "TableError": "errors",
    "TableFiles": "app.files",
    "TableReport": "app.loop.report",
    "TableStatus": "app.status.table_status",
    "TargetReport": "feed.targets.build",
    "Unavailable": "errors",
    "UsageError": "errors",
    "archive": "app.targets.functions",
    "history": "app.targets.functions",
    "read_feed": "app.feed",
    "replay": "app.targets.functions",
    "stream_feed": "app.changes.feed_streams",
    "subscribe": "app.subscribe",
}

__all__ = [
    "AppliedFiles",
    "ApplyReport",
    "Delivery",
    "Feed",
    "FeedCommit",
    "FeedError",
    "FeedPosition",
    "FeedTargetError",
    "Mirror",
    "MirrorlakeError",
    "OperatorError",
    "Project",
    "SourceGap",
    "Status",
    "Subscription",
    "TableError",
    "TableFiles",
    "TableReport",
    "TableStatus",
    "TargetReport",
    "Unavailable",
    "UsageError",
    "archive",
    "history",
    "read_feed",
    "replay",
    "stream_feed",
    "subscribe",
]


def __getattr__(name: str) -> Any:
    # Imported when first used: the command line answers before Arrow is loaded.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
