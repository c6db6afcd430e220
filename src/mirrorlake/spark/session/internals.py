"""What is done where a newer version of Spark or Delta lacks an internal that we use: a public way,
or a safe default. Internals that `direct` alone uses are left to its self-test (`trial/`)."""

from __future__ import annotations

import structlog
from py4j.protocol import Py4JError

log = structlog.get_logger()

MISSING = (AttributeError, TypeError, Py4JError)
"""What the use of a missing internal raises: an attribute of PySpark, a class of Java (which py4j
then takes for a package, and cannot call), a method of Java. A lost JVM raises Py4JError too, and
again in the public way."""

INTERNAL_MISSING = "spark_internal_missing"


def report_missing(internal: str, instead: str, error: Exception) -> None:
    """Log an internal that is missing. instead: what is done without it."""
    log.debug(INTERNAL_MISSING, internal=internal, instead=instead, error=type(error).__name__)
