"""Records the results of self-tests of the direct strategy, for each set of versions of Spark,
Delta, mirrorlake and the libraries of a task. They are stored beside the cache of jars; a lost
result only repeats the test."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

from mirrorlake.spark.session import jars, workers

ON_OBJECTS = "-objects"
"""The kind of a self-test on an object store; that in a folder is ""."""


def went_well(kind: str = "") -> bool:
    """Whether the last self-test with the installed versions succeeded."""
    return _note(kind).exists()


def failure(kind: str = "") -> str:
    """Why it failed, in words; empty when it succeeded or never ran."""
    if went_well(kind):  # a process killed while recording success leaves the earlier failure
        return ""
    try:
        return _note(f"{kind}.failed").read_text()
    except OSError:
        return ""


def remember(reason: str, kind: str = "") -> None:
    """Record the result of a self-test. reason: why it failed, empty on success."""
    failed = f"{kind}.failed"
    now, before = (failed, kind) if reason else (kind, failed)
    with contextlib.suppress(OSError):  # then the test is repeated next time
        _note(now).parent.mkdir(parents=True, exist_ok=True)
        _note(now).write_text(reason or "ten rows were written, read back and not written twice\n")
        _note(before).unlink(missing_ok=True)


def _note(ending: str) -> Path:
    spark, delta = jars.pair()
    found = repr(sorted(workers.versions().items())).encode()
    own = hashlib.sha256(found).hexdigest()[:16]
    return jars.cache() / "mirrorlake" / f"direct-{spark}-{delta}-{own}{ending}"
