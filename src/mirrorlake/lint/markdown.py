"""The description of a clause and its rules, as Markdown.

`mirrorlake lint --explain LZ-117` prints a page; `docs/reference/findings/` contains all pages.
"""

from __future__ import annotations

from collections.abc import Iterator

from mirrorlake.lint.catalog import RULES, Rule


def clauses() -> list[str]:
    """The clauses that have a page."""
    return sorted({rule.id for rule in RULES})


def page(clause: str) -> str:
    """The page of a clause: each of its rules with its reason, the fix and an example."""
    rules = [rule for rule in RULES if rule.id == clause]
    lines = [f"# {clause}"]
    for rule in rules:
        lines += ["", *_rule(rule)]
    return "\n".join(lines) + "\n"


def _rule(rule: Rule) -> Iterator[str]:
    usual, strict = severities(rule)
    yield f"## {rule.title}"
    yield ""
    yield f"Rule `{rule.name}`: {usual}" + (
        "" if strict == usual else f", with `--strict` {strict}"
    )
    if rule.also:
        yield f"Also violates: {', '.join(rule.also)}"
    yield ""
    yield rule.why
    yield ""
    yield f"**Expected**: {rule.expected}"
    yield ""
    yield f"**How to fix it**: {rule.mend}"
    yield ""
    yield "This example violates the rule:"
    yield ""
    yield "```text"
    yield rule.example
    yield "```"


def severities(rule: Rule) -> tuple[str, str]:
    """The severities of a rule as text: in the default and in the strict profile."""
    usual = str(rule.severity or "not reported")
    strict = str(rule.strict or rule.severity)
    only = f" (`--version {rule.only}`)" if rule.only else ""
    return usual + only, strict + only
