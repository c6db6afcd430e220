"""Those that we compare with, a file each."""
