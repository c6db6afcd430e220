"""The examples of the specification in every form in which publishers write Parquet."""

from __future__ import annotations

import pyarrow as pa
import pytest

from mirrorlake.storage.local import LocalStore
from tests.conformance.apply.examples import EXAMPLES, STAFF, Marked, employees
from tests.conformance.mirrored import Mirrored
from tests.doubles.handmade_engine import HandmadeReader, in_process_engine
from tests.histories import counted
from tests.reference import Row

FORMS = [
    pytest.param(kind, first, alone, id=f"{kind}-{'first' if first else 'last'}-{how}")
    for kind in (pa.int8(), pa.int32(), pa.int64(), pa.string())
    for first in (True, False)
    for alone, how in ((False, "one file"), (True, "a file per row"))
]


@pytest.mark.clause("LZ-314", "LZ-315", "LZ-337", "LZ-338")
@pytest.mark.parametrize(("kind", "first", "alone"), FORMS)
@pytest.mark.parametrize("together", [True, False], ids=["one commit", "a commit per file"])
@pytest.mark.parametrize(("rows", "result"), EXAMPLES.values(), ids=EXAMPLES)
def test_all_forms_of_changes_give_the_same_rows(
    store: LocalStore,
    kind: pa.DataType,
    first: bool,
    alone: bool,
    together: bool,
    rows: Marked,
    result: list[Row],
) -> None:
    staff = Mirrored(in_process_engine(store), store, HandmadeReader(store), STAFF).create()
    parts = [[row] for row in rows] if alone else [rows]
    landed = [employees(part, kind, marker_first=first) for part in parts]
    for batch in [landed] if together else [[file] for file in landed]:
        staff.apply(*batch)
    assert counted(staff.rows()) == counted(result)
