"""All rules, in the order of the specification."""

from __future__ import annotations

from mirrorlake.landing.lint import (
    column_rules,
    evolution_rules,
    layout_rules,
    metadata_rules,
    parquet_rules,
    partner_rules,
    row_rules,
    sequence_rules,
    text_member_rules,
    text_rules,
)
from mirrorlake.landing.lint.finding import Rule

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
