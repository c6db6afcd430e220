"""The tables of a stream: which it carries, which begin anew, and which were dropped."""
