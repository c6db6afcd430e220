"""The house: what holds of every module, whatever is in it."""

from __future__ import annotations

import ast
import errno
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("house")
"""All modules are parsed once then."""

SOURCE = Path(__file__).parent.parent / "src"
PACKAGE = SOURCE / "mirrorlake"
GLOSSARY = PACKAGE.parent.parent / "docs" / "glossary.md"

MOST_FILES = 14
MOST_LINES = 600
ONE_FILE_A_COMMAND = PACKAGE / "cli"
STARTED = {
    "mirrorlake.__main__",
    "mirrorlake.control.store.migrations",
    "mirrorlake.control.store.migrations.env",
    "mirrorlake.control.store.migrations.versions",
    "mirrorlake.control.store.migrations.versions.r0001_resources",
    "mirrorlake.spark.session.fetch",
}
"""Modules that nothing imports, because they are run."""

FOR_USERS = {
    "mirrorlake.apply.in_process.committer",
    "mirrorlake.apply.in_process.runner",
    "mirrorlake.apply.in_process.tables",
}
"""Modules that nothing imports, because they are for programs of users, and for tests."""


def modules() -> dict[str, Path]:
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


@cache
def trees() -> dict[str, ast.Module]:
    """Parsed when a test asks: each process of a run imports this file."""
    return {name: ast.parse(path.read_text()) for name, path in MODULES.items()}


def imported(name: str) -> set[str]:
    """The modules of ours that a module names in its imports, wherever in it they stand."""
    found = set()
    for node in ast.walk(trees()[name]):
        if isinstance(node, ast.ImportFrom) and node.module:
            named = {f"{node.module}.{one.name}" for one in node.names}
            found |= named if named <= MODULES.keys() else named | {node.module}
        elif isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
    return found & MODULES.keys()


def test_no_table_has_two_entries_of_one_key() -> None:
    """The first of them would be dead. Two errors of the system may have one number."""
    for name, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Dict):
                keys = [ast.unparse(key) for key in node.keys if key is not None]
                numbers = [getattr(errno, key.removeprefix("errno."), key) for key in keys]
                assert len(numbers) == len(set(numbers)), f"{name}, line {node.lineno}"


def test_no_two_files_import_each_other() -> None:
    """Nor do longer circles exist."""
    waiting = {name: imported(name) - {name} for name in MODULES}
    while leaves := {name for name, needs in waiting.items() if not needs & waiting.keys()}:
        waiting = {name: needs for name, needs in waiting.items() if name not in leaves}
    assert waiting == {}, f"they import each other in a circle: {sorted(waiting)}"


def test_no_folder_has_too_many_files() -> None:
    folders = {path.parent for path in MODULES.values()} - {ONE_FILE_A_COMMAND}
    crowded = {
        str(folder.relative_to(SOURCE)): count
        for folder in folders
        if (count := len(list(folder.glob("*.py")))) > MOST_FILES
    }
    assert crowded == {}


def test_no_file_is_too_long() -> None:
    lengths = {name: len(path.read_text().splitlines()) for name, path in MODULES.items()}
    assert {name: count for name, count in lengths.items() if count > MOST_LINES} == {}


def test_no_public_class_has_the_name_of_another() -> None:
    homes = defaultdict(list)
    for name, tree in trees().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(name)
    assert {one: names for one, names in homes.items() if len(names) > 1} == {}


def test_every_module_is_imported() -> None:
    used = set().union(*(imported(name) - {name} for name in MODULES))
    # A package is used with any of its modules; what the package names lazily stands in a text.
    used |= {one.rpartition(".")[0] for one in used}
    texts = "".join(path.read_text() for name, path in MODULES.items() if name == "mirrorlake")
    unused = {
        name
        for name in MODULES.keys() - used - STARTED - FOR_USERS - {"mirrorlake"}
        if name.removeprefix("mirrorlake.") not in texts
        and not any(one.startswith(f"{name}.") for one in used)
    }
    assert unused == set()


def test_decisions_touch_no_files() -> None:
    """`mirror/` decides from what it is given; whoever reads or writes is in another room."""
    doing = {"io", "os", "pathlib", "shutil", "socket", "subprocess", "tempfile"}
    contract = {"mirrorlake.storage.store"}
    for name in MODULES:
        if name.startswith("mirrorlake.mirror"):
            modules = {
                node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
                for node in ast.walk(trees()[name])
                if isinstance(node, ast.Import | ast.ImportFrom)
            }
            assert not modules & doing, name
            used = {one for one in imported(name) if one.startswith("mirrorlake.storage")}
            assert used <= contract, name
            calls = {
                node.func.id
                for node in ast.walk(trees()[name])
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            }
            assert "open" not in calls, name


def given_up() -> set[str]:
    """The words of the glossary that were given up."""
    text = GLOSSARY.read_text()
    rows = re.findall(r"^\| *([^|]+?) *\| *[^|]+ *\|$", text.partition("| Was |")[2], re.MULTILINE)
    words = {word.strip(" `") for row in rows for word in re.sub(r"\([^)]*\)", "", row).split(",")}
    return {word for word in words if re.fullmatch(r"[a-z]+", word)}


def names(tree: ast.Module) -> Iterator[str]:
    """Of classes, functions, parameters, attributes and constants."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.arg(arg=name):
                yield name
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) if name.isupper():
                yield name


def test_words_that_were_given_up_do_not_come_back() -> None:
    unwanted = given_up()
    assert len(unwanted) > 20
    found = set()
    for module, tree in trees().items():
        for name in {module.rpartition(".")[2], *names(tree)}:
            words = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower().split("_")
            found |= {f"{module}: {name}" for word in words if word in unwanted}
    assert found == set()
