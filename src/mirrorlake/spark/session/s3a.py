"""Access of Spark to tables on S3, through Hadoop's S3A in the version that is part of Spark.

Our own session adds S3A when needed. Its settings contain how to access the storage but no
credentials, which come from the environment of each process. A given session must have its own
access, which is checked before anything is written.

Commits are conditional writes, through the log store in `log_store`: see
docs/how-to/object-stores.md.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirrorlake.errors import StorageUnavailable, UsageError
from mirrorlake.storage.urls import StorageLocation, s3_endpoint, s3_region

if TYPE_CHECKING:  # a command that has nothing to write does not load PySpark
    from pyspark.sql import SparkSession

SDK = {"3.5.0": "2.35.4", "3.4.3": "2.35.4", "3.4.2": "2.29.52"}
"""Versions of Hadoop, and the AWS SDK that its S3A was built with."""

MODULES = ("s3", "s3-transfer-manager", "sts")
"""The modules of the SDK that S3A needs; `bundle` contains all services."""

NOT_NEEDED = (
    "software.amazon.awssdk:bundle",
    "org.wildfly.openssl:*",
    # Spark has its own.
    "io.netty:*",
    "org.apache.httpcomponents:*",
    "commons-codec:*",
)

_S3A = "org.apache.hadoop.fs.s3a."
_DEFAULT_CHAIN = "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
NO_FILE = "_mirrorlake_no_file"
"""A name that no file has."""

_ABSENT = ("ClassNotFoundException", "NoClassDefFoundError", "UnsupportedFileSystemException")


def hadoop() -> str:
    """The version of Hadoop in the installed Spark; empty if unknown."""
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    for jar in Path(found.origin).parent.glob("jars/hadoop-client-api-*.jar"):
        if named := re.fullmatch(r"hadoop-client-api-([\d.]+)\.jar", jar.name):
            return named[1]
    return ""


def coordinates() -> list[str]:
    """The jars of S3A, for Spark to download. Raises UsageError when the version is unknown."""
    version = hadoop()
    if not version:
        raise UsageError(
            "the version of Hadoop in the installed Spark cannot be determined",
            where="tables on S3",
            hint="Put the jars of hadoop-aws and of Delta into a folder, and set spark.jars to it.",
        )
    found = [f"org.apache.hadoop:hadoop-aws:{version}"]
    if sdk := SDK.get(version):
        found += [f"software.amazon.awssdk:{module}:{sdk}" for module in MODULES]
    return found


def excluded() -> tuple[str, ...]:
    """Unneeded dependencies of these jars; empty for an untested version of Hadoop."""
    return NOT_NEEDED if hadoop() in SDK else ()


def configuration(tables: StorageLocation) -> dict[str, str]:
    """The settings of our own session for access to a location. None of them is a secret."""
    options = tables.options
    provider = f"{_S3A}AnonymousAWSCredentialsProvider" if options.anonymous else _DEFAULT_CHAIN
    found = {
        "fs.s3.impl": f"{_S3A}S3AFileSystem",  # everyone but Hadoop writes s3 for s3a
        "fs.AbstractFileSystem.s3.impl": f"{_S3A}S3A",
        "fs.s3a.aws.credentials.provider": provider,
    }
    if endpoint := s3_endpoint(options):
        secure = not endpoint.lower().startswith("http://")
        found |= {
            "fs.s3a.endpoint": endpoint,
            "fs.s3a.path.style.access": "true",  # it may have no host name per bucket
            "fs.s3a.connection.ssl.enabled": str(secure).lower(),
        }
    if region := s3_region(options):
        found["fs.s3a.endpoint.region"] = region
    return {f"spark.hadoop.{name}": value for name, value in found.items()}


def check(session: SparkSession, tables: StorageLocation) -> None:
    """Check whether a session can access the location of its tables. Raises UsageError when it has
    no file system for such URLs, StorageUnavailable when the access fails."""
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import PySparkException

    from mirrorlake.spark.session.internals import MISSING, report_missing

    try:
        try:
            jvm: Any = session._jvm  # noqa: SLF001
            settings = session.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001
            path = jvm.org.apache.hadoop.fs.Path(tables.url)
            path.getFileSystem(settings).exists(path)
        except Py4JJavaError:
            raise  # nothing is missing
        except MISSING as error:
            report_missing("FileSystem.exists", "a reader of text", error)
            _look_by_reader(session, tables)
    except (Py4JError, PySparkException) as error:
        raise _refusal(tables, error) from None  # its text may contain signed data


def _look_by_reader(session: SparkSession, tables: StorageLocation) -> None:
    """Let a reader look for a file that does not exist, which it says once it has access."""
    from pyspark.errors import AnalysisException

    try:
        session.read.text(f"{tables.url.rstrip('/')}/{NO_FILE}")
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise


def _refusal(tables: StorageLocation, error: Exception) -> UsageError | StorageUnavailable:
    names = _causes(error)
    if any(name in _ABSENT for name in names):
        return UsageError(
            f"the session cannot access {tables.url.partition('://')[0]}:// URLs",
            where=tables.url,
            hint="Create it with the jars of hadoop-aws in the version of its Hadoop, and with "
            f"spark.hadoop.fs.s3.impl={_S3A}S3AFileSystem.",
        )
    return StorageUnavailable(
        f"Spark cannot access the location of the tables: {names[0]}",
        where=tables.url,
        hint="Check the bucket, the endpoint, the region and the credentials in the environment; "
        "for a session that was passed in, also its spark.hadoop.fs.s3a settings.",
    )


def _causes(error: Exception) -> list[str]:
    """The class names of an error and its causes, from the outside in."""
    cause = getattr(error, "java_exception", None)
    if cause is None:
        return [type(error).__name__]
    found: list[str] = []
    while cause is not None and len(found) < 10:
        found.append(str(cause.getClass().getSimpleName()))
        cause = cause.getCause()
    texts = str(error)  # Hadoop wraps a missing class in its own error
    return [*found, *(name for name in _ABSENT if name in texts)]
