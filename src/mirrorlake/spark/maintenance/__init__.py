"""Tables kept compact: compaction, checkpoints, vacuum."""
