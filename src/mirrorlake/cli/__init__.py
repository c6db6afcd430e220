"""The command line, with one file per command. Each parses its arguments, calls and prints."""
