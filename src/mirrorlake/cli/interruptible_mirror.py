"""What surrounds each command that runs a mirror: signal handling, the crash hook, a clean end."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from mirrorlake.app.mirror import Mirror
from mirrorlake.app.running.process import skip_pandas
from mirrorlake.cli import crash
from mirrorlake.cli.output import say
from mirrorlake.cli.stop import LEFT, Stop
from mirrorlake.config import Project
from mirrorlake.errors import MirrorlakeError


@contextmanager
def interruptible_mirror(
    project: Project,
    prepare: Callable[[], None] | None = None,
    on_message: Callable[[str], None] = say,
) -> Iterator[Mirror]:
    """A mirror that ends on a signal within seconds. on_message: called before long steps."""
    with interruptible_mirrors([project], prepare, on_message) as mirrors:
        yield mirrors[0]


@contextmanager
def interruptible_mirrors(
    projects: Sequence[Project],
    prepare: Callable[[], None] | None = None,
    on_message: Callable[[str], None] = say,
) -> Iterator[list[Mirror]]:
    """Mirrors that end on a signal within seconds.

    After a signal, a failing step is a normal end: the JVM may have received the signal too and
    exited first, and our own jobs are cancelled. What was not committed is done next time.
    """
    skip_pandas()
    stop = Stop()
    tables = next((where for one in projects if (where := one.tables_elsewhere)), None)
    mirrors = [
        Mirror(
            project,
            stop=stop.event,
            reached=crash.reached,
            say=on_message,
            prepare=prepare,
            tables=tables,
        )
        for project in projects
    ]

    def cancel() -> None:
        for mirror in mirrors:
            mirror.cancel()

    stop.cancel = cancel
    try:
        yield mirrors
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
        for mirror in mirrors:
            mirror.close()
    if stop.event.is_set():
        # Threads of Spark's gateway may still wait for a JVM that is gone.
        os._exit(0)
