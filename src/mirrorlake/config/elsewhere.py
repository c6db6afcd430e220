"""Locations named in a project file, below its root or elsewhere."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from mirrorlake.errors import ConfigError, UsageError
from mirrorlake.sources.section import Section
from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.store import UnsafePath, checked
from mirrorlake.storage.urls import StorageLocation, check_url, is_url


class ElsewhereSection(Section):
    """The location of a part of a mirror that is not below root."""

    url: str | None = Field(default=None, min_length=1)
    endpoint: str | None = Field(default=None, min_length=1)
    region: str | None = Field(default=None, min_length=1)
    anonymous: bool = False

    def location_in(
        self, path: Path, section: str, account: str | None = None
    ) -> StorageLocation | None:
        """The location in a section of a project file. Raises ConfigError."""
        reached = {
            "endpoint": self.endpoint,
            "region": self.region,
            "account": account,
            "anonymous": self.anonymous,
        }
        named = next((name for name, value in reached.items() if value), None)
        if self.url is None:
            if named is not None:
                raise ConfigError(
                    "this setting describes how to access a URL, but no URL is set",
                    where=f"{path}, field {section}.{named}",
                    hint=f"Set {section}.url as well, or remove this setting.",
                )
            return None
        try:
            options = ObjectOptions(self.endpoint, self.region, account, self.anonymous)
            check_url(self.url, options)
            return StorageLocation(self.url, options)
        except UsageError as error:
            field = error.where if error.where in reached else "url"
            where = f"{path}, field {section}.{field}"
            raise ConfigError(error.what, where=where, hint=error.hint) from None


class EventLocationSection(Section):
    """The location of event files: a folder or a URL, and a path below it."""

    url: str = Field(min_length=1)
    endpoint: str | None = Field(default=None, min_length=1)
    region: str | None = Field(default=None, min_length=1)
    account: str | None = Field(default=None, min_length=1)
    path: str = ""

    def location(self, path: Path, section: str) -> StorageLocation | Path:
        """path: of the project file; section: the name of this section in it. Raises
        ConfigError."""
        if not is_url(self.url):
            return beside(path, Path(self.url))
        reached = ElsewhereSection(url=self.url, endpoint=self.endpoint, region=self.region)
        location = reached.location_in(path, section, self.account)
        assert location is not None
        return location

    def folder(self, path: Path, section: str) -> str:
        """The path below the URL. Raises ConfigError."""
        found = self.path.strip("/")
        try:
            if found:
                checked(found)
        except UnsafePath:
            raise ConfigError(
                f"{self.path!r} is no path below the URL",
                where=f"{path}, field {section}.path",
                hint="Write names with / between them, such as crm/events.",
            ) from None
        return found


def beside(path: Path, found: Path) -> Path:
    """A path from a project file; relative paths start at that file."""
    return (path.parent / found.expanduser()).absolute()
