"""The scan in timestamp mode: which names are data files, and in which order they stand."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.landing.scan import Scanner
from mirrorlake.model.landed import FreeName
from mirrorlake.root import LANDING
from mirrorlake.storage.local import LocalStore
from tests.doubles.clock import SteppedClock
from tests.doubles.memory_store import File, MemoryStore
from tests.landing.zone import ZONE, name, only, put

BY_TIME = b"""{"keyColumns": ["id"], "fileDetectionStrategy": "LastUpdateTimeFileDetection",
    "isUpsertDefaultRowMarker": true}"""


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore(SteppedClock())
    put(store, "_metadata.json", content=BY_TIME)
    return store


def found(store: MemoryStore | LocalStore) -> list[str]:
    scan = only(Scanner(store))
    assert scan.error is None
    return [str(file.name) for file in scan.files]


@pytest.mark.clause("LZ-122", "LZ-341")
@pytest.mark.parametrize(
    "text",
    [
        "6f1c1e9c-9d7b-4d0e-8f0e-2f6d1c1f3a55.parquet",
        "20260128_093015_123456_000001.parquet",
        name(7),
        "orders 2026 (1).PARQUET",
        "a.b.c.parquet",
        "täglich-注文.parquet",
    ],
)
def test_any_name_with_the_extension_is_a_data_file(store: MemoryStore, text: str) -> None:
    put(store, text)
    assert found(store) == [text]


@pytest.mark.clause("LZ-021", "LZ-022", "LZ-024", "LZ-324", "LZ-339", "LZ-340")
def test_other_names_are_ignored(store: MemoryStore) -> None:
    ignored = [
        "_6f1c.parquet",
        "_6f1c.csv.temp",
        "6f1c.parquet.temp",
        "6f1c.parquet_TEMP",
        "_6f1c.parquet_TEMP",
        "_state.pkl",
        "state.xlsx",
        "x.csv.temp",
        "_schema.json",
        "state.json",
        "parquet",
        ".parquet",
        "xparquet",
    ]
    folders = ["_scratchPad/a.parquet", "_scratch/a.parquet", "_Temp/_temp_1.parquet"]
    folders += ["sub/b.parquet"]
    put(store, "x.parquet", *ignored, *folders)
    assert found(store) == ["x.parquet"]


@pytest.mark.clause("LZ-124")
def test_files_are_in_the_order_of_their_times(store: MemoryStore) -> None:
    for text in ("c", "a", "b"):
        put(store, f"{text}.parquet")
        store.files.clock.advance(0.001)
    assert found(store) == ["c.parquet", "a.parquet", "b.parquet"]


@pytest.mark.clause("LZ-125", "LZ-324")
@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, 1.0, 1.0000005, 2e9]), st.text("aAbä_9", min_size=1)),
        unique_by=lambda file: file[1],
        max_size=8,
    )
)
def test_equal_times_are_sorted_by_path(files: list[tuple[float, str]]) -> None:
    store = MemoryStore(SteppedClock())
    put(store, "_metadata.json", content=BY_TIME)
    for time, text in files:
        store.files.content[f"{ZONE}/t/x{text}.parquet"] = File(b"x", time, "e")
    expected = [f"x{text}.parquet" for _time, text in sorted(files)]
    assert found(store) == expected


def test_numbers_mean_nothing_and_two_may_be_equal(store: MemoryStore) -> None:
    put(store, name(2), name(9))
    store.files.clock.advance(1)
    put(store, name(2, "PARQUET"))
    assert found(store) == [name(2), name(9), name(2, "PARQUET")]


def test_moved_files_are_found_by_any_name(store: MemoryStore) -> None:
    put(store, "_FilesReadyToDelete/x.parquet", "_FilesReadyToDelete/_FilesReadyToDeleteInfo.json")
    assert [str(file.name) for file in only(Scanner(store)).moved()] == ["x.parquet"]


@pytest.mark.parametrize(
    "text", ["x" * 247 + ".parquet", "..parquet", "a\nb\x1b[2J.parquet", "é" * 123 + ".parquet"]
)
def test_hostile_names_stay_names_in_their_folder(tmp_path: Path, text: str) -> None:
    store = LocalStore(tmp_path)
    store.create(f"{LANDING}/t/_metadata.json", BY_TIME)
    (store.root / LANDING / "t" / text).write_bytes(b"x")
    (file,) = only(Scanner(store)).files
    assert (file.path, str(file.name)) == (f"{LANDING}/t/{text}", text)
    with store.open(file.path) as handle:
        assert handle.read() == b"x"


@given(st.text(), st.sampled_from(["parquet", "csv", "csv.gz", "TSV"]))
def test_a_free_name_is_the_text_and_its_extension(stem: str, extension: str) -> None:
    text = f"{stem}.{extension}"
    parsed = FreeName.parse(text, ("parquet", "csv", "csv.gz", "tsv"))
    if stem == "" or stem.startswith("_"):
        assert parsed is None
    else:
        assert parsed == FreeName(text, extension)
