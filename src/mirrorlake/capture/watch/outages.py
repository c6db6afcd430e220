"""Outages of the source, reported while they last, also those that capture itself does not see.
The thread that looks for them also reports transactions for which snapshots wait.

The capturing thread notices when a connection is closed. When packets are dropped or a proxy
stalls, the operating system reports that much later, or never; so a separate thread checks whether
the server still answers. Before it gives up it closes no connection: a server that answers again
continues where it was, and one that is slow or busy is not reported as unreachable.
"""

from __future__ import annotations

import threading
from contextlib import closing, suppress
from datetime import datetime, timedelta

import structlog

from mirrorlake.capture.records.records import Records
from mirrorlake.capture.records.source_state import Outage
from mirrorlake.capture.watch.snapshot_waits import SnapshotWaits
from mirrorlake.errors import SourceUnavailable
from mirrorlake.model.clock import Clock
from mirrorlake.sources.base import AwaitedTransaction, Pulse

log = structlog.get_logger()

STREAM_INTERRUPTED = "stream_interrupted"
STREAM_RESUMED = "stream_resumed"
SOURCE_SILENT = "source_silent"

LOOK_SECONDS = 0.25
"""Between two checks of the pulse of a server that does not answer: an outage is reported
everywhere within 5 seconds, of which the server has 2 to answer, and `status` and its files
take 1."""

GIVE_UP_SECONDS = 10.0
"""Silence after which capture reconnects: a stalled connection may never recover."""


class Outages:
    """For the thread that captures, which calls everything here, and the one that looks."""

    def __init__(self, records: Records, clock: Clock, stop: threading.Event) -> None:
        """stop: ends the capture."""
        self._records, self._clock, self._stop = records, clock, stop
        self._lock = threading.Lock()
        self._since: datetime | None = None  # it does not answer
        self._began = 0.0  # that, in monotonic seconds: the clock may be set back meanwhile
        self._silence: SourceUnavailable | None = None  # what the thread that looks has found
        self._waits = SnapshotWaits(records, clock)
        self._joining: AwaitedTransaction | None = None  # what tables wait for beside the stream
        self._done = threading.Event()
        self._pulse: Pulse | None = None

    def interrupted(self, error: SourceUnavailable, reason: str, pause: float) -> None:
        """A connection has ended, and the next attempt is after the pause."""
        log.warning(STREAM_INTERRUPTED, reason=reason, retry_seconds=pause)
        with self._lock:
            self._silence = None
            self._begin(self._heard(), reason, error.hint, pause)

    def resumed(self) -> None:
        """What had ended answers again."""
        with self._lock:
            if self._silence is None:
                self._end()

    def awaits(self, transaction: AwaitedTransaction | None) -> None:
        """Tables wait for the end of a transaction, although no snapshot was begun."""
        with self._lock, suppress(OSError):  # a full disk is reported elsewhere
            if transaction is None and self._joining is not None:
                self._waits.end()
            self._joining = transaction

    def check(self) -> None:
        """Raises SourceUnavailable when the server has been silent for too long."""
        with self._lock:
            if self._silence is None or self._since is None:
                return
            if self._clock.monotonic() - self._began >= GIVE_UP_SECONDS:
                raise self._silence

    def watch(self, pulse: Pulse | None) -> None:
        """Look at this pulse from now on, instead of another."""
        self.unwatch()
        self._waits.begin()
        self._pulse = pulse
        if pulse is not None:
            self._done = threading.Event()
            look = threading.Thread(target=self._look, args=[pulse, self._done], daemon=True)
            look.start()

    def unwatch(self) -> None:
        """Stop looking. What was found is reported until the source answers. Who still waits for a
        snapshot, beside a stream that is closed, waits no longer: nobody would tell for what."""
        if self._pulse is not None:
            self._pulse.stop_waiting()
            self._pulse = None
        with self._lock:
            self._done.set()
            self._silence = None
            with suppress(OSError):  # a full disk is reported elsewhere
                self._waits.end()

    def _look(self, pulse: Pulse, done: threading.Event) -> None:
        heard = self._heard()
        pause = LOOK_SECONDS
        with closing(pulse):
            while not done.wait(pause):
                silence: SourceUnavailable | None = None
                awaited: AwaitedTransaction | None = None
                try:
                    pause = pulse.check()
                    awaited = pulse.awaited()
                except SourceUnavailable as error:
                    silence, pause = error, LOOK_SECONDS
                if self._stop.is_set():
                    pulse.stop_waiting()  # who waits for a snapshot does not look at `stop`
                with self._lock, suppress(OSError):  # a full disk is reported elsewhere
                    if done.is_set():
                        return
                    self._waits.found(awaited or self._joining)
                    if silence is None:
                        heard = self._heard()
                        if self._silence is not None:
                            self._silence = None
                            self._end()
                        continue
                    if self._silence is None:
                        log.warning(SOURCE_SILENT, reason=silence.what)
                    self._silence = silence
                    self._begin(heard, silence.what, silence.hint, LOOK_SECONDS)
                if self._clock.monotonic() - heard[1] >= GIVE_UP_SECONDS:
                    pulse.give_up()  # who waits for an answer cannot call `check`

    def _heard(self) -> tuple[datetime, float]:
        """This moment, by both clocks."""
        return self._clock.now(), self._clock.monotonic()

    def _begin(self, heard: tuple[datetime, float], reason: str, hint: str, pause: float) -> None:
        if self._since is None:
            self._since, self._began = heard
        again = self._clock.now() + timedelta(seconds=pause)
        self._records.begin_outage(Outage(self._since, again, reason, hint))

    def _end(self) -> None:
        if self._since is not None:
            seconds = self._clock.monotonic() - self._began
            self._records.end_outage()
            self._since = None
            log.info(STREAM_RESUMED, seconds=round(seconds, 1))
