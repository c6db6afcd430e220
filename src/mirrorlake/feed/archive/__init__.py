"""Archives: every change that a table has ever had (section 13 of the specification)."""
