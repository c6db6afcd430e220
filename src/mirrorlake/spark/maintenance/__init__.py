"""Maintenance of tables: compaction, checkpoints, vacuum."""
