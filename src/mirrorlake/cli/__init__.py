"""The command line, with one file per command. Each parses its arguments, calls and prints."""

from mirrorlake.freed_memory import keep_freed_memory

keep_freed_memory()  # before a command imports pyarrow
