"""Other forms of the changes of tables: landing zones, event files, and pages, streams and views of
the change feed."""
