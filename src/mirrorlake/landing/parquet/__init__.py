"""Landed Parquet files: reading in bounded memory, and the mask of unchanged values."""
