"""The options of Java that depend on what a session is for."""

from __future__ import annotations

import re
import subprocess

from mirrorlake.spark.session.java_options import (
    RARELY_OPTIMIZED,
    driver_options,
    executor_options,
)


def flags(options: str) -> dict[str, str]:
    """The values of the flags that a JVM with these options has."""
    done = subprocess.run(
        ["java", *options.split(), "-XX:+PrintFlagsFinal", "-version"],
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(re.findall(r"(\w+)\s+=\s+(\S+)", done.stdout))


def test_java_knows_the_options_of_an_executor() -> None:
    found = flags(executor_options())
    for option in RARELY_OPTIMIZED[1:]:
        name, value = option.removeprefix("-XX:").split("=")
        assert found[name] == value


def test_a_local_session_optimizes_as_java_does() -> None:
    assert flags(driver_options(is_local=True, brief=False))["Tier4InvocationThreshold"] == "5000"


def test_a_session_that_ends_soon_does_not_optimize() -> None:
    for is_local in (True, False):
        found = flags(driver_options(is_local=is_local, brief=True))
        assert found["TieredStopAtLevel"] == "1"
