"""What trials of the direct way have found, each for a set of versions: of Spark, Delta, our own
and the libraries of a task. It lies beside the cache of jars; what is lost there is tried again.
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

from mirrorlake.spark.session import jars, workers


def went_well() -> bool:
    """Whether the last trial of the installed versions did."""
    return _note("").exists()


def failure() -> str:
    """Why it failed, in words; empty when it went well, or there was none."""
    if went_well():  # whoever was killed while it noted that has left the note of before
        return ""
    try:
        return _note(".failed").read_text()
    except OSError:
        return ""


def remember(reason: str) -> None:
    """What the trial of now has found. reason: why it failed, empty when it went well."""
    now, before = (".failed", "") if reason else ("", ".failed")
    with contextlib.suppress(OSError):  # then it is tried again next time
        _note(now).parent.mkdir(parents=True, exist_ok=True)
        _note(now).write_text(reason or "ten rows were written, read back and not written twice\n")
        _note(before).unlink(missing_ok=True)


def _note(ending: str) -> Path:
    spark, delta = jars.pair()
    found = repr(sorted(workers.versions().items())).encode()
    own = hashlib.sha256(found).hexdigest()[:16]
    return jars.cache() / "mirrorlake" / f"direct-{spark}-{delta}-{own}{ending}"
