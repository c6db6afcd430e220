"""Says which clause each file of a landing zone breaks, without Spark and without changing it."""

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
