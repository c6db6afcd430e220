"""A broken zone for each rule of the linter: what is done to a clean one."""

from __future__ import annotations

import datetime as dt
import gzip
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from mirrorlake.lint import Profile
from tests.landing.files import date_on_int64, encoded
from tests.lint.zones import CHANGES, COLUMNS, ROWS, STRICT, TEXT, V1, V2, Zone, marked

Build = Callable[[Zone], Any]
T = "orders"
_NOON = dt.datetime(2026, 1, 1, 12)  # noqa: DTZ001  without a zone, as the clause has it


@dataclass(frozen=True)
class Case:
    """Something done to a clean zone, and the one rule that it breaks, with notes of others."""

    rule: str
    build: Build
    profile: Profile = V2
    notes: tuple[str, ...] = ()


def _move(zone: Zone, path: str, target: str) -> None:
    (zone.path / target).parent.mkdir(parents=True, exist_ok=True)
    (zone.path / path).rename(zone.path / target)


def _number(number: int, extension: str = "parquet") -> str:
    return f"{number:020d}.{extension}"


def _columns(**columns: Any) -> Build:
    """A third file of changes with further columns in it, in a table that only has these."""

    def build(zone: Zone) -> None:
        zone.describe("t", keyColumns=["id"])
        zone.land("t", 1, pa.table({"id": [1, 2], **columns}))

    return build


def _described(**members: Any) -> Build:
    return lambda zone: zone.describe(T, **({"keyColumns": ["id"]} | members))


def _raw(text: str | bytes) -> Build:
    return lambda zone: zone.put(f"{T}/_metadata.json", text)


def _properties(**members: Any) -> Build:
    return _described(FileExtension="csv", FileFormatTypeProperties=members)


def _declared(*columns: Any) -> Build:
    return _described(FileExtension="csv", SchemaDefinition={"Columns": list(columns)})


def _partner(text: str) -> Build:
    return lambda zone: zone.put("_partnerEvents.json", text)


def _changes(markers: Any, columns: Any = CHANGES) -> Build:
    return lambda zone: zone.change(T, 3, columns, markers)


def _timed(*files: tuple[str, int]) -> Build:
    """A table that is read by time; files with their times in seconds."""

    def build(zone: Zone) -> None:
        zone.describe("t", keyColumns=["id"], fileDetectionStrategy="LastUpdateTimeFileDetection")
        for name, time in files:
            file = zone.put(f"t/{name}", encoded(ROWS))
            os.utime(file, (time, time))

    return build


# -- folders and names -------------------------------------------------------------------------


def _layout() -> Iterator[Case]:
    yield Case("LZ-006/name-not-a-table", lambda z: z.put("a\\b/_metadata.json", b"{}"))
    yield Case("LZ-006/name-not-a-table", lambda z: (z.path / os.fsdecode(b"latin-\xe9")).mkdir())
    yield Case("LZ-006/names-alike", _alike)
    yield Case("LZ-006/control-character", _control)
    yield Case("LZ-007/link", lambda z: (z.path / "away").symlink_to("/"))
    yield Case("LZ-007/link", lambda z: (z.path / T / _number(3)).symlink_to(_number(1)))
    yield Case("LZ-008/path-of-v1", _v1_path)
    yield Case("LZ-009/two-zones", lambda z: (z.root / "LandingZone").mkdir())
    yield Case("LZ-013/schema-without-name", lambda z: _move(z, T, f".schema/{T}"))
    yield Case("LZ-013/schema-suffix-case", lambda z: _move(z, T, f"North.SCHEMA/{T}"))
    yield Case("LZ-016/schema-folder-with-files", lambda z: z.describe("Sales.schema"))
    yield Case("LZ-016/schema-in-schema", lambda z: _move(z, T, "Sales.schema/North.schema"))
    yield Case("LZ-019/table-beside-schema", lambda z: _move(z, T, "Sales"))
    yield Case("LZ-021/table-with-underscore", lambda z: _move(z, T, f"_{T}"))
    yield Case("LZ-021/table-with-underscore", lambda z: _move(z, T, f"Sales.schema/_{T}"))
    yield Case("LZ-021/metadata-at-wrong-level", lambda z: z.put("_metadata.json", b"{}"))
    yield Case("LZ-025/file-outside-tables", lambda z: z.put(_number(1), encoded(ROWS)))
    yield Case("LZ-025/file-outside-tables", lambda z: z.put("Sales.schema/a.parquet", b"x"))
    yield Case("LZ-278/many-tables", _many, STRICT)


def _alike(zone: Zone) -> None:
    zone.describe("Orders", keyColumns=["id"])
    zone.land("Orders", 1, ROWS)


def _control(zone: Zone) -> None:
    zone.describe("or\tders", keyColumns=["id"])
    zone.land("or\tders", 1, ROWS)


def _v1_path(zone: Zone) -> None:
    zone.path.rename(zone.root / "LandingZone")
    zone.path.parent.rmdir()


def _many(zone: Zone) -> None:
    file = encoded(ROWS)
    for number in range(1_000):
        zone.describe(f"t{number}", keyColumns=["id"])
        zone.put(f"t{number}/{_number(1)}", file)


# -- metadata ----------------------------------------------------------------------------------


def _metadata() -> Iterator[Case]:
    yield Case("LZ-029/metadata-absent", lambda z: (z.path / T / "_metadata.json").unlink())
    yield Case("LZ-029/metadata-absent", lambda z: (z.path / "empty").mkdir())
    yield Case("LZ-030/metadata-no-object", _raw('["id"]'))
    yield Case("LZ-031/key-columns-no-array", _described(keyColumns="id"))
    yield Case("LZ-031/key-columns-no-array", _described(keyColumns=[1]))
    yield Case("LZ-032/key-column-twice", _described(keyColumns=["id", "id"]))
    yield Case("LZ-033/member-of-v2", _v2_member, V1)
    yield Case("LZ-034/no-key", _no_key)
    yield Case("LZ-047/unknown-detection", _described(fileDetectionStrategy="Timestamp"))
    yield Case("LZ-048/upsert-default-no-boolean", _described(isUpsertDefaultRowMarker="true"))
    yield Case("LZ-050/member-twice", _raw('{"keyColumns": ["id"], "keyColumns": ["id"]}'))
    yield Case("LZ-051/unknown-member", _described(protocolVersion=1))
    yield Case("LZ-053/member-spelling", _raw('{"KeyColumns": ["id"]}'))
    yield Case("LZ-053/metadata-not-strict", _raw('{"keyColumns": ["id"], }'))
    yield Case("LZ-053/metadata-not-strict", _raw('{"keyColumns": ["id"], }'), STRICT)
    yield Case("LZ-053/metadata-not-strict", _raw(b'\xef\xbb\xbf{"keyColumns": ["id"]}'))
    yield Case("LZ-054/metadata-unreadable", _raw('{"keyColumns": ["id"'))
    yield Case("LZ-054/metadata-unreadable", _raw(b'{"keyColumns": ["\xff"]}'))
    yield Case("LZ-054/metadata-unreadable", _described(mirrorlake={"format": "999"}))
    yield Case("LZ-057/many-key-columns", _many_keys)
    yield Case("LZ-058/conditional-update", _described(ConditionalUpdateColumn="seqNum"))
    yield Case("LZ-059/partitions", _described(isPartitionEnabled="true"))


def _v2_member(zone: Zone) -> None:
    zone.describe("t", keyColumns=["id"], isUpsertDefaultRowMarker=False)
    zone.land("t", 1, marked(ROWS, [0, 0, 0], first=True))


def _no_key(zone: Zone) -> None:
    zone.describe("t", keyColumns=[])
    zone.land("t", 1, ROWS)


def _many_keys(zone: Zone) -> None:
    zone.describe("t", keyColumns=list("abcde"))
    zone.land("t", 1, {name: [1] for name in "abcde"})


def _partners() -> Iterator[Case]:
    yield Case("LZ-060/partner-events-absent", lambda z: (z.path / "_partnerEvents.json").unlink())
    at_table, at_schema = f"{T}/_partnerEvents.json", "Sales.schema/_partnerEvents.json"
    yield Case("LZ-062/partner-events-at-wrong-level", lambda z: z.put(at_table, "{}"))
    yield Case("LZ-062/partner-events-at-wrong-level", lambda z: z.put(at_schema, "{}"))
    yield Case("LZ-063/partner-events-members", _partner('{"partnerName": 7}'))
    yield Case("LZ-063/partner-events-members", _partner('{"partnerName": "a", "sourceInfo": {}}'))
    yield Case("LZ-067/partner-events-invalid", _partner('{"partnerName": '))
    yield Case("LZ-067/partner-events-invalid", _partner("[]"))


# -- columns and rows --------------------------------------------------------------------------


def _columns_and_keys() -> Iterator[Case]:
    yield Case("LZ-046/key-column-missing", _described(keyColumns=["no"]))
    yield Case("LZ-069/like-marker", _columns(rowMarker=[1, 2]))
    yield Case("LZ-069/name-reserved", _columns(__marker=[1, 2]))
    yield Case("LZ-070/marker-not-first", lambda z: z.change(T, 3, CHANGES), V1)
    yield Case("LZ-071/marker-not-last", lambda z: z.land(T, 3, marked(CHANGES, first=True)))
    yield Case("LZ-084/marker-type", _changes(pa.array([1.0, 2.0, 0.0])))
    yield Case("LZ-086/marker-misspelt", _columns(__rowmarker__=[1, 2]))
    yield Case("LZ-156/names-alike", _columns(Name=["a", "b"], name=["a", "b"]))
    yield Case("LZ-156/name-empty", _columns(**{"": [1, 2]}))
    yield Case("LZ-156/key-case", _described(keyColumns=["ID"]))
    yield Case("LZ-156/key-case", _described(keyColumns=["ID"]), STRICT)
    yield Case("LZ-256/floating-key", _floating)
    yield Case("LZ-264/feed-column", _columns(_change_type=["a", "b"]))


def _floating(zone: Zone) -> None:
    zone.describe("t", keyColumns=["id"])
    zone.land("t", 1, {"id": [1.5, 2.5]})


def _rows() -> Iterator[Case]:
    yield Case("LZ-043/change-without-key", _keyless, notes=("LZ-034/no-key",))
    yield Case("LZ-044/upsert-without-key", _keyless_upsert, notes=("LZ-034/no-key",))
    twice = ROWS | {"id": [7, 8, 7]}
    yield Case("LZ-077/inserted-twice", _changes([0, 0, 0], twice))
    for marker in (3, 5, None, -1):
        yield Case("LZ-085/marker-unknown", _changes([1, marker, 0]))
    yield Case("LZ-085/marker-unknown", _changes(pa.array(["1", "x", "0"])))
    yield Case("LZ-100/update-of-nothing", _changes([2, 1, 0]))
    yield Case("LZ-100/update-of-nothing", _changes([2, 4, 0]))
    yield Case(
        "LZ-151/value-does-not-fit", _columns(at=pa.array([1, 1 << 62], pa.timestamp("ms", "UTC")))
    )
    yield Case("LZ-257/null-key", _changes([0, 0, 0], ROWS | {"id": [7, None, 8]}))
    yield Case("LZ-257/null-key", _changes([0, 0, 0], ROWS | {"id": [7, None, 8]}), STRICT)


def _keyless(zone: Zone) -> None:
    zone.describe("t")
    zone.change("t", 1, ROWS, [0, 0, 1])


def _keyless_upsert(zone: Zone) -> None:
    zone.describe("t", isUpsertDefaultRowMarker=True)
    zone.land("t", 1, ROWS)


def _evolution() -> Iterator[Case]:
    yield Case("LZ-090/initial-without-marker", _unmarked_first, V1)
    yield Case("LZ-092/initial-with-marker", _marked_first)
    narrow = {"id": [1, 2], "name": ["a", "b"]}
    yield Case("LZ-100/update-lacks-columns", _changes([1, 1], narrow))
    yield Case("LZ-100/update-lacks-columns", _changes([4, 0], narrow))
    yield Case("LZ-107/marker-dropped", lambda z: z.land(T, 3, ROWS | {"id": [7, 8, 9]}))
    yield Case("LZ-217/required-column-absent", _without_required)
    yield Case("LZ-214/column-dropped", _changes([0, 2], narrow))
    yield Case("LZ-221/type-changed", _changes([1, 1, 1], ROWS | {"name": [1, 2, 3]}))
    yield Case(
        "LZ-221/type-changed",
        _changes([1, 1, 1], ROWS | {"id": pa.array([1, 2, 3], pa.int32())}),
    )
    yield Case("LZ-223/type-widened", _widened)
    renamed = {"id": [1, 2], "name": ["a", "b"], "town": ["x", "y"]}
    yield Case("LZ-226/column-renamed", _changes([1, 1], renamed))


def _unmarked_first(zone: Zone) -> None:
    zone.describe("t", keyColumns=["id"])
    zone.land("t", 1, ROWS)


def _marked_first(zone: Zone) -> None:
    zone.describe("t", keyColumns=["id"])
    zone.change("t", 1, ROWS, [0, 0, 0])


def _widened(zone: Zone) -> None:
    zone.describe("t", keyColumns=["id"])
    zone.land("t", 1, {"id": [1], "n": pa.array([1], pa.int32())})
    zone.change("t", 2, {"id": [1], "n": pa.array([1], pa.int64())}, [1])


# -- files and numbers -------------------------------------------------------------------------


def _sequence() -> Iterator[Case]:
    moved = f"{T}/_FilesReadyToDelete"
    yield Case("LZ-023/other-file", lambda z: z.put(f"{T}/readme.txt", b"x"))
    yield Case("LZ-023/data-without-number", lambda z: z.put(f"{T}/part-0.parquet", b"x"))
    yield Case("LZ-024/subfolder", lambda z: z.land(f"{T}/2026", 1, ROWS))
    yield Case("LZ-059/partition-folder", lambda z: z.land(f"{T}/Day=20260128", 1, ROWS))
    for name in ("3.parquet", f"{3:019d}.parquet", f"{3:021d}.parquet"):
        yield Case("LZ-112/number-of-digits", lambda z, name=name: z.put(f"{T}/{name}", b"x"))
    yield Case("LZ-114/number-zero", lambda z: z.land(T, 0, ROWS))
    yield Case("LZ-117/number-missing", lambda z: z.change(T, 4, CHANGES))
    yield Case("LZ-117/number-missing", _gap_after_cleanup)
    yield Case("LZ-119/first-missing", _first_missing)
    yield Case("LZ-121/number-reused", lambda z: z.land(moved, 1, ROWS))
    yield Case("LZ-122/names-without-numbers", _unnumbered)
    yield Case("LZ-123/name-reused", _name_reused)
    yield Case("LZ-125/times-equal", _timed(("a.parquet", 9), ("b.parquet", 9)))
    yield Case("LZ-128/changes-without-order", _unordered)
    yield Case("LZ-131/temporary-name", lambda z: z.put(f"{T}/{_number(3)}.temp", b"x"))
    yield Case("LZ-023/other-file", lambda z: z.put(f"{T}/a\\b.parquet", b"x"))
    yield Case("LZ-131/temporary-name", lambda z: z.put(f"{T}/{_number(3)}_TEMP", b"x"))
    yield Case("LZ-131/upload-left", lambda z: z.put(f"{T}/_{_number(3)}", b"x"))
    yield Case("LZ-158/extension-unknown", lambda z: z.put(f"{T}/{_number(3, 'tsv')}", b"x"))
    yield Case("LZ-210/not-a-landing-format", lambda z: z.put(f"{T}/{_number(3, 'json')}", b"x"))
    yield Case("LZ-210/not-a-landing-format", lambda z: z.put(f"{T}/book.xlsx", b"x"))
    yield Case("LZ-248/cleanup-record", _cleanup_record)
    yield Case("LZ-275/no-data-file", lambda z: z.describe("t", keyColumns=["id"]))
    yield Case("LZ-275/no-data-file", lambda z: z.describe("t", keyColumns=["id"]), STRICT)


def _gap_after_cleanup(zone: Zone) -> None:
    """Number 1 was processed, and 2 is neither there nor in the cleanup folder."""
    _move(zone, f"{T}/{_number(1)}", f"{T}/_FilesReadyToDelete/{_number(1)}")
    _move(zone, f"{T}/{_number(2)}", f"{T}/{_number(3)}")


def _first_missing(zone: Zone) -> None:
    zone.describe("t", keyColumns=["id"])
    zone.land("t", 2, ROWS)


def _unnumbered(zone: Zone) -> None:
    zone.describe("t", keyColumns=["id"])
    zone.put("t/part-0.parquet", encoded(ROWS))


def _unordered(zone: Zone) -> None:
    zone.describe("t", keyColumns=["id"], fileDetectionStrategy="LastUpdateTimeFileDetection")
    zone.put("t/a.parquet", encoded(marked(CHANGES)))


def _name_reused(zone: Zone) -> None:
    _timed(("a.parquet", 9))(zone)
    zone.put("t/_FilesReadyToDelete/a.parquet", encoded(ROWS))


def _cleanup_record(zone: Zone) -> None:
    _move(zone, f"{T}/{_number(1)}", f"{T}/_FilesReadyToDelete/{_number(1)}")
    zone.put(f"{T}/_FilesReadyToDelete/_FilesReadyToDeleteInfo.json", b"{}")


# -- Parquet -----------------------------------------------------------------------------------


def _parquet() -> Iterator[Case]:
    unchecked = encoded(marked(CHANGES), write_page_checksum=False)
    yield Case("LZ-133/no-checksums", lambda z: z.put(f"{T}/{_number(3)}", unchecked))
    for codec in ("brotli", "lz4"):
        yield Case("LZ-145/codec", _codec(codec))
        yield Case("LZ-145/codec", _codec(codec), STRICT)
    yield Case("LZ-147/type-unsupported", _columns(wait=pa.array([1, 2], pa.duration("us"))))
    wide = pa.array([Decimal(1), Decimal(2)], pa.decimal256(40, 0))
    yield Case("LZ-147/type-unsupported", _columns(amount=wide))
    yield Case("LZ-147/type-absent", _columns(note=pa.nulls(2)))
    yield Case("LZ-148/complex-type", _columns(tags=[["a"], []]))
    yield Case("LZ-148/complex-type", _columns(location=[{"x": 1}, {"x": 2}]))
    pairs = pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int32()))
    yield Case("LZ-148/complex-type", _columns(pairs=pairs))
    yield Case("LZ-150/physical-type", _date_on_int64)
    yield Case("LZ-152/timestamp-without-zone", _columns(at=[_NOON] * 2))
    yield Case("LZ-152/timestamp-without-zone", _int96)
    yield Case("LZ-153/time-as-text", _columns(at=[dt.time(12), dt.time(13)]))
    for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()):
        yield Case("LZ-154/unsigned", _columns(n=pa.array([1, 2], kind)))
    yield Case("LZ-158/not-parquet", lambda z: z.put(f"{T}/{_number(3)}", "id,name\n1,a\n"))
    yield Case("LZ-267/refused", _later_footer)
    yield Case("LZ-276/zero-bytes", lambda z: z.put(f"{T}/{_number(3)}"))
    whole = encoded(ROWS)
    for length in (5, 100, len(whole) - 1):
        yield Case(
            "LZ-276/incomplete",
            lambda z, length=length: z.put(f"{T}/{_number(3)}", whole[:length]),
        )
    yield Case("LZ-276/incomplete", _damaged_page)


def _without_required(zone: Zone) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("total", pa.int64(), nullable=False)])
    zone.describe("t", keyColumns=["id"])
    zone.land("t", 1, pa.table({"id": [1, 2], "total": [3, 4]}, schema=schema))
    zone.land("t", 2, marked({"id": [3]}, [0]))


def _codec(codec: str) -> Build:
    return lambda zone: zone.land(T, 3, marked(CHANGES), compression=codec)


def _date_on_int64(zone: Zone) -> None:
    zone.describe("t", keyColumns=["id"])
    zone.put(f"t/{_number(1)}", date_on_int64())


def _int96(zone: Zone) -> None:
    zone.describe("t", keyColumns=["id"])
    columns = {"id": [1, 2], "at": [_NOON] * 2}
    zone.land("t", 1, pa.table(columns), use_deprecated_int96_timestamps=True)


def _later_footer(zone: Zone) -> None:
    table = marked(CHANGES).replace_schema_metadata({"mirrorlake.format": "999"})
    zone.land(T, 3, table)


def _damaged_page(zone: Zone) -> None:
    zone.describe("t", keyColumns=["id"])
    file = zone.land("t", 1, {"id": list(range(1_000))}, compression="zstd")
    content = bytearray(file.read_bytes())
    content[40:400] = bytes(360)
    file.write_bytes(content)


# -- what the metadata say of text -------------------------------------------------------------


def _text_members() -> Iterator[Case]:
    yield Case("LZ-161/no-header", _properties(FirstRowAsHeader=False))
    yield Case("LZ-161/no-header", _properties(FirstRowAsHeader="no"))
    yield Case("LZ-162/RowSeparator-unknown", _properties(RowSeparator=";"))
    yield Case("LZ-163/ColumnSeparator-unknown", _properties(ColumnSeparator="~"))
    yield Case("LZ-164/QuoteCharacter-unknown", _properties(QuoteCharacter="|"))
    yield Case("LZ-165/EscapeCharacter-unknown", _properties(EscapeCharacter="%"))
    yield Case("LZ-166/null-value-no-text", _properties(NullValue=0))
    for encoding in ("unicode", "base64", "undefined", "punycode", 8):
        yield Case("LZ-167/encoding-unknown", _properties(Encoding=encoding))
    yield Case("LZ-169/format-unknown", _described(FileFormat="text"))
    tab = {"ColumnSeparator": "\t"}
    told = {"FileExtension": "tsv", "FileFormatTypeProperties": tab}
    yield Case("LZ-169/format-of-extension", _described(FileFormat="CSV", **told))
    yield Case("LZ-169/format-of-extension", _described(FileFormat="CSV", **told), STRICT)
    yield Case("LZ-170/extension-absent", _described(FileFormat="DelimitedText"))
    yield Case("LZ-170/extension-absent", _described(FileExtension="a/b"))
    yield Case(
        "LZ-171/properties-no-object", _described(FileExtension="csv", FileFormatTypeProperties=",")
    )
    yield Case("LZ-171/unknown-property", _properties(Separator=";"))
    yield Case("LZ-172/schema-definition", _described(SchemaDefinition=[]))
    column = {"Name": "id", "DataType": "Int32"}
    yield Case("LZ-172/schema-definition", _declared(column, column))
    yield Case("LZ-172/schema-definition", _declared({"Name": "id"}))
    yield Case("LZ-172/schema-definition", _declared("id"))
    yield Case(
        "LZ-172/schema-definition", _declared({"Name": "__rowMarker__", "DataType": "Int32"})
    )
    yield Case("LZ-183/time-as-text", _declared({"Name": "a", "DataType": "ITime"}))
    decimal = {"Name": "a", "DataType": "Decimal", "Precision": 9, "Scale": 2, "IsNullable": True}
    yield Case("LZ-187/decimal-declared", _declared(decimal))
    yield Case("LZ-187/decimal-declared", _declared(decimal), STRICT)
    yield Case("LZ-188/type-unknown", _declared({"Name": "id", "DataType": "Integer"}))
    yield Case(
        "LZ-190/separator-of-extension", _described(FileFormat="DelimitedText", FileExtension="tsv")
    )
    yield Case("LZ-191/property-at-top", _described(FileExtension="csv", FirstRowAsHeader=True))
    text = {"Name": "a", "DataType": "String"}
    yield Case("LZ-206/nullability-absent", _declared(text), STRICT)


# -- text files --------------------------------------------------------------------------------

N = "notes"
HEAD = "id,name,__rowMarker__"


def _lines(*lines: str) -> Build:
    """A third file of the text table."""
    return lambda zone: zone.write(N, 3, *lines)


def _bytes(content: bytes) -> Build:
    return lambda zone: zone.put(f"{N}/{_number(3, 'csv')}", content)


def _without(member: str, **instead: Any) -> Build:
    others = {name: value for name, value in TEXT.items() if name != member}
    return lambda zone: zone.describe(N, **others, **instead)


def _typed(kind: str, value: str, **more: Any) -> Build:
    """A text table with a column of a type, and a value that is none of it."""

    def build(zone: Zone) -> None:
        column = {"Name": "v", "DataType": kind, "IsNullable": True, **more}
        zone.describe("t", **TEXT | {"SchemaDefinition": {"Columns": [COLUMNS[0], column]}})
        zone.write("t", 1, "id,v,__rowMarker__", f'1,"{value}",0')

    return build


def _required(zone: Zone) -> None:
    columns = [COLUMNS[0], COLUMNS[1] | {"IsNullable": False}]
    zone.describe("t", **TEXT | {"SchemaDefinition": {"Columns": columns}})


def _required_null(zone: Zone) -> None:
    _required(zone)
    zone.write("t", 1, HEAD, "1,Anna,0", "2,,2", "3,,0")


def _required_absent(zone: Zone) -> None:
    _required(zone)
    zone.write("t", 1, "id,__rowMarker__", "1,0")


def _texts() -> Iterator[Case]:
    yield Case("LZ-042/text-without-metadata", lambda z: (z.path / N / "_metadata.json").unlink())
    yield Case("LZ-043/change-without-key", _keyless_text, notes=("LZ-034/no-key",))
    yield Case("LZ-046/key-column-missing", _lines("name,__rowMarker__", "Anna,0"))
    yield Case("LZ-071/marker-not-last", _lines("__rowMarker__,id,name", "0,3,Carl"))
    yield Case("LZ-085/marker-unknown", _lines(HEAD, "3,Carl,0", "4,Dora,3"))
    yield Case("LZ-085/marker-unknown", _lines(HEAD, "3,Carl,"))
    yield Case("LZ-086/marker-misspelt", _lines("id,name,__ROWMARKER__", "3,Carl,0"))
    yield Case("LZ-077/inserted-twice", _lines(HEAD, "3,Carl,0", "3,Dora,0"))
    yield Case("LZ-107/text-without-marker", _unmarked_text)
    yield Case("LZ-107/marker-dropped", _lines("id,name", "3,Carl"))
    yield Case("LZ-120/number-twice", lambda z: z.land(N, 1, marked(_NOTES, [1])))
    yield Case("LZ-143/text-in-v1", _text_in_v1, V1)
    yield Case("LZ-156/names-alike", _lines("id,name,Name,__rowMarker__", "3,a,b,0"))
    yield Case("LZ-159/header-absent", _bytes(b"\r\n"))
    yield Case("LZ-159/header-absent", _bytes(b"\xef\xbb\xbf"))
    yield Case("LZ-159/header-absent", _lines("3,Carl,0", "4,Dora,0"))
    yield Case("LZ-160/extension-not-declared", _without("FileExtension"))
    yield Case("LZ-160/extension-not-declared", _without("FileExtension"), STRICT)
    yield Case(
        "LZ-167/bytes-not-of-encoding", _bytes(f"{HEAD}\r\n3,J\u00e4n,0\r\n".encode("cp1252"))
    )
    yield Case("LZ-192/schema-absent", _without("SchemaDefinition"))
    yield Case("LZ-192/schema-absent", _without("SchemaDefinition", SchemaDefinition={}))
    extra = "id,name,seqNum,__rowMarker__"
    yield Case("LZ-193/column-not-declared", _lines(extra, "3,Carl,7,0"))
    yield Case("LZ-195/declared-column-absent", _lines("id,__rowMarker__", "3,0"))
    yield Case("LZ-195/required-column-absent", _required_absent)
    yield Case("LZ-199/field-count", _lines(HEAD, "3,Smith, Anna,0"))
    yield Case("LZ-199/field-count", _lines(HEAD, "3,Carl,0", "4"))
    yield Case("LZ-199/header-name-twice", _lines("id,name,name,__rowMarker__", "3,a,b,0"))
    yield Case("LZ-200/line-end", _bytes(f"{HEAD}\n3,Carl,0\n".encode()))
    yield Case("LZ-200/line-end", _bytes(f"{HEAD}\n3,Carl,0\n".encode()), STRICT)
    yield Case("LZ-200/last-line-end", _bytes(f"{HEAD}\r\n3,Carl,0".encode()), STRICT)
    yield Case("LZ-201/quotes", _lines(HEAD, '3,"Carl "the" second",0'))
    yield Case("LZ-201/quotes", _lines(HEAD, '3,"Carl,0'))
    yield Case("LZ-205/required-null", _required_null)
    yield Case("LZ-205/required-null", _lines(HEAD, ",Carl,0"))
    whole = gzip.compress(f"{HEAD}\r\n3,Carl,0\r\n".encode())
    yield Case("LZ-209/compression", _bytes(whole[:-12]))
    yield Case("LZ-209/compression", _bytes(_zstd(f"{HEAD}\r\n3,Carl,0\r\n")[:-6]))
    packed = f"{N}/{_number(3, 'csv.gz')}"
    yield Case("LZ-209/compressed-extension", lambda z: z.put(packed, whole), STRICT)
    yield Case("LZ-276/zero-bytes", _bytes(b""))
    yield from _values()


_NOTES = {"id": pa.array([1], pa.int32()), "name": ["Anna"]}


def _zstd(text: str) -> bytes:
    return bytes(pa.compress(text.encode(), codec="zstd", asbytes=True))


def _values() -> Iterator[Case]:
    for kind, clause, values in (
        ("Double", "LZ-175", ("1,5", "one")),
        ("Single", "LZ-176", ("1,5", "1 000")),
        ("Int16", "LZ-177", ("32768", "1.0")),
        ("Int32", "LZ-178", ("2147483648", "x")),
        ("Int64", "LZ-179", ("9223372036854775808", "1,000")),
        ("IDate", "LZ-181", ("17.06.2025", "2025-02-30")),
        ("Boolean", "LZ-185", ("yes", "2")),
        ("ByteArray", "LZ-186", ("not base64!", "0xzz")),
        ("DateTime", "LZ-207", ("06/17/2025", "2025-13-01 00:00:00")),
    ):
        for value in values:
            yield Case(f"{clause}/value-not-{kind}", _typed(kind, value))
    time = _typed("ITime", "2 pm")
    yield Case("LZ-183/value-not-ITime", time, notes=("LZ-183/time-as-text",))
    exact = _typed("Decimal", "12345.678", Precision=5, Scale=2)
    yield Case("LZ-187/value-not-Decimal", exact, notes=("LZ-187/decimal-declared",))


def _keyless_text(zone: Zone) -> None:
    zone.describe("t", **{k: v for k, v in TEXT.items() if k != "keyColumns"})
    zone.write("t", 1, HEAD, "1,Anna,1")


def _unmarked_text(zone: Zone) -> None:
    zone.describe("t", **TEXT)
    zone.write("t", 1, "id,name", "1,Anna")


def _text_in_v1(zone: Zone) -> None:
    zone.describe("t", keyColumns=["id"])
    zone.write("t", 1, "__rowMarker__,id,name", "0,1,Anna")


CASES = [
    *_texts(),
    *_layout(),
    *_metadata(),
    *_partners(),
    *_columns_and_keys(),
    *_rows(),
    *_evolution(),
    *_sequence(),
    *_parquet(),
    *_text_members(),
]
