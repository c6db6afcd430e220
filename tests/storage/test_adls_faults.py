"""Whatever befalls its requests, a store on a data lake does what one in memory does."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mirrorlake.storage.store import Store
from tests.conformance.store import stage
from tests.doubles.clock import SteppedClock
from tests.doubles.dfs import DataLake, Fault, Seen
from tests.doubles.memory_store import MemoryStore
from tests.storage.azure_accounts import ROOT, Lake

PATHS = ["t/_1", "t/_2", "t/1", "t/2", "u/1"]
MISHAPS = [Fault.ANSWER_LOST, Fault.TIMED_OUT, Fault.REQUEST_LOST, Fault.BUSY]

path = st.sampled_from(PATHS)
content = st.sampled_from([b"", b"a", b"b", b"longer"])
pair = st.lists(path, min_size=2, max_size=2, unique=True)
mishaps = st.dictionaries(st.integers(1, 6), st.sampled_from(MISHAPS), max_size=3)
"""What befalls which request of a call; fewer than there are attempts."""

ACTS: dict[str, Callable[[Store, Any], object]] = {
    "stage": lambda store, a: stage(store, a[1], a[0]),
    "publish": lambda store, a: store.publish(*a),
    "create": lambda store, a: store.create(*a),
    "replace": lambda store, a: store.replace(*a),
    "move": lambda store, a: store.move(*a),
    "delete": lambda store, a: store.delete(a[0]),
    "delete_folder": lambda store, a: store.delete_folder(a[0].partition("/")[0]),
    "read": lambda store, a: store.read(a[0]),
    "list": lambda store, a: [(f.name, f.size) for f in store.list(a[0].partition("/")[0]).files],
}
TWO_PATHS = {"publish", "move"}


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, Any, dict[int, Fault]]:
    name = draw(st.sampled_from(sorted(ACTS)))
    arguments = draw(pair if name in TWO_PATHS else st.tuples(path, content))
    return name, arguments, draw(mishaps)


@given(script=st.lists(calls(), min_size=1, max_size=12), target_first=st.booleans())
@settings(max_examples=min(settings.default.max_examples // 4, 250))
def test_a_fault_does_not_change_the_outcome(
    data_lake: DataLake,
    script: list[tuple[str, Any, dict[int, Fault]]],
    target_first: bool,
) -> None:
    lake, model = Lake(data_lake), MemoryStore(SteppedClock())
    lake.tree.target_first = target_first
    for name, arguments, faults in script:
        plan(data_lake, faults)
        assert outcome(lake.store, name, arguments) == outcome(model, name, arguments)
        data_lake.faults.clear()
    nodes = lake.tree.nodes.items()
    files = {where: node.content for where, node in nodes if not node.is_folder}
    assert files == {f"{ROOT}/{where}": file.content for where, file in model.files.content.items()}


def plan(service: DataLake, faults: dict[int, Fault]) -> None:
    """Let each fault befall the request of its number, from now on."""
    for number, fault in faults.items():
        counted = itertools.count(1)

        def is_it(_seen: Seen, counted: Any = counted, number: int = number) -> bool:
            return next(counted) == number

        service.next(fault, is_it)


def outcome(store: Store, name: str, arguments: Any) -> object:
    try:
        return ACTS[name](store, arguments)
    except (FileExistsError, FileNotFoundError) as error:
        return type(error)
