"""Tables from event files."""
