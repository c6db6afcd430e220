"""Tables that are built from change feeds: the functions of the package, and what `run` keeps."""
