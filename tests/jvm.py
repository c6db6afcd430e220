"""Pytest plugin: how JVMs of tests run, of which dozens start in a run and live for seconds."""

from __future__ import annotations

import os

# Most of the work of such a JVM would be to compile for hours to come.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
