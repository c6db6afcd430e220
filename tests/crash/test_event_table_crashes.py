"""What applies event files is killed at every durable step: nothing is lost, nothing twice."""

from __future__ import annotations

import signal
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.mirror.compaction.small_files import SMALLEST
from mirrorlake.model.crash_points import CrashPoint
from tests.apply.events.bucket import Bucket, event
from tests.apply.events.genuine import avro
from tests.crash.folded import folded
from tests.crash.forked import mirrorlake
from tests.profiles import some

pytestmark = pytest.mark.crash

POINTS = [CrashPoint.KEYS_WRITTEN, CrashPoint.EVENTS_COMMITTED, CrashPoint.EVENT_FILES_RECORDED]


def of_feed(bucket: Bucket) -> list[dict[str, Any]]:
    """What the feed of the table from its first version on makes of nothing."""
    rows = folded(bucket.root / "Tables/public/orders", ["id"], without=["datastream_metadata"])
    return sorted(rows, key=itemgetter("id"))


def applying(folder: Path, mode: str = "merge") -> Callable[..., int]:
    """Runs the program once on the bucket of a folder. Returns its exit code."""
    project = folder / "mirrorlake.yaml"
    project.write_text(
        f"name: t\nroot: ./lake\nsource: {{type: events, url: ./bucket, mode: {mode}}}\n"
    )

    def apply(**environment: str) -> int:
        command = ["apply", "--once", "--config", str(project)]
        return mirrorlake(*command, **environment).code

    return apply


@pytest.mark.parametrize("point", some(POINTS))
@pytest.mark.parametrize("mode", some(["merge", "append"]))
@pytest.mark.clause("ST-223")
def test_tables_are_right_although_their_consumer_is_killed(
    tmp_path: Path, point: CrashPoint, mode: str
) -> None:
    bucket = Bucket(tmp_path)
    apply = applying(tmp_path, mode)
    changes = [
        [event(1, {"id": 1, "v": 1}), event(2, {"id": 2, "v": 2})],
        [event(3, {"id": 1, "v": 3}, "UPDATE"), event(4, {"id": 2}, "DELETE")],
        [event(5, {"id": 3, "v": 5}), event(2, {"id": 2, "v": 2})],
    ]
    for number, events in enumerate(changes):
        bucket.put(f"{number}.jsonl", *events)
        assert apply(CRASH_AT=point) == -signal.SIGKILL
    assert apply() == 0
    rows = bucket.plain()
    if mode == "merge":
        assert of_feed(bucket) == rows
        assert rows == [{"id": 1, "v": 3}, {"id": 3, "v": 5}]
    else:
        assert sorted((row["id"], row["v"] or 0) for row in rows) == [
            (1, 1),
            (1, 3),
            (2, 0),
            (2, 2),
            (3, 5),
        ]


@pytest.mark.parametrize(
    "point", some([CrashPoint.COLUMNS_WRITTEN, CrashPoint.COLUMNS_ALTERED, CrashPoint.KEYS_WRITTEN])
)
@pytest.mark.clause("ST-223", "ST-262")
def test_a_column_gets_its_wider_type_although_the_consumer_is_killed(
    tmp_path: Path, point: CrashPoint
) -> None:
    bucket, apply = Bucket(tmp_path), applying(tmp_path)
    bucket.put("a.avro").write_bytes(avro([event(n, {"id": n, "v": n}) for n in (2, 3)], id="int"))
    bucket.cycle()
    wide = [event(4, {"id": 2**40, "v": 4}), event(1, {"id": 2, "v": 1}, "UPDATE")]
    bucket.put("b.avro").write_bytes(avro(wide, id="long"))
    assert apply(CRASH_AT=point) == -signal.SIGKILL
    bucket.put("c.avro").write_bytes(avro([event(5, {"id": 3, "v": 5}, "UPDATE")], id="int"))
    assert apply() == 0
    rows = [{"id": 2, "v": 2}, {"id": 3, "v": 5}, {"id": 2**40, "v": 4}]
    assert bucket.plain() == sorted(rows, key=repr)
    altered = [
        version for version in bucket.log().versions() if version and metadata_of(bucket, version)
    ]
    assert altered == [1]


def metadata_of(bucket: Bucket, version: int) -> bool:
    """Whether a commit changes what the table says of its columns."""
    return any("metaData" in action for action in bucket.log().actions(version))


@pytest.mark.parametrize(
    "point", some([CrashPoint.FILES_COMPACTED, CrashPoint.COMPACTION_COMMITTED])
)
def test_a_table_is_as_it_was_although_its_compaction_is_killed(
    tmp_path: Path, point: CrashPoint
) -> None:
    bucket, apply = Bucket(tmp_path), applying(tmp_path)
    for number in range(1, SMALLEST):
        bucket.put(f"{number}.jsonl", event(number, {"id": number}))
        bucket.cycle()
    assert len(bucket.log().snapshot().files) == SMALLEST - 1
    bucket.put("last.jsonl", event(SMALLEST, {"id": SMALLEST}))
    assert apply(CRASH_AT=point) == -signal.SIGKILL
    is_committed = point is CrashPoint.COMPACTION_COMMITTED
    assert len(bucket.log().snapshot().files) == (1 if is_committed else SMALLEST)
    assert of_feed(bucket) == [{"id": number} for number in range(1, SMALLEST + 1)]
    bucket.put("later.jsonl", event(SMALLEST + 1, {"id": SMALLEST + 1}))
    assert apply() == 0
    assert sorted(row["id"] for row in bucket.plain()) == [*range(1, SMALLEST + 2)]
    assert len(bucket.log().snapshot().files) == (2 if is_committed else 1)
    assert of_feed(bucket) == [{"id": number} for number in range(1, SMALLEST + 2)]
