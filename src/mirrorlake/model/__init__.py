"""The words everybody uses: tables, columns, types, changes, positions. No I/O."""
