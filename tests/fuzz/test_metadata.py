"""Damaged `_metadata.json` and `_partnerEvents.json`: rows, or a clear error."""

from __future__ import annotations

import pytest
from hypothesis import event, example, given

from tests.fuzz.apart import Apart
from tests.fuzz.inputs import described, partners
from tests.fuzz.readers import METADATA, PARTNER, both

TEXT = b"id,a\r\n1,x\r\n"
DATA = {f"{1:020d}.csv": TEXT, f"{2:020d}.tsv": TEXT.replace(b",", b"\t")}


@pytest.mark.fuzz
@given(described)
@example(b"[" * 100_000)
@example(b'{"keyColumns": ' + b"9" * 5_000 + b"}")
@example(b'{"keyColumns": ["\\ud800"]}')
def test_any_metadata_are_read_or_refused_by_both(apart: Apart, content: bytes) -> None:
    outcomes, errors = apart.run(both, {METADATA: content, **DATA})
    event(" ".join(sorted(set(outcomes.values()))))
    assert errors or set(outcomes.values()) <= {"rows"}


@pytest.mark.fuzz
@given(partners)
def test_whatever_the_partner_says_changes_nothing(apart: Apart, content: bytes) -> None:
    described = b'{"keyColumns": ["id"], "FileFormat": "CSV"}'
    outcomes, _errors = apart.run(both, {METADATA: described, PARTNER: content, **DATA})
    assert outcomes == {f"{1:020d}.csv": "rows"}
