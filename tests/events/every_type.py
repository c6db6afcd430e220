"""Events of each source with a column of every unified type that the types of the source become."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from mirrorlake.events import types
from mirrorlake.events.encode.container import container
from mirrorlake.events.encode.json_lines import json_lines
from mirrorlake.events.envelope import EventSource
from mirrorlake.events.maps import unified_type
from mirrorlake.events.maps.declared import DateProfile
from mirrorlake.events.metadata import metadata_fields
from mirrorlake.events.rows import EventObject, EventRows
from mirrorlake.events.types import EventColumn, UnifiedKind, UnifiedType
from tests.docs.event_types import DECLARED
from tests.events.test_sources import Events, changes
from tests.events.values import DAY, STREAM, Drawn

MOMENT = 1_767_323_045_678_901
"""2026-01-02T03:04:05.678901Z in microseconds."""
YEAR_1, YEAR_9999 = -62_135_596_800_000_000, 253_402_300_799_999_999
TEXTS = ['a "b"\n\u20ac\U0001f600\\', "", "\t0000-00-00"]
VALUES: Mapping[UnifiedKind, list[Any]] = {
    UnifiedKind.BOOLEAN: [True, False, True],
    UnifiedKind.BYTES: [b"\x00\xff\x80", b"", b"text"],
    UnifiedKind.DATE: [20_455, -719_162, 2_932_896],
    UnifiedKind.DATETIME: [MOMENT, YEAR_1, YEAR_9999],
    UnifiedKind.DOUBLE: [0.1, -math.inf, math.nan],
    UnifiedKind.FLOAT: [45.66999816894531, math.inf, -1.5],
    UnifiedKind.GEOMETRY: [
        {"value": b"\x01\xff", "srid": 4326, "type": "POINT"},
        {"value": b"", "srid": 0, "type": ""},
        {"value": b"\x00", "srid": -(2**31), "type": "POLYGON"},
    ],
    UnifiedKind.INTEGER: [-(2**31), 2**31 - 1, 0],
    UnifiedKind.INTERVAL: [
        {"months": -14, "hours": 68, "micros": -306_700_000},
        {"months": 2**31 - 1, "hours": -(2**31), "micros": 2**63 - 1},
        {"months": 0, "hours": 0, "micros": 1},
    ],
    UnifiedKind.JSON: ['{"a": [1, 2.50, null], "b": {"c": "\u20ac"}}', '"text"', "[]"],
    UnifiedKind.LONG: [2**63 - 1, -(2**63), 0],
    UnifiedKind.NUMBER: ["18446744073709551615", "-0.000000000000000000000000000001", "NaN"],
    UnifiedKind.STRING: TEXTS,
    UnifiedKind.TIME: [29_730_000_001, 0, DAY - 1],
    UnifiedKind.TIME_INTERVAL: [-1, 29_730_000_000, 40 * DAY],
    UnifiedKind.TIMESTAMP: [MOMENT, YEAR_1, YEAR_9999],
    UnifiedKind.TIMESTAMP_WITH_TIME_ZONE: [
        {"timestamp": MOMENT, "offset": 7_200_000},
        {"timestamp": 0, "offset": -45_000_000},
        {"timestamp": -1, "offset": 0},
    ],
    UnifiedKind.TIME_WITH_TIME_ZONE: [
        {"time": 29_730_000_000, "offset": -12_600_000},
        {"time": 0, "offset": 0},
        {"time": DAY - 1, "offset": 50_400_000},
    ],
    UnifiedKind.UNSUPPORTED: [None, None, None],
    UnifiedKind.VARCHAR: TEXTS,
}
"""Three values of each. Another row has null."""
COUNT = 4
MORE = {
    # No type of a source becomes one yet; genuine files of MySQL may have it (ST-119).
    EventSource.MYSQL: [types.GEOMETRY],
    EventSource.POSTGRESQL: [
        types.array(one) for one in (types.STRING, types.BYTES, types.TIMESTAMP_WITH_TIME_ZONE)
    ],
}


def kinds(source: EventSource) -> list[UnifiedType]:
    mapped = [
        unified_type(source, declared, profile)
        for declared in DECLARED[source]
        for profile in DateProfile
    ]
    return [*dict.fromkeys([*mapped, *MORE.get(source, ())])]


def _values(kind: UnifiedType) -> list[Any]:
    if kind.kind is UnifiedKind.DECIMAL:
        most = Decimal(10**kind.precision - 1).scaleb(-kind.scale)
        return [-most, most, Decimal(1).scaleb(-kind.scale)]
    if kind.kind is UnifiedKind.ARRAY:
        assert kind.element is not None
        one, two, three = _values(kind.element)
        return [
            {"dimensions": [2, 2], "elements": [one, two, None, three]},
            {"dimensions": [], "elements": []},
            {"dimensions": [3], "elements": [three, None, one]},
        ]
    return VALUES[kind.kind]


@dataclass(frozen=True)
class TypedEvents:
    """Four changes of a source, with all that its metadata can tell."""

    events: Events
    drawn: list[Drawn]

    @classmethod
    def of(cls, source: EventSource) -> TypedEvents:
        drawn = []
        for number, kind in enumerate(kinds(source)):
            name = f"{kind.kind.lower()}_{number}"
            if source is EventSource.MONGODB:
                name = DECLARED[source][number]
            first, *others = _values(kind)
            drawn.append(Drawn(EventColumn(name, kind), [first, None, *others]))
        return cls(changes(source, COUNT), drawn)

    @property
    def described(self) -> EventObject:
        columns = tuple(one.column for one in self.drawn)
        return EventObject(STREAM, "shop_orders", self.events.source, columns)

    @property
    def rows(self) -> EventRows:
        return replace(self.events.rows(), payload=[one.array() for one in self.drawn])

    def written(self, form: str) -> bytes:
        write = container if form == "avro" else json_lines
        return b"".join(write(self.described, self.rows))

    def expected(self, moment: type[int] | type[str], told: Any) -> list[dict[str, Any]]:
        """The events as they are in a file. told: makes of a type and a value what is read."""
        found = self.events.expected(moment)
        for number, event in enumerate(found):
            event["schema_key"] = self.described.schema_key
            facts = event["source_metadata"]
            names = [field.name for field in metadata_fields(self.events.source)]
            event["source_metadata"] = {name: facts[name] for name in names}
            event["payload"] = {
                one.column.name: told(one.column.type, one.values[number]) for one in self.drawn
            }
        return found
