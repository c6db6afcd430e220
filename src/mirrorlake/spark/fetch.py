"""Fetches Delta's jars before they are first needed: `python -m mirrorlake.spark.fetch`."""

from __future__ import annotations

import sys

from mirrorlake.errors import MirrorlakeError
from mirrorlake.spark import jars
from mirrorlake.spark.session import Spark
from mirrorlake.spark.settings import SparkSettings


def main() -> int:
    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)  # noqa: T201

    try:
        if not jars.are_fetched():
            Spark.start(SparkSettings(master="local[1]", driver_memory="512m"), say).stop()
    except MirrorlakeError as error:
        say(f"mirrorlake: {error}")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
