"""The base of all messages: names, texts without control characters, groups of exclusive fields."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    SecretStr,
    StringConstraints,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import core_schema

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u2028\u2029\ud800-\udfff]")


def _printable(text: str) -> str:
    if _CONTROL.search(text):
        raise ValueError("control characters are not allowed")
    return text


def _printable_secret(text: SecretStr) -> SecretStr:
    _printable(text.get_secret_value())
    return text


PRINTABLE = AfterValidator(_printable)
Text = Annotated[str, StringConstraints(max_length=4_096), PRINTABLE]
Name = Annotated[str, StringConstraints(max_length=1_000), PRINTABLE]
Secret = Annotated[SecretStr, Field(max_length=65_536), AfterValidator(_printable_secret)]
"""Input only: stored separately from the resource and never returned (ST-324)."""
Port = Annotated[int, Field(ge=1, le=65_535)]
Count = Annotated[int, Field(ge=0, le=2_147_483_647)]
Labels = Annotated[dict[Text, Text], Field(max_length=64)]

_DURATION = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?s")


def _duration(text: str) -> str:
    if not _DURATION.fullmatch(text):
        raise ValueError("a duration is written as 60s")
    return text


Duration = Annotated[str, StringConstraints(max_length=32), AfterValidator(_duration)]
"""In seconds, as `60s` (ST-347)."""
Time = Annotated[str, Field(json_schema_extra={"format": "date-time", "readOnly": True})]
"""RFC 3339 (ST-347); set by the server, ignored in requests."""


def seconds(duration: str) -> float:
    return float(duration.removesuffix("s"))


@dataclass(frozen=True, slots=True)
class ByName:
    """Marks an enumeration: read from a name or number, written as a name (FD-080)."""

    kind: type[IntEnum]

    def __get_pydantic_core_schema__(
        self, _source: object, _handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self._read,
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda value: value.name, return_schema=core_schema.str_schema()
            ),
        )

    def __get_pydantic_json_schema__(
        self, _schema: core_schema.CoreSchema, _handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        names, numbers = list(self.kind.__members__), [one.value for one in self.kind]
        return {"anyOf": [{"enum": names}, {"enum": numbers}]}

    def _read(self, value: object) -> IntEnum:
        if isinstance(value, str) and value in self.kind.__members__:
            return self.kind[value]
        if isinstance(value, int) and not isinstance(value, bool) and value in list(self.kind):
            return self.kind(value)
        raise ValueError(f"one of {', '.join(self.kind.__members__)} is expected")


def _alias(name: str) -> str:
    return to_camel(name.removesuffix("_"))


class Shape(BaseModel):
    """A message. one_of: groups of fields of which at most one may be set."""

    model_config = ConfigDict(alias_generator=_alias, populate_by_name=True, extra="forbid")
    one_of: ClassVar[Sequence[Sequence[str]]] = ()

    @model_validator(mode="after")
    def _at_most_one(self) -> Self:
        for group in self.one_of:
            found = [_alias(name) for name in group if getattr(self, name) is not None]
            if len(found) > 1:
                raise ValueError(f"only one of {', '.join(found)} may be set")
        return self

    def document(self) -> dict[str, Any]:
        """As JSON, without unset fields and secrets."""
        plain: dict[str, Any] = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        return plain


class Empty(Shape):
    """A message without fields, whose presence is its meaning."""
