"""Facts from the commits of a table that its feed needs: times, positions, columns, coverage."""
