"""Tasks that run twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from mirrorlake.apply.in_process.runner import InProcessRunner


class Repeating(InProcessRunner):
    """Runs tasks again, as after the loss of an executor, and takes the result of any attempt."""

    def __init__(self, random: Random) -> None:
        super().__init__(random.randint(1, 3))
        self._random = random

    def run(
        self,
        work: Callable[[Any], Any],
        items: Sequence[Any],
        packing: Sequence[Sequence[int]] | None = None,
    ) -> list[Any]:
        attempts = [super(Repeating, self).run(work, items, packing) for _ in range(2)]
        return [self._random.choice(results) for results in zip(*attempts, strict=True)]
