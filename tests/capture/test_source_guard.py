"""What a source is kept from."""

from __future__ import annotations

import pytest

from mirrorlake import root
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.capture.watch.source_guard import CHECK_SECONDS, SourceGuard
from mirrorlake.capture.watch.still_log import AFTER_SECONDS, STILL_SECONDS
from mirrorlake.model.position import Lsn
from mirrorlake.sources.memory.database import MemoryDatabase
from mirrorlake.sources.memory.settings import MemorySettings
from mirrorlake.sources.memory.source import MemorySource
from mirrorlake.storage.local import LocalStore
from tests.capture.landing import landing_capture
from tests.doubles.clock import SteppedClock


def test_what_cannot_be_mended_is_looked_at_less_often(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SteppedClock()
    source = MemorySource(MemorySettings(MemoryDatabase(clock)))
    objects, records = source.objects, Records(store, root.LANDING)
    settings = CaptureSettings(watch_seconds=30.0)
    guard = SourceGuard(source, records, settings, clock, lambda _log: None)
    rejects = [True]
    monkeypatch.setattr(type(objects), "rejects_changes", lambda _self: rejects[0])
    found = []
    for _second in range(40):
        found.append(guard.finds_rejected())
        clock.advance(CHECK_SECONDS)
    assert [number for number, is_found in enumerate(found) if is_found] == [0, 1, 31]
    rejects[0] = False
    clock.advance(settings.watch_seconds)
    guard.moved()
    assert not guard.finds_rejected()
    rejects[0] = True
    clock.advance(CHECK_SECONDS)
    assert guard.finds_rejected()


def test_a_source_is_looked_at_as_often_as_ever_while_tables_are_loaded(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing tells then whether its log moves."""
    clock, asked = SteppedClock(), list[float]()
    source = MemorySource(MemorySettings(MemoryDatabase(clock)))
    monkeypatch.setattr(
        type(source.objects), "rejects_changes", lambda _self: asked.append(clock.monotonic())
    )
    capture = landing_capture(source, store, CaptureSettings(), clock)
    for _second in range(round(2 * AFTER_SECONDS)):
        clock.advance(CHECK_SECONDS)
        capture._while_loading()
    assert len(asked) == 2 * AFTER_SECONDS


def test_a_source_whose_log_stands_still_is_looked_at_less_often(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And at once when it moves, and as often as usual for a while after that."""
    clock = SteppedClock()
    source = MemorySource(MemorySettings(MemoryDatabase(clock)))
    records = Records(store, root.LANDING)
    asked, looked, position = list[float](), list[float](), [Lsn(1)]
    monkeypatch.setattr(
        type(source.objects), "rejects_changes", lambda _self: asked.append(clock.monotonic())
    )
    monkeypatch.setattr(source, "current", lambda: position[0])
    settings = CaptureSettings(watch_seconds=30.0)
    guard = SourceGuard(source, records, settings, clock, lambda _log: None)

    def passes(seconds: float) -> tuple[int, int]:
        """How often the source was looked at, and asked whether it rejects changes."""
        before = len(looked), len(asked)
        for _second in range(round(seconds)):
            clock.advance(1.0)
            guard.finds_rejected()
            if guard.is_watch_due():
                looked.append(clock.monotonic())
        return len(looked) - before[0], len(asked) - before[1]

    assert passes(settings.watch_seconds + AFTER_SECONDS - 1) == (2, 89)
    assert passes(3 * STILL_SECONDS) == (3, 3 * STILL_SECONDS / settings.watch_seconds)
    passes(100.0)  # into a pause
    guard.moved()
    assert passes(1.0) == (1, 1)
    assert passes(AFTER_SECONDS - 2) == (1, AFTER_SECONDS - 2)
    passes(STILL_SECONDS)
    position[0] = Lsn(2)  # which the stream does not tell
    assert passes(settings.watch_seconds)[0] == 1
    assert passes(settings.watch_seconds) == (1, settings.watch_seconds)
