"""Files that come late, broken, twice or not at all: their table waits, and then goes on."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.app.operated import Operated
from tests.app.zones import Zone

pytestmark = pytest.mark.clause("LZ-322")


@pytest.fixture
def mirror(tmp_path: Path) -> Operated:
    """An empty table beside one that is well."""
    mirror = Operated(tmp_path / "root")
    mirror.table("well", "a")
    mirror.zone.table("t", "id")
    return mirror


def numbers(mirror: Operated) -> list[int] | None:
    rows = mirror.rows("t")
    return None if rows is None else [row[0] for row in rows]


def codes(mirror: Operated) -> list[str]:
    return [error.code for error in mirror.once().errors]


def path_of(mirror: Operated, number: int, extension: str = "parquet") -> Path:
    return mirror.zone.folder("t") / f"{number:020d}.{extension}"


@pytest.mark.clause("LZ-117")
def test_1_2_4_and_then_3(mirror: Operated) -> None:
    for number in (1, 2, 4):
        mirror.land("t", number)
    assert codes(mirror) == ["missing_file"]
    assert numbers(mirror) == [1, 2]
    assert "file 3 is missing, 4 is waiting" in mirror.shown("t")["errorMessage"]
    mirror.land("t", 3)
    assert codes(mirror) == []
    assert numbers(mirror) == [1, 2, 3, 4]


@pytest.mark.clause("LZ-119")
def test_file_1_is_missing_and_then_comes(mirror: Operated) -> None:
    mirror.land("t", 2)
    assert codes(mirror) == ["missing_file"]
    assert "file 1 is missing, 2 is waiting" in mirror.shown("t")["errorMessage"]
    assert mirror.mirrored("t") is None
    mirror.land("t", 1)
    assert codes(mirror) == []
    assert numbers(mirror) == [1, 2]


@pytest.mark.clause("LZ-120")
def test_an_equal_number_twice_and_then_once(mirror: Operated) -> None:
    mirror.land("t", 1)
    path_of(mirror, 1, "csv").write_text("id,v\n1,a\n")
    assert codes(mirror) == ["duplicate_number"]
    path_of(mirror, 1, "csv").unlink()
    assert codes(mirror) == []
    assert numbers(mirror) == [1]


def whole(mirror: Operated) -> bytes:
    return mirror.land("t", 2).read_bytes()


@pytest.mark.clause("LZ-267", "LZ-268", "LZ-269", "LZ-276", "LZ-251", "LZ-259")
@pytest.mark.parametrize("broken", [b"", b"PAR1", "half", b"id,v\n2,a\n"], ids=str)
def test_a_broken_file_is_replaced_under_its_name(mirror: Operated, broken: bytes | str) -> None:
    good = whole(mirror)
    bad = good[: len(good) // 2] if isinstance(broken, str) else broken
    mirror.land("t", 1)
    mirror.land("t", 3)
    path_of(mirror, 2).write_bytes(bad)
    mirror.land("well", 2)
    with mirror.running() as loop:
        assert [error.code for error in loop.once().errors] == ["bad_file"]
        assert (numbers(mirror), mirror.rows("well")) == ([1], [(1, "a"), (2, "new")])
        assert path_of(mirror, 2).read_bytes() == bad
        path_of(mirror, 2).unlink()
        path_of(mirror, 2).write_bytes(good)
        assert not loop.once().errors
    assert numbers(mirror) == [1, 2, 3]


@pytest.mark.clause("LZ-141")
def test_a_file_without_rows_is_applied(mirror: Operated) -> None:
    mirror.land("t", 1)
    pq.write_table(pa.table({"id": pa.array([], pa.int64())}), path_of(mirror, 2))
    mirror.land("t", 3)
    assert codes(mirror) == []
    assert numbers(mirror) == [1, 3]
    table = mirror.mirrored("t")
    assert table is not None
    assert table.recorded == 3


@pytest.mark.clause("LZ-142")
def test_a_header_alone_is_applied(tmp_path: Path) -> None:
    zone = Zone(tmp_path / "root")
    zone.table("t", "id")
    for number, text in enumerate(["id,v\n", "id,v\n1,a\n", "id,v\n"], start=1):
        (zone.folder("t") / f"{number:020d}.csv").write_text(text)
    (report,) = zone.apply().tables.values()
    assert (report.error, report.last_file) == (None, 3)
    assert zone.rows("t") == [("1", "a")]


@pytest.mark.clause("LZ-271", "LZ-272")
def test_the_mirror_runs_while_one_table_has_failed(mirror: Operated) -> None:
    mirror.land("t", 2)
    with mirror.running() as loop:
        mirror.cycles(loop, 10)
        assert '"Running"' in (mirror.root / "Files/Monitoring/replicator.json").read_text()
        assert mirror.shown("t")["status"] == "Failed"
        mirror.land("t", 1)
        mirror.cycles(loop, 10)
        assert mirror.shown("t")["status"] == "Replicating"


@pytest.mark.clause("LZ-274")
def test_a_start_after_a_stop_goes_on_where_it_ended(mirror: Operated) -> None:
    for number in (1, 2, 3):
        mirror.land("t", number)
        mirror.once()
    table = mirror.mirrored("t")
    assert table is not None
    assert table.applied == [(1, 1), (2, 2), (3, 3)]
