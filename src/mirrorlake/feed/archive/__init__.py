"""Archives: every change that a table has had, for ever (section 13 of the specification)."""
