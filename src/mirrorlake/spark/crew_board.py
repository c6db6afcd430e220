"""What the members of a crew leave for each other in the scratch folder of their batch."""

from __future__ import annotations

import base64
import json
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mirrorlake.spark import task

LOOK, SELDOM = 0.002, 0.05
"""Seconds between two looks at the folder, at first and after a second."""


class Board:
    """Where the members of a crew leave what the others wait for. A file is there whole or not at
    all; who is run again may write it again, with another answer that is as good."""

    LEFT = "left"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, name: str, facts: Mapping[str, Any]) -> None:
        written = self._folder / f"{name}-{uuid.uuid4()}.part"
        written.write_text(json.dumps(facts, default=_encoded))
        written.replace(self._folder / f"{name}.json")

    def read(self, name: str, kind: type[Any]) -> task.TaskResult | None:
        """What a piece handed on, if it is there."""
        try:
            text = (self._folder / f"{name}.json").read_text()
        except FileNotFoundError:
            return None
        facts = json.loads(text, object_hook=_decoded)
        return task.TaskResult(handed=kind(**{n: _frozen(value) for n, value in facts.items()}))

    def leave(self) -> None:
        """Tell the others not to wait."""
        self.put(self.LEFT, {})

    def wait(self, names: Sequence[str], seconds: float) -> bool:
        """Wait for all of them. Returns whether they came; who waits in vain leaves."""
        began = time.monotonic()
        for name in names:
            while not self._has(name):
                waited = time.monotonic() - began
                if waited > seconds:
                    self.leave()
                if self._has(self.LEFT):
                    return False
                time.sleep(min(SELDOM, max(LOOK, waited * SELDOM)))
        return True

    def _has(self, name: str) -> bool:
        return (self._folder / f"{name}.json").exists()


_BYTES = "base64"


def _encoded(value: object) -> Mapping[str, str]:
    assert isinstance(value, bytes)
    return {_BYTES: base64.b64encode(value).decode()}


def _decoded(facts: dict[str, Any]) -> Any:
    return base64.b64decode(facts[_BYTES]) if facts.keys() == {_BYTES} else facts


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
