"""What a source is kept from."""

from __future__ import annotations

import pytest

from mirrorlake import root
from mirrorlake.capture.record import Records
from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.capture.watch.source_guard import CHECK_SECONDS, SourceGuard
from mirrorlake.sources.memory.database import MemoryDatabase
from mirrorlake.sources.memory.settings import MemorySettings
from mirrorlake.sources.memory.source import MemorySource
from mirrorlake.storage.local import LocalStore
from tests.doubles.clock import SteppedClock


def test_what_cannot_be_mended_is_looked_at_less_often(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SteppedClock()
    objects = MemorySource(MemorySettings(MemoryDatabase(clock))).objects
    records = Records(store, root.LANDING)
    settings = CaptureSettings(watch_seconds=30.0)
    guard = SourceGuard(objects, records, settings, clock, lambda _log: None)
    rejects = [True]
    monkeypatch.setattr(type(objects), "rejects_changes", lambda _self: rejects[0])
    found = []
    for _second in range(40):
        found.append(guard.finds_rejected())
        clock.advance(CHECK_SECONDS)
    assert [number for number, is_found in enumerate(found) if is_found] == [0, 1, 31]
    rejects[0] = False
    clock.advance(settings.watch_seconds)
    assert not guard.finds_rejected()
    rejects[0] = True
    clock.advance(CHECK_SECONDS)
    assert guard.finds_rejected()
