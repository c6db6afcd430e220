"""Where in the data files of a table the rows of given keys lie."""
