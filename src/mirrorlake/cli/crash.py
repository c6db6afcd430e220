"""The hook for the crash points of a command. It does nothing unless a test replaces it."""

from __future__ import annotations

from mirrorlake.model.crash_points import CrashHook, no_crash

reached: CrashHook = no_crash
