"""The door: `mirrorlake.yaml` and the environment in, frozen settings of each part out.

Every refusal names file, line, field and rule, and never the value: it may be a secret. Nothing
below this package reads the environment.
"""

from mirrorlake.config.project import TEMPLATE, Project
from mirrorlake.config.reading import load

__all__ = ["TEMPLATE", "Project", "load"]
