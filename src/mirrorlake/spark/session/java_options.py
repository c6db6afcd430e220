"""The options of Java for a session that mirrorlake creates."""

from __future__ import annotations

_ALWAYS = (
    # In any other time zone, Delta verifies all files again at each commit.
    "-Duser.timezone=UTC",
    # Hadoop starts a process for every file it creates.
    "-Djdk.lang.Process.launchMechanism=VFORK",
)

_UNOPTIMIZED = ("-XX:TieredStopAtLevel=1",)
"""Without the optimizing compiler, which would take a third of a run that ends after one batch."""

RARELY_OPTIMIZED = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-XX:Tier4InvocationThreshold=200000",
    "-XX:Tier4MinInvocationThreshold=24000",
    "-XX:Tier4CompileThreshold=600000",
    "-XX:Tier4BackEdgeThreshold=1600000",
)
"""Forty times the defaults. An executor has few cores, often one, which the optimizing compiler
would share with the first large batches; it takes an eighth of them. Tasks of mirrorlake run little
in Java. What does run in Java, such as a `MERGE`, has loops of more than a million rounds, and is
optimized within a second."""


def driver_options(*, is_local: bool, brief: bool) -> str:
    """Of the JVM of the driver, in which local tasks run. brief: it will end soon."""
    return " ".join(
        (*_ALWAYS, *(() if is_local else RARELY_OPTIMIZED), *(_UNOPTIMIZED if brief else ()))
    )


def executor_options() -> str:
    """Of the JVM of an executor on a cluster."""
    return " ".join((*_ALWAYS, *RARELY_OPTIMIZED))
