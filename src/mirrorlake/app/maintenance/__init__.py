"""What is done with tables and files between batches."""
