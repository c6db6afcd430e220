"""From a source to landed files: load, roll, publish, cut, acknowledge."""
