"""Everything that uses PySpark, which no other package imports."""
