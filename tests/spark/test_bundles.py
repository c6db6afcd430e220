"""Which batches share a task."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.delta.schema import TableSchema
from mirrorlake.model.change import Marker
from mirrorlake.model.table import Schema
from mirrorlake.spark.bundles import ALONE, LANDED, STORED, packed
from mirrorlake.spark.task import CompactSpec, LandedPath, Spec, TaskSpec

SCHEMA = TableSchema(Schema(()), (), ())


def batch(landed: int, stored: int = 0, *, appends: bool = False) -> TaskSpec:
    return TaskSpec(
        "t",
        "/t",
        SCHEMA,
        ("id",),
        Marker.UPSERT,
        (LandedPath("1", "/1", landed),),
        truncate=False,
        files=({"size": stored},),
        appends=appends,
    )


SPECS = st.one_of(
    st.builds(
        batch,
        st.integers(0, 2 * LANDED),
        st.sampled_from([0, STORED - 1, STORED]),
        appends=st.booleans(),
    ),
    st.just(CompactSpec("t", "/t", SCHEMA, ("id",), ())),
)


@given(specs=st.lists(SPECS, max_size=20), slots=st.integers(1, 6))
def test_all_work_is_done_once_and_what_takes_long_by_itself(specs: list[Spec], slots: int) -> None:
    bundles = packed(specs, slots)
    assert sorted(index for some in bundles for index in some) == list(range(len(specs)))
    assert all(bundles)
    for some in bundles:
        if len(some) > 1:
            assert all(is_small(specs[index]) for index in some)
    shared = [index for index, spec in enumerate(specs) if is_small(spec)]
    assert len(bundles) == len(specs) - len(shared) + min(len(shared), slots)


def is_small(spec: Spec) -> bool:
    if not isinstance(spec, TaskSpec) or spec.appends:
        return False
    return spec.landed[0].size <= LANDED and int(spec.files[0]["size"]) < STORED


@given(sizes=st.lists(st.integers(0, LANDED), min_size=1, max_size=30), slots=st.integers(1, 4))
def test_tasks_of_small_batches_differ_by_one_batch_at_most(sizes: list[int], slots: int) -> None:
    bundles = packed([batch(size) for size in sizes], slots)
    weights = [sum(ALONE + sizes[index] for index in some) for some in bundles]
    assert max(weights) - min(weights) <= ALONE + LANDED


def test_ten_small_batches_take_two_tasks_of_two_slots() -> None:
    assert [len(some) for some in packed([batch(4_000)] * 10, 2)] == [5, 5]
