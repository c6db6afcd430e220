"""The landing zone on a store: names, metadata, files, publication, scan, cleanup, cuts, lease."""
