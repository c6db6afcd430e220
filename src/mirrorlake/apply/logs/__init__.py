"""What the logs of tables say of their progress."""
