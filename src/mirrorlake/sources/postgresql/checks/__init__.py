"""What must hold in PostgreSQL before and while changes are captured."""
