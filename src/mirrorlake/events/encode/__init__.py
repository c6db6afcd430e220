"""Encodes columns of events as Avro or lines of JSON, with operations on whole columns."""
