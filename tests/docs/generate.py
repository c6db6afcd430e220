"""Writes the parts of the documentation that follow from the code: `make docs`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main
from bench import figures, plot

from mirrorlake import errors
from mirrorlake.cli.main import app
from mirrorlake.errors import MirrorlakeError
from mirrorlake.lint import markdown as findings
from mirrorlake.lint.catalog import RULES
from tests.docs import api, event_types

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
FINDINGS = DOCS / "reference" / "findings"
"""A page for each clause that the linter may name; nothing else lies there."""


def pages() -> dict[Path, str]:
    """The generated pages by path."""
    return {
        DOCS / "reference" / "commands.md": commands(),
        DOCS / "reference" / "errors.md": error_codes(),
        DOCS / "reference" / "python-api.md": api.page(),
        DOCS / "reference" / "event-types.md": event_types.page(),
        FINDINGS / "README.md": findings_index(),
        **{
            path: figures.filled(path.read_text())
            for path in (ROOT / "README.md", DOCS / "performance.md")
        },
        **plot.pictures(),
        **{FINDINGS / f"{clause}.md": findings.page(clause) for clause in findings.clauses()},
    }


def findings_index() -> str:
    """All rules in one table, with links to their pages."""
    lines = [
        "# Findings of the linter",
        "",
        "What `mirrorlake lint` can report, by the clause of the",
        "[specification](../../spec/landing-zone.md) that a file or folder violates.",
        "`mirrorlake lint --explain LZ-117` prints the same text.",
        "",
        "| Clause | Rule | What | Severity | With `--strict` |",
        "| --- | --- | --- | --- | --- |",
    ]
    for rule in RULES:
        usual, strict = findings.severities(rule)
        lines.append(
            f"| [{rule.id}]({rule.id}.md) | `{rule.name}` | {rule.title} | {usual} | {strict} |"
        )
    return "\n".join(lines) + "\n"


def commands() -> str:
    lines = [
        "# Commands",
        "",
        "Exit codes: 0 success, 1 problems were found, 2 wrong usage or configuration, 3 a",
        "required system is not available. `--json` prints JSON for programs.",
    ]
    group: Any = typer.main.get_command(app)
    for name, command in group.commands.items():
        lines += ["", f"## mirrorlake {name}", "", *_help(command), ""]
        lines += ["| Option | Meaning | Default |", "| --- | --- | --- |"]
        lines += [_row(parameter) for parameter in command.params if _is_shown(parameter)]
    return "\n".join(lines) + "\n"


def _help(command: Any) -> list[str]:
    """The help text; a paragraph that keeps its lines is one of examples."""
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    shown = [f"```\n{p[2:]}\n```" if p.startswith("\b\n") else p for p in paragraphs]
    return "\n\n".join(shown).splitlines()


def _is_shown(parameter: Any) -> bool:
    return bool(parameter.name != "help")


def _row(parameter: Any) -> str:
    if parameter.param_type_name == "option":
        names = ", ".join(f"`{name}`" for name in parameter.opts)
    else:
        names = f"`{parameter.name.upper()}`"
    default = parameter.default
    shown = "" if default is None or default is False or callable(default) else f"`{default}`"
    return f"| {names} | {getattr(parameter, 'help', None) or ''} | {shown} |"


def error_codes() -> str:
    lines = [
        "# Errors",
        "",
        "`code` is stable, so programs can compare it. Every message says what happened, where,",
        "and what to do. An error of one table stops only that table.",
        "",
        "| Code | Meaning | Exit code |",
        "| --- | --- | --- |",
    ]
    for kind in sorted(_kinds(), key=lambda k: k.code):
        meaning = inspect.getdoc(kind).splitlines()[0].rstrip(".")
        lines.append(f"| `{kind.code}` | {meaning} | {kind.exit_code} |")
    return "\n".join(lines) + "\n"


def _kinds() -> Iterator[type[MirrorlakeError]]:
    for _name, kind in inspect.getmembers(errors, inspect.isclass):
        if issubclass(kind, MirrorlakeError) and kind is not MirrorlakeError:
            yield kind


if __name__ == "__main__":
    FINDINGS.mkdir(exist_ok=True)
    for old in FINDINGS.glob("*.md"):
        old.unlink()
    for path, content in pages().items():
        path.write_text(content)
