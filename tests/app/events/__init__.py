"""Projects whose source is a folder of event files."""
