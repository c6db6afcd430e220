"""From rows to the bytes of data files."""
