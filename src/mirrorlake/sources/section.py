"""The section `source:` of a project file, and the settings made of it."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Protocol

from pydantic import BaseModel, ConfigDict


class SourceSettings(Protocol):
    """The settings of a source. Each source has its own class of them, frozen; it pickles."""

    product: ClassVar[str]
    """What its database is called."""
    monitored_as: ClassVar[str]
    """The `MirroringSourceType` of the operation log (LZ-313)."""

    @property
    def load_workers(self) -> int:
        """How many parts of its tables are loaded at the same time."""
        ...


class Section(BaseModel):
    """A section of a project file: unknown settings are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SourceSection(Section):
    """The section `source:`. Each source has its own fields in it, by `type`."""

    type: str

    @abstractmethod
    def settings(self, name: str) -> SourceSettings:
        """The settings of the source. name: of the project, for what is named after it."""
        ...
