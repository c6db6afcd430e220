"""Tables that are built from the change feed of another: what histories, archives and replays
share."""
