"""Checks the files of a landing zone against the specification, without Spark and read-only."""

from mirrorlake.lint.catalog import Profile, Rule, Severity, Version
from mirrorlake.lint.finding import Finding, FindingLocation, Report
from mirrorlake.lint.linter import Result, lint
from mirrorlake.lint.sampling import Reading, Unread
from mirrorlake.lint.target import Target, of_location, of_path

__all__ = [
    "Finding",
    "FindingLocation",
    "Profile",
    "Reading",
    "Report",
    "Result",
    "Rule",
    "Severity",
    "Target",
    "Unread",
    "Version",
    "lint",
    "of_location",
    "of_path",
]
