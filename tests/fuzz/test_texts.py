"""Damaged delimited text of every form: rows or a clear error, and never anything else."""

from __future__ import annotations

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from tests.fuzz.apart import Apart
from tests.fuzz.inputs import landed_texts
from tests.fuzz.readers import both


@pytest.mark.fuzz
@given(landed_texts(), st.integers(0, 2))
def test_any_text_is_read_or_refused_by_both(
    apart: Apart, files: dict[str, bytes], threads: int
) -> None:
    """threads: 0 for a reader that takes the text in pieces."""
    outcomes, errors = apart.run(both, files, threads)
    (outcome,) = outcomes.values()
    event(outcome)
    assert errors or outcome == "rows"
