"""What to do about an error, as commands to copy."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mirrorlake.control.names import ResourceName

_RESET = "`mirrorlake reset"
_FILE = "Capture does not write this file again. Load the table again."


@dataclass(frozen=True, slots=True)
class Commands:
    """Writes the commands for one stream. folder: of the service; root: of the stream's mirror."""

    stream: ResourceName
    folder: Path
    root: str

    def reset(self, table: str) -> Sequence[str]:
        """Load a table again; its stream is paused for it."""
        return self._chain(
            self._of_stream("pause"),
            f"mirrorlake reset {shlex.quote(table)} --root {shlex.quote(self.root)} --yes",
            self._of_stream("start"),
        )

    def start(self) -> Sequence[str]:
        return self._chain(self._of_stream("start"))

    def recover(self) -> Sequence[str]:
        """Load all tables of a stream again."""
        return self._chain(self._of_stream("run"))

    def backfill(self, table: str, verb: str) -> Sequence[str]:
        """verb: `backfill` or `stop`."""
        stream = shlex.quote(self.stream.id)
        words = f"mirrorlake objects {stream} {verb} {shlex.quote(table)}"
        return self._chain(f"{words} {self._service}")

    @property
    def _service(self) -> str:
        folder, location = shlex.quote(str(self.folder)), shlex.quote(self.stream.parent)
        return f"--folder {folder} --location {location}"

    def _of_stream(self, verb: str) -> str:
        return f"mirrorlake streams {verb} {shlex.quote(self.stream.id)} {self._service}"

    @staticmethod
    def _chain(*commands: str) -> Sequence[str]:
        """Each only after the one before has succeeded. None at all where a name has characters
        that a terminal would obey."""
        if not all(one.isprintable() for one in commands):
            return []
        return [*(f"{one} &&" for one in commands[:-1]), commands[-1]]


def of_table(error: Mapping[str, Any], table: str, commands: Commands) -> tuple[str, Sequence[str]]:
    """What to do about the error of a table, in words and as commands; none where something else
    has to be done first.

    What an error of a landed file asks its publisher to do does not hold here: the publisher is
    our own capture, which writes no file again.
    """
    hint = str(error.get("hint") or "")
    if _RESET in hint:
        return hint, commands.reset(table)
    if error.get("file"):
        return "Capture does not write this file again. Load the table again.", commands.reset(
            table
        )
    return hint, []
