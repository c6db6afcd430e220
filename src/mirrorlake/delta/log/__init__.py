"""The transaction log of a Delta table: reading it, checkpoints, durability."""
