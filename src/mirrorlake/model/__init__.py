"""The types that all packages share: tables, columns, types, changes, positions. No I/O."""
