"""The apply loop: its cycle and the background jobs beside it."""
