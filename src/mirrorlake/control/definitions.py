"""The definitions of streams and profiles in a file beside the database. If the database is lost,
everything except the history is restored from it. The progress of a stream is in its files and
tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import structlog

from mirrorlake.control.names import ResourceKind, ResourceName
from mirrorlake.control.reports import Document
from mirrorlake.control.secrets import write_private
from mirrorlake.control.store.database import Database
from mirrorlake.errors import StorageUnavailable
from mirrorlake.model.landed import LaterFormat

log = structlog.get_logger()

DEFINITIONS_RESTORED, DEFINITIONS_UNWRITTEN = "definitions_restored", "definitions_not_written"
FORMAT = 1
_KINDS = (ResourceKind.PROFILE, ResourceKind.STREAM)


class Definitions:
    """The file of one service. Not thread-safe."""

    NAME = "definitions.json"

    def __init__(self, folder: Path, database: Database) -> None:
        self._file, self._database = folder / self.NAME, database
        self._written = ""

    def restore(self) -> None:
        """Restore the definitions from the file if the database has neither streams nor profiles.
        Raises LaterFormat, and StorageUnavailable for a damaged file."""
        try:
            text = self._file.read_text(encoding="utf-8")
        except FileNotFoundError:
            return
        with self._database.transaction() as transaction:
            if any(transaction.all(kind) for kind in _KINDS):
                return
            found = self._parsed(text)
            for name, (document, wanted) in found.items():
                transaction.put(ResourceName.parse(name), document)
                transaction.want(ResourceName.parse(name), wanted)
        if found:
            log.warning(DEFINITIONS_RESTORED, resources=len(found))

    def _parsed(self, text: str) -> dict[str, tuple[Document, str]]:
        """By name, the document and the desired state. Raises as `restore` does."""
        try:
            found = json.loads(text)
            later = found["format"] if found["format"] > FORMAT else None
            resources = {
                one["document"]["name"]: (one["document"], str(one["wanted"]))
                for one in (() if later else found["resources"])
            }
        except (ValueError, KeyError, TypeError) as error:
            raise StorageUnavailable(
                "the database has no streams, and the file to restore them from is damaged",
                where=str(self._file),
                hint="Restore one of the two from a backup, or remove the file to begin anew.",
            ) from error
        if later:
            raise LaterFormat(f"{self.NAME} has format {later}; this release reads {FORMAT}")
        return resources

    def write(self) -> None:
        """Write the definitions of the database. A failure is logged only, because streams run
        without the file."""
        with self._database.transaction() as transaction:
            wanted = transaction.wanted()
            found: list[dict[str, Any]] = [
                {"document": one, "wanted": wanted.get(one["name"], "")}
                for kind in _KINDS
                for one in transaction.all(kind)
            ]
        text = json.dumps({"format": FORMAT, "resources": found}, indent=1)
        if text == self._written:
            return
        try:
            write_private(self._file, text)
        except OSError as error:
            log.warning(DEFINITIONS_UNWRITTEN, file=str(self._file), reason=error.strerror)
        else:
            self._written = text
