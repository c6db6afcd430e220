"""The HTTP API of streams: thin routes over `control/` and `app/streams/`."""
