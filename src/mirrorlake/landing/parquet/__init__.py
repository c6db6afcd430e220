"""Landed Parquet files: read in bounded memory, and the mask of unchanged values."""
