"""The landing zone as a sink: tables are loaded and changes published as numbered files."""
