"""Columns of events as bytes of Avro and lines of JSON, by operations on whole columns."""
