"""Which batches share a task."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.apply.task.batch import BatchTask
from mirrorlake.apply.task.landed_rows import LandedPath, LandedRows
from mirrorlake.apply.task_packing import ALONE, LANDED, STORED, packed
from mirrorlake.delta.schema import TableSchema
from mirrorlake.model.change import Marker
from mirrorlake.model.table import Schema

SCHEMA = TableSchema(Schema(()), (), ())


def batch(landed: int, stored: int = 0, *, appends: bool = False) -> BatchTask:
    return BatchTask(
        LandedRows("t", SCHEMA, ("id",), Marker.UPSERT),
        "/t",
        (LandedPath("1", "/1", landed),),
        truncate=False,
        files=({"size": stored},),
        appends=appends,
    )


BATCHES = st.builds(
    batch,
    st.integers(0, 2 * LANDED),
    st.sampled_from([0, STORED - 1, STORED]),
    appends=st.booleans(),
)


@given(batches=st.lists(BATCHES, max_size=20), slots=st.integers(1, 6))
def test_every_batch_is_packed_once_and_large_ones_alone(
    batches: list[BatchTask], slots: int
) -> None:
    tasks = packed(batches, slots)
    assert sorted(index for some in tasks for index in some) == list(range(len(batches)))
    assert all(tasks)
    for some in tasks:
        if len(some) > 1:
            assert all(is_small(batches[index]) for index in some)
    shared = [index for index, one in enumerate(batches) if is_small(one)]
    assert len(tasks) == len(batches) - len(shared) + min(len(shared), slots)


def is_small(task: BatchTask) -> bool:
    stored = int(task.files[0]["size"])
    return not task.appends and task.landed[0].size <= LANDED and stored < STORED


@given(sizes=st.lists(st.integers(0, LANDED), min_size=1, max_size=30), slots=st.integers(1, 4))
def test_tasks_of_small_batches_differ_by_one_batch_at_most(sizes: list[int], slots: int) -> None:
    tasks = packed([batch(size) for size in sizes], slots)
    weights = [sum(ALONE + sizes[index] for index in some) for some in tasks]
    assert max(weights) - min(weights) <= ALONE + LANDED


def test_ten_small_batches_take_two_tasks_of_two_slots() -> None:
    assert [len(some) for some in packed([batch(4_000)] * 10, 2)] == [5, 5]
