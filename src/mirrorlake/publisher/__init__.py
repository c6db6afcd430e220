"""For people who write publishers: rows in, correct files of a landing zone out.

    from mirrorlake.landing import Publisher

    with Publisher("./zone") as publisher:
        publisher.load("sales.orders", frame, key=["id"])
        publisher.publish("sales.orders", changes, operation="upsert", batch="2026-05-01/17")

`rows.py` turns what comes into Arrow, `types.py` and `json_text.py` into types that a mirror takes,
`changes.py` gives each row its marker, `parquet.py` and `delimited.py` make files of them, and
`assigned.py` keeps the order of effects that survives crashes. The last three promises of section 7
of the specification are `journal.py`'s.
"""

from mirrorlake.landing.text.format import TextFormat
from mirrorlake.publisher.describe import Layout, Partner
from mirrorlake.publisher.journal import Outcome, Published
from mirrorlake.publisher.publisher import Publisher

__all__ = ["Layout", "Outcome", "Partner", "Published", "Publisher", "TextFormat"]
