"""What a zone of ours remembers of its stream, beside the files themselves."""
