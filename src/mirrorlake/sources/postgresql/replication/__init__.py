"""The replication protocol: the slot, its stream, and the timelines of the server."""
