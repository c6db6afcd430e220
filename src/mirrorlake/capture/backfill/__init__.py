"""Tables, or ranges of their keys, are read again while changes flow."""
