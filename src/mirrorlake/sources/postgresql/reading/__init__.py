"""How rows of tables are read: ranges of pages, and the output of COPY."""
