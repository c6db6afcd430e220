"""The landing zone on a store: names, metadata, files, publication, scan, cleanup, cuts."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mirrorlake.publisher import Partner, Published, Publisher, TextFormat

__all__ = ["Partner", "Published", "Publisher", "TextFormat"]


def __getattr__(name: str) -> Any:
    # Imported on first use: parts of this package are used without Arrow.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("mirrorlake.publisher"), name)
