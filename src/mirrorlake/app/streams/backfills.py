"""Backfills of single objects: asked for here, done by the capture of their stream (ST-290)."""

from __future__ import annotations

from collections.abc import Callable

from mirrorlake.app.mirror import Mirror
from mirrorlake.app.streams.objects import backfill_document
from mirrorlake.app.streams.projects import StreamProjects
from mirrorlake.capture.backfill.jobs import BackfillJob
from mirrorlake.control.checks import shaped
from mirrorlake.control.names import ResourceName
from mirrorlake.control.reports import Document
from mirrorlake.control.shapes.streams import StartBackfillRequest
from mirrorlake.control.states import BackfillState, BackfillTrigger, StreamState
from mirrorlake.control.supervision import Supervision
from mirrorlake.errors import IllegalMove, NotOffered, UsageError
from mirrorlake.model.clock import WallClock

CAPTURED = (
    StreamState.RUNNING,
    StreamState.FAILED,
    StreamState.DRAINING,
    StreamState.PAUSED,
)
"""States of a stream that has landed its tables, and does not load them anew."""
_UNDER_WAY = (BackfillState.PENDING, BackfillState.ACTIVE)

_Ask = Callable[[Mirror, Document], BackfillJob]


class ObjectBackfills:
    """For any number of threads. What it asks for is recorded beside the files of the stream, so
    that it outlives every process, and capture finds it there."""

    def __init__(
        self,
        supervision: Supervision,
        projects: StreamProjects,
        look_at: Callable[[ResourceName], None],
    ) -> None:
        """look_at: called after something was asked of an object of a stream."""
        self._supervision, self._projects, self._look_at = supervision, projects, look_at

    def start(self, name: ResourceName, sent: object) -> Document:
        """Ask for a backfill of an object. Returns the object.

        Raises InvalidRequest, NotOffered, ResourceNotFound, and IllegalMove where the object has
        one that is under way, or its stream has not landed it.
        """
        request = shaped(StartBackfillRequest, sent)
        chosen = request.key_range
        keys = None if chosen is None else (chosen.first, chosen.last)

        def asked(mirror: Mirror, document: Document) -> BackfillJob:
            if request.event_filter is not None:
                raise NotOffered(
                    "a backfill of the rows that SQL chooses is not offered",
                    where="eventFilter",
                    hint="Send keyRange with the first and the last value of the first key column, "
                    "or nothing for all rows.",
                )
            _check_is_over(document, name)
            return mirror.backfill(
                document["displayName"],
                keys,
                request.max_rows_per_second,
                request.max_bytes_per_second,
            )

        return self._changed(name, asked)

    def stop(self, name: ResourceName) -> Document:
        """Ask for the end of the backfill of an object. Returns the object.

        Raises ResourceNotFound, IllegalMove where none is under way, and NotOffered for what the
        stream does by itself: its first load, and what a recovery requires.
        """

        def asked(mirror: Mirror, document: Document) -> BackfillJob:
            job = document["backfillJob"]
            is_load = job["trigger"] == BackfillTrigger.AUTOMATIC.name
            if is_load and BackfillState[job["state"]] in _UNDER_WAY:
                raise NotOffered(
                    "the load or backfill that a stream begins by itself is not stopped alone",
                    where=str(name),
                    hint="Pause the stream, or leave the object out with excludeObjects.",
                )
            return mirror.stop_backfill(document["displayName"])

        return self._changed(name, asked)

    def _changed(self, name: ResourceName, ask: _Ask) -> Document:
        def change(stream: Document, document: Document) -> Document:
            state = StreamState[stream["state"]]
            if state not in CAPTURED:
                raise IllegalMove(
                    f"nothing is backfilled while the stream is {state.name}",
                    where=name.parent,
                    hint="Start it, and wait until it is RUNNING.",
                )
            project = self._projects.of(ResourceName.parse(name.parent), stream)
            try:
                job = ask(Mirror(project), document)
            except UsageError as error:
                raise IllegalMove(
                    error.what, where=str(name), hint="See backfillJob and errors of the object."
                ) from None
            now = WallClock().now()
            return {**document, "backfillJob": backfill_document(job, document, now)}

        found = self._supervision.change_object(name, change)
        self._look_at(ResourceName.parse(name.parent))
        return found


def _check_is_over(document: Document, name: ResourceName) -> None:
    """The load of a landed table is no hindrance, even where nobody applies it."""
    job = document["backfillJob"]
    state, is_manual = job["state"], job["trigger"] == BackfillTrigger.MANUAL.name
    if state == BackfillState.PENDING.name or (is_manual and state == BackfillState.ACTIVE.name):
        raise IllegalMove(
            f"a backfill that is {state} cannot become PENDING",
            where=str(name),
            hint="Wait for its end, or stop it first.",
        )
