"""What capture looks at beside the stream: whether the source answers, and what it keeps for us."""
