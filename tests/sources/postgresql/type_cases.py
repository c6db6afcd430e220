"""Types of PostgreSQL with literals, and the values that these become in a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

UTC = ZoneInfo("UTC")
NAN, INF = float("nan"), float("inf")
FIRST_DAY, LAST_DAY = date(1, 1, 1), date(9999, 12, 31)
FIRST = datetime(1, 1, 1, tzinfo=UTC)
LAST = datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)


@dataclass(frozen=True)
class Case:
    """A type, what it becomes, and literals with their values. `needs`: what a server must have."""

    type: str
    becomes: str
    values: Mapping[str, Any]
    needs: str = "true"

    def __str__(self) -> str:
        return self.type


def literal(text: str) -> str:
    doubled = text.replace("\\", "\\\\").replace("'", "''")
    return f"E'{doubled}'"


def verbatim(type_: str, *texts: str, needs: str = "true") -> Case:
    """A type that is carried as text, with texts that PostgreSQL gives back as they are."""
    return Case(type_, "string", {literal(text): text for text in texts}, needs)


def written(type_: str, needs: str = "true", **values: str) -> Case:
    """A type that is carried as text, with texts that PostgreSQL writes in another way."""
    return Case(type_, "string", {literal(text): value for text, value in values.items()}, needs)


VERSION_15 = "current_setting('server_version_num')::int >= 150000"
VERSION_17 = "current_setting('server_version_num')::int >= 170000"
LIBXML = "(select setting like '%with-libxml%' from pg_config where name = 'CONFIGURE')"
EXTENSION = "exists (select from pg_extension where extname = '{}')"

SETUP = """
do $$ declare extension text; begin
    for extension in select name from pg_available_extensions where name in ('hstore', 'citext')
    loop execute 'create extension ' || extension; end loop; end $$;
create type mood as enum ('calm', 'it''s, "odd"');
create type pair as (a int, b text);
create domain small as int check (value < 1000);
create domain smaller as small check (value < 100);
create domain price as numeric(9, 2);
create domain moment as timestamptz;
create domain words as text[];
create schema odd;
create type odd.int4 as enum ('four');
create type odd.bool as (a int)
"""

TEXTS = (
    *("", " ", "a", "NULL", "null", "\\N", "\\.", "\\", "\\\\x", '"', '""', '"a"', "a,b", "it's"),
    *(
        "a\nb",
        "a\r\nb",
        "\n",
        "\r",
        "\t",
        "\x01\x1f\x7f",
        "{",
        "\ufeffa",
        "é ß 漢字 😀",
        "x" * 9000,
    ),
)

SIMPLE = [
    Case("boolean", "boolean", {"true": True, "false": False}),
    Case("smallint", "short", {"-32768": -32768, "0": 0, "32767": 32767}),
    Case("integer", "integer", {"-2147483648": -(2**31), "2147483647": 2**31 - 1}),
    Case("bigint", "long", {f"'{-(2**63)}'": -(2**63), f"'{2**63 - 1}'": 2**63 - 1}),
    Case("oid", "long", {"0": 0, "4294967295": 4294967295}),
    Case("xid", "long", {"'4294967295'": 4294967295}),
    Case("cid", "long", {"'4294967295'": 4294967295}),
    Case(
        "real",
        "float",
        {"1.1": 1.100000023841858, "'NaN'": NAN, "'-Infinity'": -INF, "'-0'": -0.0}
        | {"3.4028235e38": 3.4028234663852886e38, "'1e-45'": 1.401298464324817e-45},
    ),
    Case(
        "double precision",
        "double",
        {"0.1": 0.1, "'NaN'": NAN, "'Infinity'": INF, "'-Infinity'": -INF, "'-0'": -0.0}
        | {"'1.7976931348623157e308'": 1.7976931348623157e308, "'5e-324'": 5e-324},
    ),
    Case(
        "bytea",
        "binary",
        {"''": b"", r"'\x00ff0a'": b"\x00\xff\n", "repeat('xy', 5000)::bytea": b"xy" * 5000},
    ),
]

NUMERIC = [
    verbatim("numeric", "0", "1.50", "-0.001", "NaN", "Infinity", "-Infinity", "9" * 100 + ".5"),
    Case("numeric(10,2)", "decimal(10,2)", {"1.5": Decimal("1.50"), "-0.01": Decimal("-0.01")}),
    Case("numeric(10)", "decimal(10,0)", {"-7": Decimal(-7), "0": Decimal(0)}),
    Case("numeric(38,0)", "decimal(38,0)", {"9" * 38: Decimal("9" * 38)}),
    Case("numeric(38,38)", "decimal(38,38)", {"-0." + "9" * 38: Decimal("-0." + "9" * 38)}),
    Case(
        "numeric(3,-2)",
        "decimal(5,0)",
        {"12345": Decimal(12300), "-99900": Decimal(-99900)},
        VERSION_15,
    ),
    Case(
        "numeric(36,-2)", "decimal(38,0)", {"9" * 36 + "00": Decimal("9" * 36 + "00")}, VERSION_15
    ),
    Case(
        "numeric(2,4)",
        "decimal(4,4)",
        {"0.0012": Decimal("0.0012"), "0": Decimal("0.0000")},
        VERSION_15,
    ),
    verbatim("numeric(39,2)", "1.50", "NaN", "-" + "9" * 37 + ".99"),
    verbatim("numeric(37,-2)", "123400", "NaN", needs=VERSION_15),
    verbatim("numeric(2,39)", "0." + "0" * 37 + "12", needs=VERSION_15),
    written("money", **{"1234.5": "$1,234.50", "-0.01": "-$0.01"}),
]

TEXTUAL = [
    verbatim("text", *TEXTS),
    verbatim("varchar", *TEXTS),
    verbatim("varchar(5)", "ab", ""),
    written("char(5)", **{"ab": "ab   ", "": "     "}),
    written("name", **{"ab": "ab", "x" * 70: "x" * 63}),
    verbatim('"char"', "a", ""),
    verbatim("uuid", "123e4567-e89b-12d3-a456-426614174000"),
    verbatim("json", '{"b": 1,  "a": 1, "a": 2}', "null", '"x"', "1e400", '"\\u00e9\\n"'),
    written("jsonb", **{'{"b":1,"a":[1,null]}': '{"a": [1, null], "b": 1}', "null": "null"}),
    verbatim("jsonpath", '$."a"'),
    written("mood", **{"calm": "calm", 'it\'s, "odd"': 'it\'s, "odd"'}),
    Case("pair", "string", {"(1, 'a\"b, c')": '(1,"a""b, c")', "(null, null)": "(,)"}),
    verbatim("xml", "<a>b</a>", "text only", needs=LIBXML),
    verbatim("hstore", '"a"=>"b", "c"=>NULL', needs=EXTENSION.format("hstore")),
    verbatim("citext", "Ab", needs=EXTENSION.format("citext")),
    verbatim("odd.int4", "four"),
    Case("odd.bool", "string", {"row(1)": "(1)"}),
]

TIMES = [
    Case(
        "date",
        "date",
        {"'2024-02-29'": date(2024, 2, 29), "'0001-01-01'": FIRST_DAY, "'9999-12-31'": LAST_DAY}
        | {"'infinity'": LAST_DAY, "'-infinity'": FIRST_DAY, "'0044-03-15 BC'": FIRST_DAY}
        | {"'10000-01-01'": LAST_DAY, "'5874897-12-31'": LAST_DAY},
    ),
    Case(
        "timestamp",
        "timestamp",
        {"'2024-01-02 03:04:05.123456'": datetime(2024, 1, 2, 3, 4, 5, 123456, UTC)}
        | {"'1969-12-31 23:59:59.9'": datetime(1969, 12, 31, 23, 59, 59, 900000, UTC)}
        | {"'0001-01-01 00:00'": FIRST, "'9999-12-31 23:59:59.999999'": LAST}
        | {"'infinity'": LAST, "'-infinity'": FIRST, "'4713-01-01 12:00 BC'": FIRST}
        | {"'294276-12-31 23:59:59.999999'": LAST},
    ),
    Case(
        "timestamptz",
        "timestamp",
        {"'2024-01-02 03:04:05.12+05:30'": datetime(2024, 1, 1, 21, 34, 5, 120000, UTC)}
        | {"'1890-01-01 00:00:00+00'": datetime(1890, 1, 1, tzinfo=UTC)}
        | {"'0001-01-01 00:00+00'": FIRST, "'9999-12-31 23:59:59.999999+00'": LAST}
        | {"'infinity'": LAST, "'-infinity'": FIRST, "'0001-01-01 00:00+01'": FIRST}
        | {"'10000-01-01 00:00+00'": LAST},
    ),
    written("time", **{"03:04:05.5": "03:04:05.5", "24:00": "24:00:00"}),
    written("timetz", **{"03:04:05+02": "03:04:05+02", "00:00-15:30": "00:00:00-15:30"}),
    written("interval", **{"1 year -2 days 3.5 s": "P1Y-2DT3.5S", "0": "PT0S"}),
    written("interval", needs=VERSION_17, infinity="infinity", **{"-infinity": "-infinity"}),
]

OTHER = [
    written("inet", **{"10.0.0.1": "10.0.0.1", "10.1.2.3/8": "10.1.2.3/8", "::1": "::1"}),
    written("cidr", **{"10": "10.0.0.0/8", "::1": "::1/128"}),
    written("macaddr", **{"08002b:010203": "08:00:2b:01:02:03"}),
    written("macaddr8", **{"08002b0102030405": "08:00:2b:01:02:03:04:05"}),
    Case("bit(3)", "string", {"B'101'": "101"}),
    Case("bit varying", "string", {"B''": "", "B'0011'": "0011"}),
    verbatim("point", "(1,-2.5)", "(Infinity,NaN)"),
    written("line", **{"{1,2,3}": "{1,2,3}"}),
    written("lseg", **{"(1,2),(3,4)": "[(1,2),(3,4)]"}),
    written("box", **{"(1,2),(3,4)": "(3,4),(1,2)"}),
    verbatim("path", "((1,2),(3,4))", "[(1,2),(3,4)]"),
    verbatim("polygon", "((1,2),(3,4))"),
    verbatim("circle", "<(1,2),3>"),
    written("tsvector", **{"b:2 a:1A 'it''s'": "'a':1A 'b':2 'it''s'"}),
    written("tsquery", **{"a & !b": "'a' & !'b'"}),
    written("int4range", **{"[1,5]": "[1,6)", "empty": "empty", "(,)": "(,)"}),
    written("int8range", **{"(1,5)": "[2,5)"}),
    verbatim("numrange", "[1.5,2]"),
    written("daterange", **{"[2024-01-01,infinity]": "[2024-01-01,infinity]"}),
    written("tsrange", **{"[2024-01-01,)": '["2024-01-01 00:00:00",)'}),
    written("tstzrange", **{"[2024-01-01 00:00+02,)": '["2023-12-31 22:00:00+00",)'}),
    written("int4multirange", **{"{[1,2],[5,6]}": "{[1,3),[5,7)}", "{}": "{}"}),
    verbatim("int8multirange", "{[1,3)}"),
    verbatim("nummultirange", "{[1.5,2]}"),
    verbatim("datemultirange", "{[2024-01-01,2024-01-03)}"),
    verbatim("tsmultirange", '{["2024-01-01 00:00:00",)}'),
    verbatim("tstzmultirange", '{["2024-01-01 00:00:00+00",)}'),
    verbatim("pg_lsn", "16/B374D848"),
    verbatim("xid8", "18446744073709551615"),
    verbatim("tid", "(1,2)"),
    verbatim("pg_snapshot", "10:20:10,14"),
    verbatim("txid_snapshot", "10:20:10,14"),
    verbatim("refcursor", "a cursor"),
    verbatim("aclitem", "postgres=r/postgres"),
    verbatim("regclass", "pg_class"),
    verbatim("regtype", "integer"),
    verbatim("regproc", "now"),
    verbatim("regprocedure", "abs(integer)"),
    verbatim("regoper", "||/"),
    verbatim("regoperator", "*(integer,integer)"),
    verbatim("regrole", "postgres"),
    verbatim("regnamespace", "pg_catalog"),
    verbatim("regconfig", "english"),
    verbatim("regdictionary", "simple"),
    verbatim("regcollation", '"C"'),
]

DOMAINS = [
    Case("small", "integer", {"7": 7}),
    Case("smaller", "integer", {"7": 7}),
    Case("price", "decimal(9,2)", {"7": Decimal("7.00")}),
    Case("moment", "timestamp", {"'infinity'": LAST}),
    Case("words", "string", {"'{a,NULL}'": '["a",null]'}),
]

TEXT_ARRAY = r"""array['', ' ', 'NULL', NULL, 'null', 'a"b', E'\\', 'a,b', '{}', '[', E'\x01\n']"""
TEXT_ARRAY_JSON = r'["", " ", "NULL", null, "null", "a\"b", "\\", "a,b", "{}", "[", "\u0001\u000a"]'
TEXT_ARRAY_JSON = TEXT_ARRAY_JSON.replace(", ", ",")
UUID = "123e4567-e89b-12d3-a456-426614174000"
JSON_ARRAY = """array['{"a":  "b\\n"}', 'null', '"x"', '1', NULL]::json[]"""

ARRAYS = [
    Case(
        "integer[]",
        "string",
        {"'{}'": "[]", "'{1,NULL,-3}'": "[1,null,-3]", "'{{1,2},{3,NULL}}'": "[[1,2],[3,null]]"}
        | {"'[0:1]={1,2}'": "[1,2]", "'[-1:0][5:6]={{1,2},{3,4}}'": "[[1,2],[3,4]]"},
    ),
    Case("smallint[]", "string", {"'{1}'": "[1]"}),
    Case("bigint[]", "string", {f"'{{{2**63 - 1}}}'": f"[{2**63 - 1}]"}),
    Case("oid[]", "string", {"'{1}'": "[1]"}),
    Case("numeric[]", "string", {"'{1.50,NaN,-Infinity,1e3}'": '[1.50,"NaN","-Infinity",1000]'}),
    Case("numeric(4,1)[]", "string", {"'{1.5}'": "[1.5]"}),
    Case("real[]", "string", {"'{1.1,Infinity}'": '[1.1,"Infinity"]'}),
    Case("double precision[]", "string", {"'{1e20,NaN,-0}'": '[1e+20,"NaN",-0]'}),
    Case(
        "boolean[]",
        "string",
        {"'{t,NULL,f}'": "[true,null,false]", "'{{t},{f}}'": "[[true],[false]]"},
    ),
    Case("text[]", "string", {TEXT_ARRAY: TEXT_ARRAY_JSON}),
    Case("varchar(3)[]", "string", {"'{abc}'": '["abc"]'}),
    Case("char(3)[]", "string", {"'{a}'": '["a  "]'}),
    Case('"char"[]', "string", {"'{a}'": '["a"]'}),
    Case("date[]", "string", {"'{2024-01-01,infinity}'": '["2024-01-01","infinity"]'}),
    Case("timestamptz[]", "string", {"'{2024-01-01 00:00+00}'": '["2024-01-01 00:00:00+00"]'}),
    Case("bytea[]", "string", {r"array['\x00ff'::bytea]": r'["\\x00ff"]'}),
    Case("uuid[]", "string", {f"array[uuid '{UUID}']": f'["{UUID}"]'}),
    Case("json[]", "string", {JSON_ARRAY: '[{"a":  "b\\n"},null,"x",1,null]'}),
    Case("jsonb[]", "string", {'array[\'{"a":"}"}\']::jsonb[]': '[{"a": "}"}]'}),
    Case("mood[]", "string", {"'{calm}'::mood[]": '["calm"]'}),
    Case("pair[]", "string", {"array[(1, 'a')::pair]": '["(1,a)"]'}),
    Case("small[]", "string", {"'{7}'": "[7]"}),
    Case("words[]", "string", {"array['{a,b}'::words]": '["{a,b}"]'}),
    Case("money[]", "string", {"'{1234.5}'": '["$1,234.50"]'}),
    Case("int4range[]", "string", {"array['[1,5)'::int4range]": '["[1,5)"]'}),
    Case("point[]", "string", {"array['(1,2)'::point]": '["(1,2)"]'}),
    Case("box[]", "string", {"array['(3,4),(1,2)'::box]": "{(3,4),(1,2)}"}),
    verbatim("int2vector", "1 2 3", ""),
    verbatim("oidvector", "1 2 3", ""),
]

CASES = [*SIMPLE, *NUMERIC, *TEXTUAL, *TIMES, *OTHER, *DOMAINS, *ARRAYS]


def shown(values: Sequence[Any]) -> list[str]:
    """Equal for values that are equal with their types, and NaN for itself, and not 0.0 for -0.0.
    Arrow has other objects for UTC in other versions."""
    return [repr(value).replace(repr(UTC), "<UTC>") for value in values]
