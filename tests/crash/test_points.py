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
CRASH = "pytest.mark.crash"


def named(node: ast.AST) -> Iterator[str]:
    """The points that a test names to be killed at: not those that it compares with, nor those
    of the long run alone."""
    if isinstance(node, ast.Compare) or (isinstance(node, ast.Call) and _is_long(node)):
        return
    if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "CrashPoint":
        yield node.attr
    for child in ast.iter_child_nodes(node):
        yield from named(child)


def _is_long(call: ast.Call) -> bool:
    return any(ast.unparse(one.value) == "pytest.mark.long" for one in call.keywords)


def killing() -> Iterator[ast.AST]:
    """A module that is marked as `crash`, or of another one all but the functions that are not."""
    for path in TESTS.rglob("test_*.py"):
        text = path.read_text()
        if not any(name in text for name in KILLS):
            continue
        tree = ast.parse(text)
        imports = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        if KILLS & set(imports):
            yield from [tree] if _is_marked(tree) else filter(_kills, tree.body)


def _is_marked(module: ast.Module) -> bool:
    return any(
        CRASH in map(ast.unparse, ast.walk(node.value))
        for node in module.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    )


def _kills(statement: ast.stmt) -> bool:
    """Whether it is a test that is marked, or a list of points for one."""
    marks = getattr(statement, "decorator_list", None)
    return marks is None or any(ast.unparse(mark) == CRASH for mark in marks)


def test_a_process_is_killed_at_each_point() -> None:
    hit = {point for test in killing() for point in named(test)}
    assert {point.name for point in CrashPoint} - hit == set()


def test_the_docs_count_the_kills_in_a_bucket() -> None:
    kills = [*OF_BATCHES, *BESIDE_BATCHES]
    points = {point for point, _passage in kills}
    told = f"killed {len(kills)} times, at {len(points)} of the {len(CrashPoint)} crash points"
    assert told in (TESTS.parent / "docs/exactly-once.md").read_text()
