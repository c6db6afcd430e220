"""Reads `mirrorlake.yaml` and the environment into the frozen settings of each part.

Every error names file, line, field and rule, but never the value, which may be a secret. Nothing
below this package reads the environment.
"""

from mirrorlake.config.files import load, load_all
from mirrorlake.config.project import TEMPLATE, Project

__all__ = ["TEMPLATE", "Project", "load", "load_all"]
