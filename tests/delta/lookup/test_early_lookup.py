"""A lookup that begins early finds for some keys what one for them finds."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.delta.lookup.early_lookup import EarlyLookup
from mirrorlake.delta.lookup.key_lookup import KeyedRows
from mirrorlake.delta.write.rewrite import searcher
from mirrorlake.model import types
from tests.delta.handmade import HandmadeTable
from tests.delta.lookup.test_key_lookup import filled
from tests.histories import Shape

SHAPE = Shape.of(["region", "id"], region=types.STRING, id=types.LONG, v=types.STRING)
KEYS = [(region, number) for region in ("a", None) for number in (1, 2, 3, None)]


def keys_of(chosen: list[tuple[str | None, int | None]]) -> pa.Table:
    return SHAPE.arrow([(*key, None) for key in chosen]).select(["region", "id"])


def facts(found: KeyedRows, keys: pa.Table) -> list[tuple[object, ...]]:
    """Each row with its key and its place."""
    matches = found.matches
    paths = [found.searched[index]["path"] for index in matches.file.tolist()]
    of_key = keys.take(pa.array(matches.code)).to_pylist()
    rows = matches.rows.to_pylist()
    return sorted(zip(map(repr, of_key), map(repr, rows), paths, matches.row.tolist(), strict=True))


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> HandmadeTable:
    path: Path = tmp_path_factory.mktemp("early")
    made = HandmadeTable(path / "table", SHAPE.schema)
    # A key without a row, others with several, and a row that is deleted.
    first = [(*key, f"first {key}") for key in KEYS[1:]]
    return filled(made, SHAPE, [(first, [2]), ([(*key, "more") for key in KEYS[2:5]], [])])


@given(
    early=st.lists(st.sampled_from(KEYS), unique=True),
    needed=st.lists(st.sampled_from(KEYS), unique=True),
)
def test_of_any_keys_an_early_lookup_finds_what_a_later_one_finds(
    table: HandmadeTable,
    early: list[tuple[str | None, int | None]],
    needed: list[tuple[str | None, int | None]],
) -> None:
    keys = keys_of(needed)
    search = searcher(table.path, table.files, table.schema, 1)
    with ThreadPoolExecutor(1) as pool:
        lookup = EarlyLookup(search, pool.submit(keys_of, early), pool)
        assert facts(lookup(keys), keys) == facts(search(keys), keys)
