"""Prepares what the first start would have to wait for: `python -m mirrorlake.spark.session.fetch`.

Fetches the jars of Delta and of S3A, and tries whether the direct way of writing is open with them.
"""

from __future__ import annotations

import sys

from mirrorlake.errors import MirrorlakeError
from mirrorlake.spark.session import jars
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.spark.settings import SparkSettings
from mirrorlake.spark.trial import guard
from mirrorlake.spark.trial import record as trials
from mirrorlake.storage.urls import StorageLocation


def main() -> int:
    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)  # noqa: T201

    try:
        conf = jars.configuration(SparkSettings(), StorageLocation("s3://any/bucket"))
        if jars.to_fetch(conf) or not trials.went_well():
            settings = SparkSettings(master="local[1]", driver_memory="512m", conf=conf)
            with Spark.start(settings, say) as spark:
                guard.closed(spark)
    except MirrorlakeError as error:
        say(f"mirrorlake: {error}")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
