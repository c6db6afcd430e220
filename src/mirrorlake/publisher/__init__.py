"""The library for authors of publishers: writes rows as valid files into a landing zone.

    from mirrorlake.landing import Publisher

    with Publisher("./zone") as publisher:
        publisher.load("sales.orders", frame, key=["id"])
        publisher.publish("sales.orders", changes, operation="upsert", batch="2026-05-01/17")

`input/` converts rows to Arrow, `encoding/types.py` and `encoding/json_text.py` convert types to
those that a mirror supports, `operations.py` sets the marker of each row, `encoding/encoders.py`
writes files, and `table.py` keeps the order of effects that survives crashes. `journal.py` provides
the last three guarantees of section 7 of the specification.
"""

from mirrorlake.landing.text.format import TextFormat
from mirrorlake.publisher.describe import Layout, Partner
from mirrorlake.publisher.journal import Outcome, Published
from mirrorlake.publisher.publisher import Publisher

__all__ = ["Layout", "Outcome", "Partner", "Published", "Publisher", "TextFormat"]
