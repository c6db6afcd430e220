"""Capture of a project, as a process of its own runs it: nothing that applies is imported here."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial

from mirrorlake import root
from mirrorlake.app.loop.watcher import Watcher
from mirrorlake.app.source import prerequisites
from mirrorlake.app.status import ended
from mirrorlake.app.stores import event_store_of, store_of
from mirrorlake.capture.backfill.backfills import BackfillSettings
from mirrorlake.capture.capture import Capture, Waiting
from mirrorlake.capture.events.sink import EventsSink
from mirrorlake.capture.landing.sink import LandingSink
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.sink import LoadProgress, Sink
from mirrorlake.capture.watch.retention import LogRetention
from mirrorlake.config import Project
from mirrorlake.model.clock import WallClock
from mirrorlake.model.crash_points import CrashHook, no_crash
from mirrorlake.storage.urls import is_url

Loading = Callable[[LoadProgress], None]

LOOK_SECONDS, LOOK_SECONDS_ON_OBJECTS = 0.1, 1.0
"""Between two looks for requested backfills. On an object store, each listing is a paid request."""

MOST_BACKFILLS = 2
"""Tables that are backfilled at the same time."""


def capture_of(
    project: Project,
    stop: threading.Event,
    progress: Loading = lambda _progress: None,
    retained: Callable[[LogRetention], None] = lambda _log: None,
    waiting: Waiting = lambda _error: None,
    reached: CrashHook = no_crash,
) -> Capture:
    """What lands the changes of the source of a project, with what `Mirror.capture_run` takes."""
    source, settings = prerequisites.source_of(project), project.capture
    records = Records(store_of(project), root.LANDING, reached=reached)
    clock = WallClock(stop)
    sinks: list[Sink] = []
    if project.lands:
        sinks.append(LandingSink(source, records, settings, reached, progress))
    for events in project.destinations:
        store = event_store_of(events)
        sinks.append(EventsSink(source, records, settings, events, store, clock, reached, progress))
    return Capture(
        source,
        records,
        sinks,
        settings,
        clock,
        stop=stop,
        reached=reached,
        retained=retained,
        waiting=waiting,
        backfill=backfill_settings(project),
    )


def backfill_settings(project: Project) -> BackfillSettings:
    """How the backfills of a project go. Each takes a replication slot of its own, so there are
    never more at once than by default, however many may load."""
    on_objects = is_url(store_of(project).location(root.LANDING))
    return BackfillSettings(
        look_seconds=LOOK_SECONDS_ON_OBJECTS if on_objects else LOOK_SECONDS,
        at_once=min(MOST_BACKFILLS, project.capture.load_workers),
        keeps_saved=project.mirror.soft_deletes,
    )


def capture_run(
    project: Project, stop: threading.Event, new_capture: Callable[[], Capture]
) -> None:
    """Land changes until `stop` is set."""
    store = store_of(project)
    prerequisites.check_begin(project, store)
    with (
        ended.noted(store, ended.CAPTURE, WallClock(stop), stop),
        closing(new_capture()) as capture,
    ):
        capture.run()


def run_capture(project: Project, stop: threading.Event, watcher: Watcher) -> None:
    """Runs in the process of capture."""
    told = watcher.loading, watcher.retained, watcher.waiting
    capture_run(project, stop, partial(capture_of, project, stop, *told))
