"""Bad input of every kind in one bucket: each is a dead letter with a reason, the rest goes on."""

from __future__ import annotations

import base64
import gzip
import io
import json
import subprocess
import sys
import zlib
from pathlib import Path
from random import Random
from typing import Any

import fastavro
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mirrorlake.apply.events.journal import ReadFile
from tests.apply.events.bucket import Bucket
from tests.apply.events.bucket import event as change
from tests.apply.events.drawn_files import rows_of
from tests.events.decode.claims import (
    ENDLESS,
    NODE,
    beside,
    claimed_entries,
    claimed_value,
    deep,
    doubled,
)
from tests.events.decode.files import avro, event, schema
from tests.events.decode.test_hostile import PLAIN, block, of_schema, with_header
from tests.fuzz.inputs import harmed
from tests.profiles import ACTIVE, tries

GOOD = avro([event(n) for n in range(20)], sync_interval=500)
DEEP = "[" * 3_000 + "]" * 3_000
ZEROS = zlib.compressobj(9, wbits=-15)
BOMB = b"".join(ZEROS.compress(bytes(1 << 20)) for _part in range(300)) + ZEROS.flush()


def _recursive() -> bytes:
    """A payload that holds itself."""
    node = {
        "type": "record",
        "name": "node",
        "fields": [{"name": "next", "type": ["null", "node"]}],
    }
    return of_schema([{"name": "payload", "type": {"type": "record", "name": "p", "fields": [
        {"name": "id", "type": "long"}, {"name": "c", "type": ["null", node]}]}}])  # fmt: skip


FILES: dict[str, tuple[bytes, str]] = {
    "truncated.avro": (GOOD[:-40], "ends within block"),
    "header.avro": (GOOD[:60], "ends within the header"),
    "codec.avro": (with_header(json.dumps(schema()).encode(), "lzo"), "codec"),
    "sync.avro": (GOOD[:-16] + bytes(16), "sync marker"),
    "claims.avro": (claimed_entries(), "ends within the header"),
    "columns.avro": (of_schema([{"name": f"c{n}", "type": "int"} for n in range(30_000)]), "types"),
    "recursion.avro": (_recursive(), "column c: the record 'node' is no unified type"),
    "endless.avro": (beside(ENDLESS, b""), "event 1 of a block is nested too deep"),
    "nested.avro": (beside(NODE, deep(5_000)), "event 1 of a block is nested too deep"),
    "deep.avro": (
        with_header(b'{"type":"array","items":' * 5_000 + b'"int"' + b"}" * 5_000),
        "is not JSON: maximum recursion depth exceeded",
    ),
    "levels.avro": (
        with_header(b'{"type":"array","items":' * 200 + b'"int"' + b"}" * 200),
        "64 levels",
    ),
    "doubled.avro": (beside(doubled(31, "null"), b""), "200000 types"),
    "large.avro": (claimed_value(), "the header is larger than"),
    "bomb.avro": (
        with_header(json.dumps(schema()).encode(), "deflate") + block(5, BOMB),
        "do not fill",
    ),
    "billions.avro": (PLAIN + block(1 << 31, b"ab"), "says that it has"),
    "schema.avro": (with_header(json.dumps(schema()).encode() + b" " * (4 << 20)), "larger than"),
    "nothing.avro": (b"Obj\x01", "header"),
    "garbage.avro": (bytes(range(100, 256)) * 9, "it is no Avro file"),
    "text.avro": (b"no events\n" * 3, "it is no Avro file"),
    "packed.avro.gz": (gzip.compress(GOOD), "it is an Avro file inside gzip"),
    "garbage.avro.gz": (b"\xff" * 99, "it is no Avro file"),
    "unpacked.jsonl.gz": (b"\x1f\x8b and no gzip", "unpacked"),
}
"""Files of which nothing can be applied, and what their reason says."""


def _line(payload: str, **changed: Any) -> str:
    text = json.dumps(change(1, {"id": 1}, **changed))
    return text.replace('{"id": 1}', payload)


LINES: list[tuple[str | bytes, str]] = [
    (_line('{"id": 1, "id": 2}'), "twice"),
    (_line('{"id": 123456789012345678901234567890}'), "no LONG"),
    (_line('{"id": NaN}'), "no LONG"),
    (_line('{"id": 1e999999}'), "no LONG"),
    (_line('{"id": "1"}').encode().replace(b'"1"', b'"\xff\xfe"'), "not UTF-8"),
    (_line(f'{{"id": {DEEP}}}'), "nested too deep"),
    (_line('{"id": null}'), "null"),
    (_line("{}"), "no payload"),
    (_line('{"v": 1}'), "key column"),
    (json.dumps(change(1, {"id": 7}, "PUT")), "not known"),
    ('{"payload":', "not JSON"),
    ("[]", "not an object"),
    (_line(f'{{"id": 1, "v": [{"[]," * 1_000_000}[]]}}'), "values"),
]
"""Lines that are no event, and what their reason says."""


def _dead(bucket: Bucket) -> dict[str, ReadFile]:
    return {one.path.rpartition("/")[2]: one for one in bucket.consumer()._journal.dead}


@pytest.mark.clause("ST-253")
def test_an_object_as_a_key_does_not_decide_the_type_of_a_new_table(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    nested = [_line(f'{{"id": {value}}}') for value in ('{"a": 1}', "[1]", '{"a": 2}')]
    bucket.put("first.jsonl", *nested, change(2, {"id": 7}))
    bucket.cycle()
    (letters,) = (one.letters for one in _dead(bucket).values())
    assert {row for one in letters for row in one.rows} == {0, 1, 2}
    assert {one.reason for one in letters} == {
        "the value of its key column id is an object or array"
    }
    (row,) = rows_of(bucket.root / "Tables/public/orders")
    assert row["id"] == 7


@pytest.mark.clause("ST-110", "ST-111", "ST-178", "ST-253")
def test_each_kind_of_bad_input_is_a_dead_letter_and_everything_else_goes_on(
    tmp_path: Path,
) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("first.jsonl", change(1, {"id": 0}))
    bucket.cycle()
    for name, (content, _reason) in FILES.items():
        (bucket.folder / name).write_bytes(content)
    lines = [one if isinstance(one, bytes) else one.encode() for one, _reason in LINES]
    good = json.dumps(change(2, {"id": 5})).encode()
    (bucket.folder / "lines.jsonl").write_bytes(b"\n".join([*lines, good]) + b"\n")
    (bucket.folder / "empty.avro").write_bytes(b"")
    (bucket.folder / "key.jsonl").write_text(
        json.dumps(change(1, {"id": 1.5}, table="floats")) + "\n"
    )
    bucket.cycle()
    dead = _dead(bucket)
    assert dead.keys() - {"lines.jsonl"} == FILES.keys()
    for name, (_content, reason) in FILES.items():
        (letter,) = dead[name].letters
        assert letter.is_file
        assert letter.reason
        assert reason in letter.reason, (name, letter.reason)
    told = {row: one.reason for one in dead["lines.jsonl"].letters for row in one.rows}
    assert sorted(told) == list(range(len(LINES)))
    for number, (_text, reason) in enumerate(LINES):
        assert reason in told[number], (number, told[number])
    assert [row["id"] for row in bucket.plain()] == [0, 5]
    assert bucket.plain("public/floats") == [{"id": "1.5"}]  # a number as text may be a key


def test_lines_of_json_are_read_under_the_name_of_an_avro_file(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.avro", "", "", "", "", "", change(1, {"id": 1}))
    path = bucket.put("b.avro.gz")
    path.write_bytes(gzip.compress(f"{json.dumps(change(2, {'id': 2}))}\n".encode()))
    bucket.cycle()
    assert bucket.plain() == [{"id": 1}, {"id": 2}]
    assert _dead(bucket) == {}


def test_a_file_that_grows_while_it_is_read_is_read_again_and_has_no_dead_letters_then(
    tmp_path: Path,
) -> None:
    bucket = Bucket(tmp_path)
    whole = "".join(json.dumps(change(n, {"id": n})) + "\n" for n in range(1, 4))
    path = bucket.put("a.jsonl")
    for part in (len(whole) // 2, len(whole)):
        path.write_text(whole[:part])
        bucket.cycle()
    assert _dead(bucket) == {}
    assert [row["id"] for row in bucket.plain()] == [1, 2, 3]
    path = bucket.put("b.avro")
    for part in (len(GOOD) - 30, len(GOOD)):
        path.write_bytes(GOOD[:part])
        bucket.cycle(anew=True)
    assert _dead(bucket) == {}
    assert len(bucket.rows("ea_main/my_table")) == 20


@pytest.mark.fuzz
@settings(
    max_examples=4_000 if ACTIVE == "fuzz" else tries(40),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_any_harm_to_a_file_leaves_other_files_as_they_are(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    lines = "".join(json.dumps(event(n)) + "\n" for n in range(5)).encode()
    whole = data.draw(st.sampled_from([GOOD, avro([event(n) for n in range(5)], codec="deflate"),
                                       lines]))  # fmt: skip
    bucket = Bucket(tmp_path_factory.mktemp("fuzz"))
    suffix = "jsonl" if whole is lines else "avro"
    (bucket.folder / f"a.{suffix}").write_bytes(data.draw(harmed(whole)))
    bucket.put("b.jsonl", change(1, {"id": 1}))
    bucket.cycle()
    assert bucket.plain() == [{"id": 1}]
    assert bucket.cycle(anew=True) in {0, 1}  # a table that stops is tried again


_LARGE = """
import json, sys
from pathlib import Path
from mirrorlake.storage.store import Entry, Listing
from tests.apply.events.bucket import Bucket, event
folder = Path(sys.argv[1])
bucket = Bucket(folder)
with (bucket.folder / "large.jsonl").open("w") as file:
    for size in (1, (100 << 20) - 2_000, (100 << 20) + 2_000, 2):
        text = json.dumps(event(1, {"id": size, "v": "VALUE"}, uuid=str(size)))
        before, after = text.split("VALUE")
        file.write(before)
        for _part in range(size // 1_000):
            file.write("x" * 1_000)
        file.write("x" * (size % 1_000) + after + "\\n")
bucket.cycle()
consumer = bucket.consumer()
real = consumer._files.store.list
names = tuple(f"{n}.avro" for n in range(1_000_000))
empty = Listing(tuple(Entry(name, 0, 0.0, "e") for name in names), ())
consumer._files.store.list = lambda path: empty if path == "void" else Listing(
    real(path).files, (*real(path).folders, *(["void"] if not path else [])))
assert consumer.cycle() == 0
(dead,) = consumer._journal.dead
found = sorted(row["id"] for row in bucket.rows())
# Not ru_maxrss: after vfork and exec it may be the peak of the parent.
(peak,) = [int(line.split()[1]) // 1024 for line in open("/proc/self/status")
           if line.startswith("VmHWM")]
print(json.dumps([found, [one.rows for one in dead.letters], peak]))
"""


@pytest.mark.full
def test_events_of_a_hundred_megabytes_and_a_million_empty_files_take_less_than_a_gigabyte(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LARGE, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found, dead, peak = json.loads(done.stdout.splitlines()[-1])
    assert found == [1, 2, (100 << 20) - 2_000]
    assert dead == [[2]]
    assert peak < 1024


_CYCLE = """
import json, sys
from pathlib import Path
from mirrorlake.delta.log.table_log import TableLog
from tests.apply.events.bucket import Bucket
bucket = Bucket(Path(sys.argv[1]))
bucket.cycle()
(peak,) = [int(line.split()[1]) // 1024 for line in open("/proc/self/status")
           if line.startswith("VmHWM")]
dead = {one.path.rpartition("/")[2]: {letter.reason: [list(letter.rows), letter.count]
        for letter in one.letters} for one in bucket.consumer()._journal.dead}
print(json.dumps([peak, dead, {str(k): str(v) for k, v in bucket.errors.items()}]))
"""
MIB = 1 << 20


def _encoded(number: int, size: int) -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema()), _of_size(number, size))
    return body.getvalue()


def _of_size(number: int, size: int) -> dict[str, Any]:
    return event(number, payload={"id": number, "val": "x" * size}, log_position=number)


def _deflated(*sizes: int, first: int = 0) -> bytes:
    """A file with one deflated block of events."""
    packer = zlib.compressobj(1, wbits=-15)
    body = b"".join(packer.compress(_encoded(first + n, size)) for n, size in enumerate(sizes))
    head = with_header(json.dumps(schema()).encode(), "deflate")
    return head + block(len(sizes), body + packer.flush())


def _plain(*sizes: int) -> bytes:
    """A file with a block for each event."""
    return PLAIN + b"".join(block(1, _encoded(n, size)) for n, size in enumerate(sizes))


def _tiny() -> bytes:
    """As many events as a block may have, of one byte each."""
    empty = {"type": "record", "fields": []}
    fields = [{"name": "uuid", "type": "string"}]
    fields += [{"name": n, "type": empty | {"name": n}} for n in ("source_metadata", "payload")]
    return of_schema(fields) + block(1_000_000, bytes(1_000_000))


def _heavy_schema() -> bytes:
    """As large as a header may be, of what takes the most memory when it is parsed."""
    told = json.dumps(schema())[:-1] + ', "doc": ['
    return with_header((told + '{"":0},' * ((4 * MIB - len(told) - 99) // 7) + "0]}").encode())


KEY = "8" * 40


def _huge(  # noqa: PLR0911  (one per case)
    case: str,
) -> tuple[dict[str, bytes], dict[str, list[int] | None]]:
    """The files of a case, and the rows of their dead letters; None for all rows."""
    match case:
        case "blocks":
            return {f"{n}.avro": _deflated(*[MIB] * 126, first=n * 200) for n in range(2)}, {}
        case "events in blocks":
            sizes = 9, 100 * MIB - 999
            return {f"{n}.avro": _deflated(*sizes, first=n * 200) for n in range(2)}, {}
        case "events":
            sizes = 1, 100 * MIB - 999, 105 * MIB, 2, 140 * MIB, 3
            return {"a.avro": _plain(*sizes)}, {"a.avro": [2, 4]}
        case "texts":
            # Of random characters: what is written is as large as what is read.
            text = base64.b64encode(Random(1).randbytes(74 * MIB)).decode()
            body = io.BytesIO()
            one = event(7, payload={"id": 7, "val": text}, log_position=7)
            fastavro.schemaless_writer(body, fastavro.parse_schema(schema()), one)
            line = json.dumps(change(8, {"id": 8, "text": text}, table="texts"))
            files = {"a.avro": PLAIN + block(1, body.getvalue()), "b.jsonl": f"{line}\n".encode()}
            return files, {}
        case "events of packed blocks":
            files = {"a.avro": _deflated(5, 140 * MIB), "b.avro": _deflated(105 * MIB, 5, first=9)}
            return files, {"a.avro": [1], "b.avro": [0]}
        case "tiny":
            return {f"{n}.avro": _tiny() for n in range(2)}, {f"{n}.avro": None for n in range(2)}
        case "schemas":
            files = {f"{n}.avro": _heavy_schema() for n in range(4)}
            files[f"{KEY}_a_0_0_0.jsonl"] = b"{}\n"
            files[f"{KEY}.avsc"] = b"[" + b"{}," * (40 * MIB) + b"{}]"
            return files, {f"{KEY}_a_0_0_0.jsonl": [-1]}
        case "values":
            counts = 480_000, 480_000, 10_000_000
            start, end = b'{"payload": {"v": [', b"0]}}\n"
            lines = [start + b'{"":0},' * count + end for count in counts]
            files = {f"{n}.jsonl": line for n, line in enumerate(lines)}
            return files, {name: [0] for name in files}
        case "columns":
            named = (change(n, {"id": n, f"c{n}": n}) for n in range(9_000))
            lines = "".join(f"{json.dumps(one)}\n" for one in named)
            return {"a.jsonl": lines.encode()}, {"a.jsonl": [-1]}
        case _:
            return {"a.jsonl": b"1\n" * 2_000_000}, {"a.jsonl": None}


@pytest.mark.full
@pytest.mark.clause("ST-177", "ST-253")
@pytest.mark.parametrize("is_random", [True, False])
def test_an_update_of_a_value_of_a_hundred_megabytes_takes_less_than_a_gigabyte(
    tmp_path: Path, is_random: bool
) -> None:
    """With the row before, and what MySQL's keys remember of it."""
    bucket = Bucket(tmp_path)
    for number in (1, 2):
        some = Random(number).randbytes(74 * MIB if is_random else 1 * MIB)
        text = base64.b64encode(some * (1 if is_random else 74)).decode()
        line = json.dumps(change(number, {"id": 8, "text": text}))
        (bucket.folder / f"{number}.jsonl").write_text(f"{line}\n")
        done = subprocess.run(
            [sys.executable, "-c", _CYCLE, str(tmp_path)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        peak, dead, errors = json.loads(done.stdout.splitlines()[-1])
        assert (dead, errors) == ({}, {})
        assert [row["text"] == text for row in bucket.rows()] == [True]
        assert peak < 1024


@pytest.mark.full
@pytest.mark.clause("ST-177", "ST-253")
@pytest.mark.parametrize(
    "case",
    [
        "blocks",
        "events in blocks",
        "events",
        "texts",
        "events of packed blocks",
        "tiny",
        "schemas",
        "values",
        "columns",
        "lines",
    ],
)
def test_files_made_to_take_memory_take_less_than_a_gigabyte(tmp_path: Path, case: str) -> None:
    files, expected = _huge(case)
    bucket = Bucket(tmp_path)
    for name, content in files.items():
        (bucket.folder / name).write_bytes(content)
    bucket.put("good.jsonl", change(1, {"id": 1}))
    done = subprocess.run(
        [sys.executable, "-c", _CYCLE, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    peak, dead, errors = json.loads(done.stdout.splitlines()[-1])
    assert errors == {}
    assert bucket.plain() == [{"id": 1}]
    assert dead.keys() == expected.keys()
    for name, rows in expected.items():
        told = dead[name].values()
        if rows is None:
            assert sum(count for _rows, count in told) in {1_000_000, 2_000_000}
        else:
            assert sorted(row for own, _count in told for row in own) == rows
    assert peak < 1024
