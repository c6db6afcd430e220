"""A publisher in a process of its own, for tests that kill it: `python -m ... ROOT`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pyarrow as pa

from mirrorlake.landing import Publisher
from mirrorlake.model.crash_points import no_crash
from tests.crash.entry import kill_at


def growing() -> Iterator[pa.Table]:
    """A batch of two files: a column comes in the middle."""
    yield pa.table({"id": [10], "v": ["x"]})
    yield pa.table({"id": [11], "v": ["y"], "w": [1.5]})


def main(root: str) -> None:
    with _publisher(root) as publisher:
        rows = [{"id": n, "v": "a"} for n in range(3)]
        publisher.load("s.t", rows, key="id", batch="load")
        publisher.publish("s.t", growing(), operation="insert", batch="2026-05-01/17")
        publisher.publish("s.t", [{"id": 1}], operation="delete", batch="2026-05-01/18")


def drop(root: str) -> None:
    """Delete the folder with all that was published."""
    with _publisher(root) as publisher:
        publisher.drop("s.t")


def _publisher(root: str) -> Publisher:
    target = os.environ.get("CRASH_AT")
    return Publisher(root, reached=kill_at(target) if target else no_crash)


if __name__ == "__main__":
    main(sys.argv[1])
