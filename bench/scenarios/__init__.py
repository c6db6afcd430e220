"""The comparisons, a file each: `run(plan)` returns what it found."""
