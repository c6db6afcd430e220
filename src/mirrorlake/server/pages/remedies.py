"""What to do about an error, as commands to copy."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from mirrorlake.control.names import ResourceName

_RESET, _REPAIR = "`mirrorlake reset", "`mirrorlake repair"
_FILE = "Capture does not write this file again. Load the table again."


class BackfillVerb(StrEnum):
    """What can be asked of the backfill of a table, in the word of the command."""

    BACKFILL = "backfill"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Commands:
    """Writes the commands for one stream. folder: of the service; mirror: the option that names the
    stream's mirror, with its value."""

    stream: ResourceName
    folder: Path
    mirror: tuple[str, str]

    def reset(self, table: str) -> Sequence[str]:
        """Load a table again; its stream is paused for it."""
        return self._chain(
            self._of_stream("pause"),
            f"mirrorlake reset {shlex.quote(table)} {shlex.join(self.mirror)} --yes",
            self._of_stream("start"),
        )

    def repair(self, table: str) -> Sequence[str]:
        """Compare a stopped table with the source; its stream is paused for it."""
        return self._chain(
            self._of_stream("pause"),
            f"mirrorlake repair {shlex.quote(table)} {shlex.join(self.mirror)} --yes",
            self._of_stream("start"),
        )

    @property
    def has_file(self) -> bool:
        """Whether a project file lists the stream."""
        return self.mirror[0] == "--config"

    def start(self) -> Sequence[str]:
        return self._chain(self._of_stream("start"))

    def recover(self) -> Sequence[str]:
        """Let a stream go on that has lost its place in the log."""
        return self._chain(self._of_stream("run"))

    def backfill(self, table: str, verb: BackfillVerb) -> Sequence[str]:
        stream = shlex.quote(self.stream.id)
        words = f"mirrorlake objects {stream} {verb.value} {shlex.quote(table)}"
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
    if _REPAIR in hint and commands.has_file:
        return hint, commands.repair(table)
    if _REPAIR in hint:
        return "Load the table again.", commands.reset(table)
    if error.get("file"):
        return _FILE, commands.reset(table)
    return hint, []
