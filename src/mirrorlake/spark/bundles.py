"""Small work that shares tasks: to start a task takes as long as a batch of a few hundred rows.

What a batch takes follows its rows, except where its table is large: then it may have to look into
many files. So only small batches of tables that are not large share a task, and there are never
fewer tasks than slots as long as there is work for them.
"""

from __future__ import annotations

from collections.abc import Sequence

from mirrorlake.spark.task import Spec, TaskSpec

LANDED = 256 << 10
"""Bytes of landed files up to which a batch is small."""

STORED = 256 << 20
"""Bytes of data files from which on a table is large."""

ALONE = 64 << 10
"""What a batch without a row takes, in bytes of landed files that take as long."""


def packed(specs: Sequence[Spec], slots: int) -> list[list[int]]:
    """The work of each task, as places in `specs`: every place once."""
    shared = [index for index, spec in enumerate(specs) if _is_small(spec)]
    bundles: list[list[int]] = [[] for _ in range(min(slots, len(shared)))]
    weights = [0] * len(bundles)
    for index in sorted(shared, key=lambda index: -_weight(specs[index])):
        lightest = weights.index(min(weights))
        bundles[lightest].append(index)
        weights[lightest] += _weight(specs[index])
    return [[index] for index, spec in enumerate(specs) if not _is_small(spec)] + bundles


def _is_small(spec: Spec) -> bool:
    if not isinstance(spec, TaskSpec) or spec.appends:
        return False
    stored = sum(int(add["size"]) for add in spec.files)
    return _weight(spec) <= ALONE + LANDED and stored < STORED


def _weight(spec: Spec) -> int:
    return ALONE + (sum(file.size for file in spec.landed) if isinstance(spec, TaskSpec) else 0)
