"""The files of the records of a stream, in its folder of the zone."""

STREAM = "stream.json"
"""Names the stream and its source, and says whether the place in the source's log is made."""

SINKS = "sinks.json"
"""From where on a sink takes part that joined later."""

STOPPED = "stopped.json"
"""The tables that are no longer captured, because acknowledging without them would otherwise lose
their changes silently."""

TRUNCATED = "truncated.json"
"""The positions before which nothing of a table may be published again (strict zones)."""

KNOWN = "known.json"
"""By what the source recognises the tables, and from which point on."""

LOADS = "loads.json"
"""Where not every table is loaded, of which the rows are."""

DELETED = "deleted.json"
"""The folders that were deleted because their tables were dropped in the source."""

ADMITTED = "admitted.json"
"""Which tables take part where the project ignores tables that are created later."""

APPEND_ONLY = "append_only.json"
"""What the source has counted of tables whose updates and deletions are not captured."""

ATTACHED = "attached.json"
"""What tables have that changes no row."""

WITHOUT_EFFECT = "without_effect.json"
"""The last changes of that."""

UNFOLLOWED = "unfollowed.json"
"""The tables whose columns were altered so that rows have other values, which the stream will not
say before one of their rows changes."""

IGNORED = "ignored.json"
"""The tables that differ by a change that the project ignores."""

OUTAGE = "outage.json"
"""There while the source does not answer."""

AWAITED = "awaited.json"
"""There while a transaction of others keeps the source from taking a snapshot."""

RETAINED = "retained.json"
"""How much of its log the source keeps."""

WAITING_EVENTS = "waiting_events.json"
"""Which events wait for their file."""

EVENTS = "events.json"
"""What was written to the destinations of event files; `capture/events/state.py` has it."""

FLEETING = {OUTAGE, AWAITED, RETAINED, WAITING_EVENTS, ATTACHED, WITHOUT_EFFECT}
"""Capture writes these again by itself, and no change depends on them."""

OF_TABLES = (
    STOPPED,
    TRUNCATED,
    APPEND_ONLY,
    KNOWN,
    LOADS,
    ATTACHED,
    WITHOUT_EFFECT,
    UNFOLLOWED,
    IGNORED,
)
"""What is forgotten when all tables start over."""
