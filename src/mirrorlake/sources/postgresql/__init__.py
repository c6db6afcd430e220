"""PostgreSQL 14 to 18, by logical decoding with pgoutput."""
