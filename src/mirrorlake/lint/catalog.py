"""All rules, in the order of the specification."""

from __future__ import annotations

from mirrorlake.lint.finding import Rule
from mirrorlake.lint.rules import columns as column_rules
from mirrorlake.lint.rules import evolution as evolution_rules
from mirrorlake.lint.rules import layout as layout_rules
from mirrorlake.lint.rules import metadata as metadata_rules
from mirrorlake.lint.rules import parquet as parquet_rules
from mirrorlake.lint.rules import partner_events as partner_rules
from mirrorlake.lint.rules import rows as row_rules
from mirrorlake.lint.rules import sequence as sequence_rules
from mirrorlake.lint.rules import text as text_rules
from mirrorlake.lint.rules import text_metadata as text_member_rules

_ALL = (
    *layout_rules.RULES,
    *metadata_rules.RULES,
    *partner_rules.RULES,
    *column_rules.RULES,
    *row_rules.RULES,
    *sequence_rules.RULES,
    *parquet_rules.RULES,
    *text_member_rules.RULES,
    *text_rules.RULES,
    *evolution_rules.RULES,
)

RULES: tuple[Rule, ...] = tuple(sorted(_ALL, key=lambda rule: rule.id))
"""Those of one clause stand together, in the order in which their modules name them."""


def of_clause(clause: str) -> tuple[Rule, ...]:
    """The rules that a clause has, those included that name it as broken as well."""
    own = tuple(rule for rule in RULES if rule.id == clause)
    return own or tuple(rule for rule in RULES if clause in rule.also)
