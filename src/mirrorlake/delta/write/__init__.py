"""New data files, change files and deletion vectors of a table."""
