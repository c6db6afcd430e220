"""What trials of the direct way have found, each for a set of versions: of Spark, Delta, our own
and the libraries of a task. It lies beside the cache of jars; what is lost there is tried again.
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

from mirrorlake.spark.session import jars, workers

ON_OBJECTS = "-objects"
"""The kind of a trial on objects, beside the one in a folder, which has no word."""


def went_well(kind: str = "") -> bool:
    """Whether the last trial of the installed versions did."""
    return _note(kind).exists()


def failure(kind: str = "") -> str:
    """Why it failed, in words; empty when it went well, or there was none."""
    if went_well(kind):  # whoever was killed while it noted that has left the note of before
        return ""
    try:
        return _note(f"{kind}.failed").read_text()
    except OSError:
        return ""


def remember(reason: str, kind: str = "") -> None:
    """What the trial of now has found. reason: why it failed, empty when it went well."""
    failed = f"{kind}.failed"
    now, before = (failed, kind) if reason else (kind, failed)
    with contextlib.suppress(OSError):  # then it is tried again next time
        _note(now).parent.mkdir(parents=True, exist_ok=True)
        _note(now).write_text(reason or "ten rows were written, read back and not written twice\n")
        _note(before).unlink(missing_ok=True)


def _note(ending: str) -> Path:
    spark, delta = jars.pair()
    found = repr(sorted(workers.versions().items())).encode()
    own = hashlib.sha256(found).hexdigest()[:16]
    return jars.cache() / "mirrorlake" / f"direct-{spark}-{delta}-{own}{ending}"
