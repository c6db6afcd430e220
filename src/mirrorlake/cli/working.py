"""What every command that works has around it: signals, the crash hook, a clean end."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mirrorlake.app.mirror import Mirror
from mirrorlake.app.process import skip_pandas
from mirrorlake.cli import crash
from mirrorlake.cli.output import say
from mirrorlake.cli.stop import LEFT, Stop
from mirrorlake.config import Project
from mirrorlake.errors import MirrorlakeError


@contextmanager
def working(
    project: Project, prepare: Callable[[], None] | None = None, tell: Callable[[str], None] = say
) -> Iterator[Mirror]:
    """A mirror that ends on a signal within seconds. tell: told what takes long.

    Once a signal has come, a failing step is a normal end: the JVM may have got the signal too and
    be gone first, and our own jobs are cancelled. What was not committed is done next time.
    """
    skip_pandas()
    stop = Stop()
    mirror = Mirror(project, stop=stop.event, reached=crash.reached, say=tell, prepare=prepare)
    stop.cancel = mirror.cancel
    try:
        yield mirror
    except MirrorlakeError:
        raise
    except KeyboardInterrupt:  # while PySpark starts, it answers the signal
        stop.begin()
        say(LEFT.strip())
    except Exception:
        if not stop.event.is_set():
            raise
        say(LEFT.strip())
    finally:
        mirror.close()
    if stop.event.is_set():
        # Threads of Spark's gateway may still wait for a JVM that is gone.
        os._exit(0)
