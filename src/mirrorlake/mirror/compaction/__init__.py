"""Which files of a table to write anew, and when."""
