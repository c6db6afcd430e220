"""What a plan does about wider types where the project wants data files to keep theirs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirrorlake.delta.schema import may_widen
from mirrorlake.mirror.steps import AlterColumns
from mirrorlake.mirror.table.progress import Progress
from mirrorlake.model.change import Alteration
from mirrorlake.model.table import Schema
from mirrorlake.model.types import DataType, is_wider
from tests.mirror.planning import Situation, altering, columns, made

KNOWN = columns(id="integer", size="short", weight="float", note="string")
WIDER = columns(id="long", size="integer", weight="float", note="string")


def altered(found: Schema, progress: Progress | None = None, **given: bool) -> AlterColumns:
    told = Alteration()
    situation = Situation({2: altering(told, found)}, progress=progress or made(1, KNOWN), **given)
    planned = situation.plan()
    assert planned.error is None, planned.error
    (step,) = (step for step in planned.steps if isinstance(step, AlterColumns))
    return step


def test_data_files_keep_their_types_where_the_project_wants_it() -> None:
    assert altered(WIDER, widens=True).widened == {"id", "size"}
    assert altered(WIDER).widened == frozenset()


def test_all_columns_are_widened_or_none() -> None:
    """Files that have to be rewritten get all new types."""
    found = columns(id="long", size="integer", weight="double", note="string")
    step = altered(found, widens=True)
    assert (step.widened, set(step.types)) == (frozenset(), {"id", "size", "weight"})


def test_partition_columns_are_rewritten() -> None:
    partitioned = replace(made(1, KNOWN), partitions=("size",))
    assert altered(WIDER, partitioned, widens=True).widened == frozenset()


def test_partition_columns_that_are_renamed_at_once_are_rewritten() -> None:
    found = columns(id="long", width="integer", weight="float", note="string")
    told = Alteration({"width": "size"}, gone=("size",))
    properties = {"delta.enableDeletionVectors": "true"}
    partitioned = replace(made(1, KNOWN), partitions=("size",), properties=properties)
    situation = Situation(
        {2: altering(told, found)}, progress=partitioned, widens=True, renames=True
    )
    (step,) = (step for step in situation.plan().steps if isinstance(step, AlterColumns))
    assert (set(step.types), step.widened) == ({"id", "width"}, frozenset())


def test_tables_that_only_delta_can_write_are_left_to_it() -> None:
    delegated = replace(made(1, KNOWN), delegated="it has a constraint")
    assert altered(WIDER, delegated, widens=True).widened == frozenset()


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [
        ("long", "integer", True),
        ("integer", "short", True),
        ("integer", "long", False),
        ("double", "integer", False),
        ("double", "float", False),
        ("decimal(12,2)", "short", False),
        ("decimal(20,0)", "long", False),
        ("decimal(12,2)", "decimal(9,2)", True),
        ("decimal(12,4)", "decimal(9,2)", False),
        ("decimal(8,2)", "decimal(9,2)", False),
        ("long", "long", False),
        ("string", "integer", False),
    ],
)
def test_types_are_widened_that_every_reader_reads_right(
    new: str, old: str, *, expected: bool
) -> None:
    kinds = DataType.parse(new), DataType.parse(old)
    assert may_widen(*kinds) is expected
    assert is_wider(*kinds) or not expected
