"""How Spark reaches tables on S3: by Hadoop's S3A, of the very version that is in Spark.

A session of ours brings it when it is needed, and says in settings how the storage is reached, but
never who we are: that comes from the environment of each process. A session that is given must have
its own way; whether it has is looked at before anything is written.

Commits are conditional writes, by the log store of `log_store`: see docs/how-to/object-stores.md.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyspark
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from mirrorlake.errors import StorageUnavailable, UsageError
from mirrorlake.storage.urls import StorageLocation, s3_endpoint, s3_region

SDK = {"3.5.0": "2.35.4", "3.4.3": "2.35.4", "3.4.2": "2.29.52"}
"""Versions of Hadoop, and of the SDK that its S3A was built with."""

MODULES = ("s3", "s3-transfer-manager", "sts")
"""What S3A needs of the SDK, of which `bundle` holds everything, for all services of the cloud."""

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
_ABSENT = ("ClassNotFoundException", "NoClassDefFoundError", "UnsupportedFileSystemException")


def hadoop() -> str:
    """The version of the Hadoop in the installed Spark; empty when it does not tell."""
    for jar in Path(pyspark.__path__[0], "jars").glob("hadoop-client-api-*.jar"):
        if found := re.fullmatch(r"hadoop-client-api-([\d.]+)\.jar", jar.name):
            return found[1]
    return ""


def coordinates() -> list[str]:
    """The jars of S3A, for Spark to fetch. Raises UsageError when nobody knows of which version."""
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
    """What comes with these jars and is not needed; of a Hadoop that nobody tried, all is."""
    return NOT_NEEDED if hadoop() in SDK else ()


def configuration(tables: StorageLocation) -> dict[str, str]:
    """The settings of a session of ours that reaches a place. None of them is a secret."""
    options = tables.options
    provider = f"{_S3A}AnonymousAWSCredentialsProvider" if options.anonymous else _DEFAULT_CHAIN
    found = {
        "fs.s3.impl": f"{_S3A}S3AFileSystem",  # what Hadoop calls s3a, everybody else calls s3
        "fs.AbstractFileSystem.s3.impl": f"{_S3A}S3A",
        "fs.s3a.aws.credentials.provider": provider,
    }
    if endpoint := s3_endpoint(options):
        secure = not endpoint.lower().startswith("http://")
        found |= {
            "fs.s3a.endpoint": endpoint,
            "fs.s3a.path.style.access": "true",  # it may have no name for each bucket
            "fs.s3a.connection.ssl.enabled": str(secure).lower(),
        }
    if region := s3_region(options):
        found["fs.s3a.endpoint.region"] = region
    return {f"spark.hadoop.{name}": value for name, value in found.items()}


def check(session: SparkSession, tables: StorageLocation) -> None:
    """Look whether a session reaches the place of its tables. Raises UsageError when it has no way
    to such places, StorageUnavailable when the way does not lead there."""
    jvm: Any = session._jvm  # noqa: SLF001
    settings = session.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001
    try:
        path = jvm.org.apache.hadoop.fs.Path(tables.url)
        path.getFileSystem(settings).exists(path)
    except (Py4JError, PySparkException) as error:
        raise _refusal(tables, error) from None  # its text may quote what is signed


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
    """The names of what went wrong, from the outside in."""
    if not isinstance(error, Py4JJavaError):
        return [type(error).__name__]
    found: list[str] = []
    cause = error.java_exception
    while cause is not None and len(found) < 10:
        found.append(str(cause.getClass().getSimpleName()))
        cause = cause.getCause()
    texts = str(error)  # Hadoop wraps a class that is missing into an error of its own
    return [*found, *(name for name in _ABSENT if name in texts)]
