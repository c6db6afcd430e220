"""Tables from event files: the loop, how they stand, and starting anew."""
