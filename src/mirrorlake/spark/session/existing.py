"""The session that a process has before mirrorlake starts one.

A JVM has one context only, so that no session can be started beside that of somebody else; and
`getOrCreate` would return it, with its settings changed.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

from pyspark import SparkContext
from pyspark.sql import SparkSession

_started: list[SparkContext] = []
"""The context that mirrorlake started last."""

_users: WeakSet[Any] = WeakSet()
"""The objects that work in it."""


def of_others() -> SparkSession | None:
    """The session that somebody else started in this process. None also if it is ours."""
    context = getattr(SparkContext, "_active_spark_context", None)  # no public way
    if context is None or any(ours is context for ours in _started):
        return None
    return SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()


def use(user: Any) -> None:
    """Note who works in our own session. user: has it as `session`."""
    _started[:] = [user.session.sparkContext]
    _users.add(user)


def leave(user: Any) -> bool:
    """Note that somebody has ended. Returns whether nobody else works in the same session."""
    _users.discard(user)
    context = user.session.sparkContext
    return all(other.session.sparkContext is not context for other in _users)
