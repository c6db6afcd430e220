"""Sections of a project file whose shape depends on their `type`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from pydantic import BaseModel, create_model

from mirrorlake.sources.section import Section


def of_its_type(sections: Mapping[str, type[Section]]) -> Callable[[Any], Section]:
    """A validator that reads a section with the model of its `type`, or raises ValidationError.

    sections: the model for each `type`.
    """
    types: Any = Literal[tuple(sections)]
    typed: type[BaseModel] = create_model("_Typed", type=(types, ...))

    def chosen(given: Any) -> Section:
        typed.model_validate(given)
        return sections[given["type"]].model_validate(given)

    return chosen
