"""Each named point is one at which some test kills a process."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from mirrorlake.model.crash_points import CrashPoint
from tests.crash.test_maintenance_crashes import BESIDE_BATCHES, OF_BATCHES

TESTS = Path(__file__).parents[1]
KILLS = {f"tests.crash.{name}" for name in ("entry", "forked", "life", "project")}
"""What a module imports that kills processes."""


def named(node: ast.AST) -> Iterator[str]:
    """The points that a module names to be killed at: not those that it compares with, nor those
    of the long run alone."""
    if isinstance(node, ast.Compare) or (isinstance(node, ast.Call) and _is_long(node)):
        return
    if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "CrashPoint":
        yield node.attr
    for child in ast.iter_child_nodes(node):
        yield from named(child)


def _is_long(call: ast.Call) -> bool:
    return any(ast.unparse(one.value) == "pytest.mark.long" for one in call.keywords)


def killing() -> Iterator[ast.Module]:
    for path in TESTS.rglob("test_*.py"):
        text = path.read_text()
        if not any(name in text for name in KILLS):
            continue
        tree = ast.parse(text)
        imports = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        if KILLS & set(imports):
            yield tree


def test_a_process_is_killed_at_each_point() -> None:
    hit = {point for module in killing() for point in named(module)}
    assert {point.name for point in CrashPoint} - hit == set()


def test_the_docs_count_the_kills_in_a_bucket() -> None:
    kills = [*OF_BATCHES, *BESIDE_BATCHES]
    points = {point for point, _passage in kills}
    told = f"killed {len(kills)} times, at {len(points)} of the {len(CrashPoint)} crash points"
    assert told in (TESTS.parent / "docs/exactly-once.md").read_text()
