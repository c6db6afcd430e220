"""Key lookup: finds the rows of given keys in the data files of a table."""
